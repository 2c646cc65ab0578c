"""Between two ticks: what begins on an emulated node gets its values at once, and nothing else is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.changes import cgroup
from koordlite.record.round_record import RoundRecord
from koordlite.replay import verify
from koordlite.report.tick import Tick

Make = Callable[[str], Emulated]


@pytest.fixture
def begun(emulate: Make) -> tuple[Emulated, Agent, Tick, str]:
    """A node, its agent after a round about a pod that began since the last tick, that round, and the pod's group."""
    node = emulate("small")
    agent = node.agent(node.journal())
    node.ticks(agent, 4)
    return node, agent, *begin(node, agent)


def begin(node: Emulated, agent: Agent) -> tuple[Tick, str]:
    """A batch pod begins; the round about its groups."""
    node.pod("late", "BE", "0.2", memory="64Mi")
    node.sandbox.advance(1.0)
    node.cluster.view()
    host = node.host()
    group = next(
        f"{host.cgroups.layout.besteffort}/{name}"
        for name in host.cgroups.children(host.cgroups.layout.besteffort)
        if name.replace("_", "-").removesuffix(".slice").endswith("poduid-late")
    )
    tick = agent.begin(frozenset({group}))
    assert tick
    return tick, group


def written(tick: Tick) -> set[str]:
    """The groups whose files were written."""
    assert all(step.place.kind is cgroup.PLACE and step.ok for step in tick.applied), tick.applied
    return {step.place.part("cgroup") for step in tick.applied}


def test_only_the_new_pod_and_its_containers_are_written(begun: tuple[Emulated, Agent, Tick, str]) -> None:
    _, _, tick, group = begun
    assert tick.woken
    assert group in written(tick)
    assert {each for each in written(tick) if each != group and not each.startswith(f"{group}/")} == set()
    assert len(written(tick)) >= 2, "the pod and its container"


def test_the_next_tick_has_nothing_to_add(begun: tuple[Emulated, Agent, Tick, str]) -> None:
    _, agent, _, group = begun
    after = agent.tick()
    assert not [step for step in after.applied if step.place.kind is cgroup.PLACE and group in str(step.place)]
    assert any(decision.subject == "pod/ns/late" for decision in after.decisions)


def test_a_second_look_that_finds_everything_writes_nothing(begun: tuple[Emulated, Agent, Tick, str]) -> None:
    _, agent, _, group = begun
    assert agent.begin(frozenset({group})) is None


def test_rules_remember_what_the_tick_left(emulate: Make) -> None:
    node = emulate("small")
    with node.at_work() as agent:
        node.ticks(agent, 4)
        assert agent.snapshot and agent.last_round
        before = agent._recall(0.0, ()).remembered
        begin(node, agent)
        assert agent._recall(0.0, ()).remembered == before


def test_what_the_runtime_writes_over_it_is_replaced_and_is_what_comes_back(
    begun: tuple[Emulated, Agent, Tick, str],
) -> None:
    node, agent, tick, group = begun
    cgroups = node.host().cgroups
    container = max(written(tick), key=len)
    ours = cgroups.read_raw(container, "cpu.shares")
    cgroups.write(container, "cpu.shares", 2)
    again_written = agent.begin(frozenset({container}))
    assert again_written and written(again_written) == {container}
    assert cgroups.read_raw(container, "cpu.shares") == ours
    assert not agent.tick().foreign, "no fight with the runtime"
    agent.put_back()
    assert cgroups.decode("cpu.shares", cgroups.read_raw(container, "cpu.shares")) == 2
    assert group in container


def test_the_round_is_judged_again_from_a_record(emulate: Make) -> None:
    node, moments = emulate("small"), list[RoundRecord]()
    with node.at_work() as agent:
        for _ in range(3):
            agent.tick()
            node.sandbox.advance(1.0)
            assert agent.last_round
            moments.append(agent.last_round)
        begin(node, agent)
        moments.append(agent.last_round)
        agent.tick()
        moments.append(agent.last_round)
    assert moments[-2].new_groups
    assert verify.check(moments).same


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_nothing_is_written_where_nothing_is_enforced(emulate: Make, mode: str) -> None:
    node = emulate("small")
    with node.at_work(mode=mode) as agent:  # type: ignore[arg-type]
        node.ticks(agent, 2)
        assert agent.begin(frozenset({"kubepods/besteffort"})) is None


def test_before_the_first_picture_there_is_nothing_to_go_by(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        assert node.agent(journal).begin(frozenset({"kubepods/besteffort/podx"})) is None
