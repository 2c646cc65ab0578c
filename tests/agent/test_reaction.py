"""Between two ticks: a surge is answered at once on an emulated node, only downwards, and stated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.formulas.cpu.reaction import CONFIRM_SECONDS
from koordlite.host.sentinel import Sentinel
from koordlite.model.status import FreshUse
from koordlite.report.terminal import status
from koordlite.report.tick import Tick
from koordlite.wakeup import Waker

Make = Callable[[str], Emulated]


@pytest.fixture
def node(emulate: Make) -> Emulated:
    """Eight CPUs or so under a quota."""
    made = emulate("small")
    made.slo(policy="cfsQuota", percent=90)
    return made


def run(node: Emulated, seconds: float, **agent: object) -> list[Tick]:
    """The ticks of an agent in mode enforce."""
    seen: list[Tick] = []
    with node.journal() as journal:
        node.agent(journal, **agent).run(seen.append, seconds=seconds)
    return seen


def test_an_emulated_machine_has_no_looks_and_says_so(node: Emulated) -> None:
    tick = run(node, 2)[-1]
    assert tick.reaction.way == "tick"
    assert "not a real one" in status.screen(tick)
    assert tick.status == "enforcing"


def test_off_is_stated(node: Emulated) -> None:
    tick = run(node, 2, reaction="off")[-1]
    assert (tick.reaction.way, tick.reaction.why, tick.status) == ("tick", "it is off", "enforcing")


def test_required_looks_also_on_an_emulated_machine(node: Emulated) -> None:
    tick = run(node, 3, reaction="required")[-1]
    assert tick.reaction.way == "sentinel"
    assert tick.reaction.samples > 0
    assert "samples a second" in status.screen(tick)


def test_steady_load_wakes_nobody(node: Emulated) -> None:
    with node.journal() as journal:
        seen: list[Tick] = []
        node.agent(journal, reaction="required").run(seen.append, seconds=6)
    assert not [tick for tick in seen if tick.woken]


def test_a_surge_shrinks_at_once_and_the_next_tick_does_not_give_back(node: Emulated) -> None:
    with node.at_work() as agent:
        last = node.ticks(agent, 4)[-1]
        assert last.figures.be_limit and last.figures.node_cpu is not None and last.figures.be_cpu is not None
        surge = FreshUse(
            node=last.figures.node_cpu + 500, pods=last.figures.node_cpu + 500, best_effort=last.figures.be_cpu
        )
        woken = agent.react(surge)
    assert woken and woken.woken
    assert woken.figures.be_limit is not None and woken.figures.be_limit <= last.figures.be_limit - 400
    assert all(step.ok for step in woken.applied)
    assert {d.strategy for d in woken.decisions} == {d.strategy for d in last.decisions}


def test_less_use_of_others_is_left_to_the_tick(node: Emulated) -> None:
    with node.at_work() as agent:
        last = node.ticks(agent, 4)[-1]
        assert last.figures.be_cpu is not None
        woken = agent.react(
            FreshUse(node=last.figures.be_cpu, pods=last.figures.be_cpu, best_effort=last.figures.be_cpu)
        )
    assert woken and not woken.applied
    assert woken.figures.be_limit == last.figures.be_limit


def test_before_the_first_picture_there_is_nothing_to_judge(node: Emulated) -> None:
    with node.journal() as journal:
        assert node.agent(journal).react(FreshUse(node=1, pods=1, best_effort=1)) is None


def test_required_and_impossible_is_degraded(node: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from koordlite import wakeup

    def refuse(*_: object) -> None:
        raise OSError(2, "No such file or directory", "/sys/fs/cgroup/cpu.stat")

    monkeypatch.setattr(wakeup, "Sentinel", refuse)
    tick = run(node, 2, reaction="required")[-1]
    assert tick.status == "degraded"
    assert "reaction is required" in tick.because and "cpu.stat" in tick.because


@pytest.mark.parametrize("reaction", ["off", "required"])
def test_news_of_kubelet_do_not_wait_for_the_next_tick(node: Emulated, reaction: str) -> None:
    seen: list[Tick] = []
    with node.at_work(reaction=reaction, interval_seconds=10.0) as agent:
        told = iter([True])
        agent._cluster.take_changes = lambda: bool(seen) and next(told, False)  # type: ignore[attr-defined]
        agent.run(seen.append, seconds=25)
    times = [tick.time for tick in seen if not tick.woken]
    assert len(times) == 4
    assert times[1] - times[0] < 1.0
    assert times[2] - times[1] >= 10.0


@pytest.mark.parametrize(
    ("granted", "hertz"),
    [
        pytest.param({}, 24.0, id="a-share-that-nobody-changed"),
        pytest.param({"cpu_percent": 1.0}, 80.0, id="three-times-the-share-three-times-the-samples"),
        pytest.param({"cpu_percent": 2.0, "hertz": 100.0}, 100.0, id="no-more-samples-than-asked-for"),
    ],
)
def test_samples_come_as_often_as_their_share_of_a_core_allows(
    node: Emulated, granted: dict[str, float], hertz: float
) -> None:
    with node.journal() as journal:
        seen = node.ticks(node.agent(journal), 3)[-1].snapshot
    host = node.host()
    waker = Waker(host, sentinel=Sentinel(host.files, host.cgroups, host.clock), **{"hertz": 200.0, **granted})  # type: ignore[arg-type]
    waker.watch(seen, 1_000_000)
    waker._account(0.0001, 1, 1.0)
    assert waker.state.hertz == pytest.approx(hertz)


@dataclasses.dataclass
class ReportsPressure:
    """A trigger that reports pressure `after` seconds, once."""

    node: Emulated
    after: float
    at: float | None = None

    def wait(self, seconds: float) -> str:
        if self.at is not None or seconds < self.after:
            self.node.sandbox.clock.wait(seconds)
            return "quiet"
        self.node.sandbox.clock.wait(self.after)
        self.at = self.node.sandbox.clock.monotonic()
        return "pressure"

    def close(self) -> None:
        """Nothing is held."""


def test_a_report_of_pressure_is_measured_without_a_sample_before(node: Emulated) -> None:
    with node.journal() as journal:
        seen = node.ticks(node.agent(journal), 3)[-1].snapshot
    host = node.host()
    sampler = Sentinel(host.files, host.cgroups, host.clock)
    trigger = ReportsPressure(node, after=0.05)
    waker = Waker(host, sentinel=sampler, trigger=trigger)  # type: ignore[arg-type]
    waker.watch(seen, 1)
    woken = waker.wait(host.clock.monotonic() + 1.0)
    assert woken.cause == "surge"
    assert trigger.at is not None
    assert host.clock.monotonic() - trigger.at == pytest.approx(CONFIRM_SECONDS)


def test_pressure_among_best_effort_alone_is_no_surge(node: Emulated) -> None:
    with node.journal() as journal:
        seen = node.ticks(node.agent(journal), 3)[-1].snapshot
    host = node.host()
    trigger = ReportsPressure(node, after=0.05)
    waker = Waker(host, sentinel=Sentinel(host.files, host.cgroups, host.clock), trigger=trigger)  # type: ignore[arg-type]
    waker.watch(seen, 1_000_000)
    assert waker.wait(host.clock.monotonic() + 1.0).cause == "tick"
    assert (trigger.at is not None, waker.state.pressure, waker.state.surges) == (True, 1, 0)


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        pytest.param({1: (9_000_000, 0, 0)}, "tick", id="services ran and waited for nobody"),
        pytest.param({1: (6_000_000, 3_000_000, 0)}, "surge", id="half as long again for waiting"),
        pytest.param({1: (0, 0, 0)}, "surge", id="it is not known who ran"),
    ],
)
def test_a_surge_that_delays_no_service_takes_nothing_away(
    node: Emulated, after: dict[int, tuple[int, int, int]], cause: str
) -> None:
    with node.journal() as journal:
        seen = node.ticks(node.agent(journal), 3)[-1].snapshot
    host = node.host()
    trigger = ReportsPressure(node, after=0.05)
    waker = Waker(host, sentinel=Sentinel(host.files, host.cgroups, host.clock), trigger=trigger)  # type: ignore[arg-type]
    counters = iter([{1: (0, 0, 0)}, {1: (0, 0, 0)}, after])
    waker.service_counters = lambda _seen: next(counters)
    waker.watch(seen, 1)
    assert waker.wait(host.clock.monotonic() + 0.1).cause == cause
    assert waker.state.spared == (cause == "tick")
