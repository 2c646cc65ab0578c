"""The whole agent on an emulated node whose workloads answer to the limits it sets."""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec
import pytest
import slices
from emulated import Emulated

from koordlite import config
from koordlite.agent import Agent
from koordlite.model.cpuset import CPUSet
from koordlite.report.tick import Tick

Make = Callable[[str], Emulated]


def limits(ticks: list[Tick]) -> list[int]:
    return [tick.figures.be_limit or 0 for tick in ticks]


def refused(ticks: list[Tick]) -> list[str]:
    return [f"{step.place}: {step.error}" for tick in ticks for step in tick.applied if not step.ok]


def kernel_writes(ticks: list[Tick]) -> list[str]:
    cluster = ("node/", "noderesourcetopology/")
    return [str(step.place) for tick in ticks for step in tick.applied if not str(step.place).startswith(cluster)]


@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
def test_best_effort_gives_way_within_a_tick_and_comes_back_as_fast(node: Emulated, policy: str) -> None:
    node.slo(policy=policy)
    low, high = node.cpus * 50, node.cpus * 450
    node.pod("web", "LS", f"steps(0:{low}m,30:{high}m,60:{low}m)")
    with node.journal() as journal:
        ticks = node.ticks(node.agent(journal), 100)
    assert not refused(ticks)
    before, high_load, later = limits(ticks)[29], limits(ticks)[32:59], limits(ticks)[99]
    band, repayment = node.cpus * 20, node.cpus * 100
    assert max(high_load) < before
    assert max(high_load) <= high_load[-1] + band, "it is down within one sample of the load"
    assert high_load[-1] - min(high_load) <= repayment + band + 1000, "what it had too much meanwhile is taken off"
    assert before - later <= 1000, "it comes back, up to the dead band of one CPU"
    assert min(limits(ticks)[64:]) >= before - 1000 - band, "within some ticks: the shortfall is owed"
    assert max(limits(ticks)[60:]) <= before + repayment + band + 1000


def test_the_service_gets_what_it_wants_beside_greedy_work(node: Emulated) -> None:
    node.pod("web", "LS", f"{node.cpus * 400}m", request=f"{node.cpus * 100}m")
    with node.at_work() as agent:
        node.ticks(agent, 10)
        before = node.sandbox.stats("uid-web")
        node.ticks(agent, 10)
    stats = node.sandbox.stats("uid-web")
    assert stats.used_us - before.used_us >= 0.98 * (stats.wanted_us - before.wanted_us)


def test_reserved_cpus_are_left_by_everybody(node: Emulated) -> None:
    node.node(reservation='{"reservedCPUs":"0"}')
    with node.journal() as journal:
        ticks = node.ticks(node.agent(journal), 5)
    assert not refused(ticks)
    assert 0 not in CPUSet.parse(node.best_effort_cpus())
    assert 0 not in CPUSet.parse(ticks[-1].ls_pool)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_mode_that_does_not_enforce_writes_nothing(node: Emulated, mode: str) -> None:
    agent = node.agent(None, mode)  # type: ignore[arg-type]
    before = node.programmed()
    ticks = node.ticks(agent, 5)
    assert node.programmed() == before
    assert not any(tick.applied for tick in ticks)
    assert all(bool(tick.decisions) == (mode == "observe") for tick in ticks)
    assert {tick.status for tick in ticks} == {"observing"}


def test_observing_with_a_journal_at_hand_writes_nothing_either(node: Emulated) -> None:
    node.host()
    before = node.programmed()
    with node.journal() as journal:
        node.ticks(node.agent(journal, "observe"), 3)
        assert not journal.entries
    assert node.programmed() == before


@pytest.mark.sliced
@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
def test_steady_load_writes_nothing(node: Emulated, policy: str) -> None:
    """±1 % around a third of the node for ten minutes, after two to settle; in a quick run forty seconds of each."""
    node.slo(policy=policy)
    node.pod("web", "LS", f"wave(low={node.cpus * 333}m,high={node.cpus * 333 + 1}m,period=60,noise=0.01)")
    with node.at_work() as agent:
        node.ticks(agent, slices.amount(120, 40))
        assert kernel_writes(node.ticks(agent, slices.amount(600, 40))) == []


def test_our_own_writes_are_not_taken_for_somebody_elses(node: Emulated) -> None:
    node.pod("web", "LS", f"wave(low=0,high={node.cpus * 500}m,period=20)")
    with node.journal() as journal:
        ticks = node.ticks(node.agent(journal), 30)
    assert kernel_writes(ticks)
    assert [tick.foreign for tick in ticks if tick.foreign] == []


def test_stopping_gives_everything_back(node: Emulated) -> None:
    node.host()
    found = node.programmed()
    with node.journal() as journal:
        agent = node.agent(journal, on_stop="restore")
        written: list[Tick] = []
        agent.run(written.append, seconds=5)
        assert kernel_writes(written)
        assert not journal.entries
    assert node.changed(found) == []
    view = node.cluster.view()
    assert view.node is not None
    assert "kubernetes.io/batch-cpu" not in (view.node.status.allocatable or {})


def test_the_next_start_goes_on_where_a_run_ended_and_lifts_nothing(node: Emulated) -> None:
    node.host()
    found = node.programmed()
    with node.journal() as journal:
        node.ticks(node.agent(journal), 12)
        places = journal.places
    left = node.programmed()
    with node.journal() as journal:
        agent = node.agent(journal)
        assert agent.take_over() == ()
        assert (node.programmed(), journal.places) == (left, places)
        ticks = node.ticks(agent, 8)
        assert kernel_writes(ticks) == []
        assert [tick.foreign for tick in ticks if tick.foreign] == []
        assert all(step.ok for step in agent.put_back())
    assert node.changed(found) == []


def test_a_strategy_that_is_not_enforced_any_more_is_undone_at_the_start_and_the_others_go_on(
    emulate: Make,
) -> None:
    node = emulate("intel-2s-ht")
    with node.journal() as journal:
        node.ticks(node.agent(journal), 5)
    settings = config.with_modes(node.settings(), "observe", frozenset({"cpuSuppress"}))
    with node.journal() as journal:
        agent = Agent(node.host(), node.cluster, settings, journal)
        steps = agent.take_over()
        assert steps
        assert {step.place.metric for step in steps} == {"cpuset.cpus"}
        assert node.best_effort_cpus() == str(node.sandbox.machine.cpuset)
        assert any(place.kind.is_resctrl for place in journal.places)


def test_the_next_start_undoes_what_a_killed_run_left_where_nothing_is_enforced(node: Emulated) -> None:
    node.host()
    found = node.programmed()
    with node.journal() as journal:
        node.ticks(node.agent(journal), 3)
    assert node.changed(found)
    with node.at_work("observe") as agent:
        steps = agent.take_over()
        assert steps
        assert all(step.ok for step in steps)
    assert node.changed(found) == []


def test_a_strategy_that_fails_does_not_stop_the_others(
    emulate: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from koordlite import strategies

    def broken(seen: object, config: object) -> list[object]:
        raise ZeroDivisionError("no CPUs")

    found = strategies.discover()
    mine = tuple(s if s.name != "resctrl" else msgspec.structs.replace(s, decide=broken) for s in found)  # type: ignore[arg-type]
    monkeypatch.setattr(strategies, "discover", lambda: mine)
    node = emulate("intel-2s-ht")
    with node.journal() as journal:
        ticks = node.ticks(node.agent(journal), 3)
    (failed,) = [d for d in ticks[-1].decisions if d.strategy == "resctrl"]
    assert (failed.verdict, failed.reason) == ("skip", "StrategyFailed")
    assert failed.evidence["error"] == "ZeroDivisionError: no CPUs"
    assert "strategy resctrl failed" in caplog.text
    assert any("besteffort" in place for place in kernel_writes(ticks))


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_host_that_refuses_is_told_in_the_kernels_words_and_the_loop_goes_on(emulate: Make, code: int) -> None:
    node = emulate("small")
    path = node.host().cgroups.path("kubepods/besteffort", "cpuset.cpus")
    node.pod("web", "LS", "3")
    with node.at_work() as agent:
        agent.tick()
        node.sandbox.advance(1.0)
        refuse_writes(node, path, code)
        ticks = node.ticks(agent, 3)
    words = [
        step.error for tick in ticks for step in tick.applied if str(step.place) == "kubepods/besteffort/cpuset.cpus"
    ]
    assert len(words) >= 3
    assert all(errno.errorcode[code] in text and path in text for text in words)
    assert all(tick.figures.node_cpu is not None for tick in ticks)


def refuse_writes(node: Emulated, path: str, code: int) -> None:
    """Reading works, writing does not: a read-only mount, or no permission."""
    write = node.sandbox.files.write

    def refusing(target: str, data: bytes) -> None:
        if target == path:
            raise OSError(code, errno.errorcode[code], path)
        write(target, data)

    node.sandbox.files.write = refusing  # type: ignore[method-assign]


def test_no_picture_is_degraded_and_the_next_tick_comes(emulate: Make) -> None:
    node = emulate("small")
    agent = node.agent(None, "observe")
    node.sandbox.fail("/sys/devices/system/cpu/online", errno.EIO)
    blind, seeing = node.ticks(agent, 2)
    assert (blind.status, seeing.status) == ("degraded", "observing")
    assert "Input/output error" in blind.because


def test_the_wall_clock_matters_to_nobody(emulate: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    node = emulate("small")
    with node.at_work() as agent:
        node.ticks(agent, 30)
        clock = type(node.sandbox.clock)
        wall = clock.wall
        monkeypatch.setattr(clock, "wall", lambda self: wall(self) - 3600)
        ticks = node.ticks(agent, 30)
    assert kernel_writes(ticks) == []
    assert {tick.status for tick in ticks} == {"enforcing"}


def test_broken_configuration_keeps_the_last_good_one(emulate: Make) -> None:
    node = emulate("small")
    node.slo(percent=40)
    with node.at_work() as agent:
        good = node.ticks(agent, 3)[-1]
        node.raw_slo({"resource-threshold-config": '{"clusterStrategy": {"enable": tru'})
        bad = node.ticks(agent, 3)[-1]
    assert bad.figures.threshold_milli == good.figures.threshold_milli == 1600
    assert any("resource-threshold-config" in str(problem) for problem in bad.problems)


def test_two_strategies_on_one_file_are_a_problem_and_one_has_it(
    emulate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from koordlite import strategies
    from koordlite.changes.cgroup import CgroupChange
    from koordlite.model.decision import Decision

    def rival(seen: object, config: object) -> list[Decision]:
        return [
            Decision(
                "besteffort", "set", "Rival", {}, (CgroupChange("kubepods/besteffort", "cpuset.cpus", CPUSet([3])),)
            )
        ]

    found = strategies.discover()
    mine = tuple(s if s.name != "resctrl" else msgspec.structs.replace(s, decide=rival) for s in found)
    monkeypatch.setattr(strategies, "discover", lambda: mine)
    node = emulate("small")
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 2)[-1]
    (problem,) = [p for p in tick.problems if p.object == "kubepods/besteffort/cpuset.cpus"]
    assert "cpuSuppress" in problem.do
    assert CPUSet.parse(node.best_effort_cpus()) != CPUSet([3])


def test_an_error_of_a_listener_does_not_keep_the_limits(node: Emulated) -> None:
    node.pod("web", "LS", f"{node.cpus * 450}m")
    node.pod("batch", "BE", "greedy")
    node.host()
    found = node.programmed()

    def broken(tick: Tick) -> None:
        if tick.time > 2:
            assert node.changed(found), "there should be something to put back"
            raise BrokenPipeError

    with node.at_work(on_stop="restore") as agent, pytest.raises(BrokenPipeError):
        agent.run(broken, seconds=30)
    assert node.changed(found) == []
