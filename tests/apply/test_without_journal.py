"""An agent without a journal: it decides and tells, and writes nothing."""

from collections.abc import Callable

from emulated import Emulated

from koordlite.agent import Agent


def test_without_a_journal_everything_is_decided_and_nothing_is_written(emulate: Callable[[str], Emulated]) -> None:
    node = emulate("small")
    agent = Agent(node.host(), node.cluster, node.settings())
    assert agent.take_over() == ()
    node.ticks(agent, 1)
    before = node.programmed()
    ticks = node.ticks(agent, 3)
    assert any(decision.changes for decision in ticks[-1].decisions)
    assert [(tick.applied, tick.foreign, tick.troubles, tick.because) for tick in ticks] == [((), (), (), "")] * 3
    assert agent.put_back() == ()
    assert node.programmed() == before
