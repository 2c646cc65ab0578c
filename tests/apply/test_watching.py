"""An agent without a journal: it decides and tells, and writes nothing."""

import inspect
from collections.abc import Callable

from emulated import Emulated

from koordlite.agent import Agent
from koordlite.apply import Applier, Watching
from koordlite.model.picture.groups import RunState


def test_it_has_what_the_agent_asks_of_an_applier() -> None:
    for name, method in inspect.getmembers(Watching, inspect.isfunction):
        theirs = inspect.signature(getattr(Applier, name))
        assert inspect.signature(method).parameters.keys() == theirs.parameters.keys(), name
    assert (Watching.writes, Applier.writes) == (False, True)


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


def test_it_holds_nothing() -> None:
    assert (Watching().place_count, Watching().state(0.0, ())) == (0, RunState())
