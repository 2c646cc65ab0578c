"""Cycle after cycle against the emulated API server: evictions, events, leadership, reload, and failures told."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apiserver import ApiServer, Fault
from prometheus_client import CollectorRegistry

from descheduler import cli
from descheduler.cli.source import PictureSource
from descheduler.evictors import eviction_api as evictor
from descheduler.evictors.executor import LeaderApi, waiting
from descheduler.history.past_evictions import CycleMemory
from descheduler.policy.watched_file import PolicyFile
from descheduler.serve import events
from descheduler.serve.endpoints import Endpoints
from descheduler.serve.loop import CycleResult, Loop
from descheduler.serve.metrics import Metrics
from koordlite.fault_guard import ROUNDS, FaultGuard
from koordlite.kube.client import access
from tests.descheduler.conftest import RESTARTS

POLICY = f"{RESTARTS}evictionFailureEventNotification: true\n"
NOBODY = POLICY.replace("podRestartThreshold: 5", "podRestartThreshold: 500")


class Ticking:
    """`ports.Clock` that only moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.25
        return self.now

    def wall(self) -> float:
        return 1767225600.0 + self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, restarts: int) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-1", "controller": True}
    state = {"name": "main", "restartCount": restarts, "ready": True, "image": "x", "imageID": "x"}
    status = {"phase": "Running", "containerStatuses": [{**state, "state": {"running": {}}}]}
    meta = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    spec = {"nodeName": "a", "containers": [{"name": "main", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Two nodes, a pod that restarts all the time, and a calm one."""
    with ApiServer() as running:
        running.objects.load(node("a"), node("b"), pod("restless", 50), pod("calm", 0))
        yield running


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: pathlib.Path) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(server.kubeconfig())
    return str(path)


@pytest.fixture
def policy(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


class Bench:
    """A loop on the server, with a lease that the test gives and takes."""

    def __init__(self, kubeconfig: str, policy: pathlib.Path, *, evicts: bool = True) -> None:
        self.leads = True
        self.clock = Ticking()
        api = access.connect(kubeconfig, None, user_agent="test")
        gate, wait = LeaderApi(api, lambda: self.leads), waiting(self.clock.wait, lambda: self.leads)
        pictures = PictureSource(cli.parser().parse_args(["plan", "--kubeconfig", kubeconfig]))
        self.loop = Loop(
            pictures,
            PolicyFile(str(policy)),
            self.clock,
            evict=(lambda plan: evictor.evict(plan, gate, wait)) if evicts else None,
            leads=lambda: self.leads,
        )


def pods(server: ApiServer) -> set[str]:
    found = server.objects.all("Pod", api_version="v1")
    return {one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"]}


def asked(server: ApiServer) -> int:
    return sum(one.verb == "create" and one.resource == "pods/eviction" for one in list(server.requests))


def test_a_cycle_evicts_and_says_what_became_of_it(server: ApiServer, kubeconfig: str, policy: pathlib.Path) -> None:
    told = Bench(kubeconfig, policy).loop.once()
    assert [(attempt.pod, attempt.result) for attempt in told.attempts] == [("default/restless", "Evicted")]
    assert pods(server) == {"calm"}
    (event,) = events.events(told)
    assert (event.reason, event.type, event.regarding.name) == ("RemovePodsHavingTooManyRestarts", "Normal", "restless")
    assert told.seconds > 0 and ("p", "RemovePodsHavingTooManyRestarts") in told.plugin_seconds


def test_a_cluster_is_looked_at_as_of_this_machines_clock_whatever_its_nodes_say(
    server: ApiServer, kubeconfig: str, policy: pathlib.Path
) -> None:
    meta = {"name": "ahead", "namespace": "default"}
    ahead = {"phase": "Running", "startTime": "2999-01-01T00:00:00Z"}
    server.objects.load({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": ahead})
    plan = Bench(kubeconfig, policy).loop.once().plan
    assert plan is not None
    assert plan.view.time_source == "this machine's clock" and not plan.view.time.startswith("2999")


def test_without_an_evictor_nothing_is_asked(server: ApiServer, kubeconfig: str, policy: pathlib.Path) -> None:
    told = Bench(kubeconfig, policy, evicts=False).loop.once()
    assert [attempt.result for attempt in told.attempts] == ["WouldEvict"]
    assert told.dry_run and pods(server) == {"restless", "calm"} and list(events.events(told)) == []


def test_a_standby_reports_and_evicts_nothing(server: ApiServer, kubeconfig: str, policy: pathlib.Path) -> None:
    bench = Bench(kubeconfig, policy)
    bench.leads = False
    told = bench.loop.once()
    assert told.plan and len(told.plan.evict) == 1 and told.dry_run and not told.leader
    assert pods(server) == {"restless", "calm"}
    bench.leads = True
    assert not bench.loop.once().dry_run
    assert pods(server) == {"calm"}


def test_a_lease_lost_while_evicting_stops_the_next_request(
    server: ApiServer, kubeconfig: str, policy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictor, "AT_ONCE", 1)
    server.objects.load(*(pod(f"more-{number}", 50) for number in range(20)))
    server.faults.add(Fault(verb="create", resource="pods/eviction", status=429, retry_after_seconds=3, times=100))
    bench = Bench(kubeconfig, policy)

    class Losing(Ticking):
        def wait(self, seconds: float) -> bool:
            bench.leads = False
            return False

    losing = Losing()
    bench.loop._evict = lambda plan: evictor.evict(
        plan,
        LeaderApi(access.connect(kubeconfig, None, user_agent="test"), lambda: bench.leads),
        waiting(losing.wait, lambda: bench.leads),
    )
    told = bench.loop.once()
    assert asked(server) == 1, "no second request after the lease was lost"
    assert {attempt.result for attempt in told.attempts} <= {"Blocked", "Failed"}
    assert sum("not the leader any more" in attempt.text for attempt in told.attempts) == 20


def test_a_failing_server_is_told_and_the_next_cycle_comes(
    server: ApiServer, kubeconfig: str, policy: pathlib.Path
) -> None:
    bench = Bench(kubeconfig, policy)
    server.faults.add(Fault(resource="nodes", status=403, times=2))
    told = bench.loop.once()
    assert told.plan is None and "403" in told.error
    assert bench.loop.once().plan is not None


class Guarded:
    """Cycles of a guarded loop in which the recall of past evictions ends as `faults` says, one word a cycle."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, faults: list[bool]) -> None:
        self.told: list[CycleResult] = []
        self.endpoints = Endpoints(CollectorRegistry(), interval_seconds=60.0, monotonic=bench.clock.monotonic)
        self.metrics = Metrics()
        self.ready: list[int] = []
        left, end = iter(faults), CycleMemory.end

        def ends(self: CycleMemory, *words: Any, **how: Any) -> None:
            if next(left):
                raise KeyError("surprise")
            end(self, *words, **how)

        monkeypatch.setattr(CycleMemory, "end", ends)
        try:
            stop = lambda seconds: len(self.told) >= len(faults)  # noqa: E731
            bench.loop.run(self._tell, interval_seconds=60.0, wait=stop, guard=FaultGuard())
        except KeyError:
            self.ended = True
        else:
            self.ended = False

    def _tell(self, told: CycleResult) -> None:
        self.told.append(told)
        self.endpoints.publish(told)
        self.metrics.observe(told)
        self.ready.append(self.endpoints.answer("/readyz", {}, "").status)


def test_a_fault_of_its_own_costs_one_cycle_and_is_told(
    kubeconfig: str, policy: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Guarded(Bench(kubeconfig, policy, evicts=False), monkeypatch, [False, True, False])
    assert [one.plan is None for one in run.told] == [False, True, False]
    assert "KeyError: 'surprise'" in run.told[1].error
    assert run.ready == [200, 200, 200]
    assert run.metrics.registry.get_sample_value("descheduler_faults_total") == 1
    assert run.metrics.registry.get_sample_value("descheduler_cycle_errors_total") == 1
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert record.exc_info
    assert not run.ended


def test_a_fault_of_its_own_that_stays_ends_the_process(
    kubeconfig: str, policy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Guarded(Bench(kubeconfig, policy, evicts=False), monkeypatch, [True] * 100)
    assert run.ended
    assert len(run.told) == ROUNDS - 1


def test_without_a_guard_a_fault_ends_the_loop(
    kubeconfig: str, policy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CycleMemory, "end", {}.__getitem__)
    with pytest.raises((TypeError, KeyError)):
        Bench(kubeconfig, policy, evicts=False).loop.run(print, interval_seconds=1.0, wait=lambda seconds: True)


def test_the_policy_is_read_anew_and_a_broken_one_changes_nothing(
    server: ApiServer, kubeconfig: str, policy: pathlib.Path
) -> None:
    bench = Bench(kubeconfig, policy, evicts=False)
    policy.write_text("kind: Nonsense")
    told = bench.loop.once()
    assert told.problems and told.plan and len(told.plan.evict) == 1
    policy.write_text(NOBODY)
    told = bench.loop.once()
    assert not told.problems and told.plan and not told.plan.evict


def test_the_loop_keeps_its_interval_and_stops_when_told(
    server: ApiServer, kubeconfig: str, policy: pathlib.Path
) -> None:
    rounds: list[CycleResult] = []
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 3

    bench = Bench(kubeconfig, policy, evicts=False)
    bench.loop.run(rounds.append, interval_seconds=60.0, wait=wait)
    assert [told.number for told in rounds] == [1, 2, 3]
    assert all(0 < seconds < 60 for seconds in waits)


def test_after_a_failed_cycle_the_next_one_comes_sooner(
    server: ApiServer, kubeconfig: str, policy: pathlib.Path
) -> None:
    server.faults.add(Fault(resource="pods", status=403, times=10))
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 6

    rounds: list[CycleResult] = []
    Bench(kubeconfig, policy).loop.run(rounds.append, interval_seconds=60.0, wait=wait)
    assert [one.plan is None for one in rounds] == [True] * 5 + [False]
    assert not any(one.unreachable for one in rounds)
    assert [round(seconds, -1) if seconds > 30 else round(seconds / 5) * 5 for seconds in waits] == [
        5,
        10,
        20,
        40,
        60,
        60,
    ]


def test_a_cycle_that_failed_after_it_evicted_waits_out_the_interval(
    kubeconfig: str, policy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*words: Any, **how: Any) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(CycleMemory, "end", end)
    waits: list[float] = []
    bench = Bench(kubeconfig, policy)
    bench.loop.run(print, interval_seconds=60.0, wait=lambda s: waits.append(s) or True, guard=FaultGuard())
    assert waits[0] > 50


class Stepping(Ticking):
    """A wall clock that is set while nothing waits, beside a monotonic one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.off = 0.0

    def wall(self) -> float:
        return super().wall() + self.off


def scheduled(kubeconfig: str, policy: pathlib.Path, waits: int, at: Callable[[Stepping, int], bool | None]) -> Any:
    """(when each cycle began, in hours of the first day; whether it was a dry run) of a loop from midnight on, by
    a schedule of three o'clock; `at` is called before each wait, and True ends that wait at once."""
    policy.write_text(POLICY + 'schedule: "0 3 * * *"\n')
    bench, found, count = Bench(kubeconfig, policy), list[tuple[float, bool]](), 0
    clock = Stepping()
    bench.loop._clock = clock

    def wait(seconds: float) -> bool:
        nonlocal count
        count += 1
        if not at(clock, count):
            clock.wait(seconds)
        return count >= waits

    def tell(result: CycleResult) -> None:
        found.append((round((result.began - 1767225600.0) / 3600, 1), result.dry_run))

    bench.loop.run(tell, interval_seconds=86400.0, wait=wait)
    return found


def test_by_a_schedule_only_the_cycles_of_the_schedule_evict(kubeconfig: str, policy: pathlib.Path) -> None:
    assert scheduled(kubeconfig, policy, 1700, lambda clock, count: None) == [(0.0, True), (3.0, False), (27.0, False)]


def test_a_request_to_reload_plans_and_evicts_nothing(kubeconfig: str, policy: pathlib.Path) -> None:
    found = scheduled(kubeconfig, policy, 200, lambda clock, count: count == 60)
    assert found == [(0.0, True), (1.0, True), (3.0, False)]


def test_a_clock_that_is_set_repeats_no_start_and_makes_up_for_one(kubeconfig: str, policy: pathlib.Path) -> None:
    def back(clock: Stepping, count: int) -> None:
        clock.off -= 600.0 if count == 185 else 0.0

    assert scheduled(kubeconfig, policy, 400, back) == [(0.0, True), (3.0, False)]

    def ahead(clock: Stepping, count: int) -> None:
        clock.off += 6 * 3600.0 if count == 60 else 0.0

    assert scheduled(kubeconfig, policy, 400, ahead) == [(0.0, True), (7.0, False)]


def test_a_schedule_and_an_interval_exclude_each_other(kubeconfig: str, policy: pathlib.Path, capsys: Any) -> None:
    policy.write_text(POLICY + 'schedule: "0 3 * * *"\n')
    words = ["run", "--kubeconfig", kubeconfig, "--policy", str(policy), "--descheduling-interval", "5m"]
    assert cli.main(words) == 2
    assert "the policy has a schedule; leave one of them out" in capsys.readouterr().err
