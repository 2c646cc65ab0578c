"""What strategies ask for besides the usual: use of containers, throttling, means over other windows."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import msgspec
import pytest
from emulated import Emulated
from hooked_files import Hook, HookedFiles, nothing, refusing

from koordlite import changes, strategies
from koordlite.model.picture.groups import Original, RunState
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer, wants
from koordlite.observe.wants import Wants


def looks(node: Emulated, asking: Wants, count: int) -> list[Snapshot]:
    def asked(_slo: SLO, _pods: tuple[Pod, ...]) -> Wants:
        return asking

    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0, needs_of=asked)
    seen = []
    for _ in range(count):
        seen.append(observer.observe())
        node.sandbox.advance(1.0)
    return seen


def test_containers_are_looked_at_only_when_asked_for(node: Emulated) -> None:
    assert looks(node, Wants(), 3)[-1].usage.containers == {}


def test_a_container_has_use_and_throttling_from_its_second_look(node: Emulated) -> None:
    uids = frozenset(pod.metadata.uid for pod in node.cluster.view().pods if pod.metadata.name == "web")
    first, *_, last = looks(node, Wants(throttling=uids, windows=(2,)), 4)
    groups = {group for uid in uids for group in last.places[uid].containers.values()}
    assert (first.usage.containers, first.usage.throttled) == ({}, {})
    assert set(last.usage.containers) == set(last.usage.throttled) == groups != set()
    assert all(0 <= ratio <= 1 for ratio in last.usage.throttled.values())
    assert last.average.containers == last.windows[2].containers == {}, "nobody asks for means of containers"


@pytest.mark.parametrize(("seconds", "samples"), [(2, 3), (5, 6), (100, 8)])
def test_a_window_holds_what_its_seconds_hold(node: Emulated, seconds: int, samples: int) -> None:
    last = looks(node, Wants(windows=(seconds,)), 9)[-1]
    assert last.windows[seconds].samples == samples


def test_percentiles_are_worked_out_for_whoever_asks(node: Emulated) -> None:
    seen = looks(node, Wants(percentiles=((5, 50), (5, 100), (60, 100))), 9)
    assert seen[0].percentiles[5, 50].node is None, "there is no sample yet"
    found = seen[-1].percentiles
    assert set(found) == {(5, 50), (5, 100), (60, 100)}
    looked = [each.usage.node.cpu for each in seen if each.usage.node]
    assert found[5, 100].node is not None and found[5, 100].node.cpu == max(looked[-6:])
    assert found[60, 100].node is not None and found[60, 100].node.cpu == max(looked)
    assert set(found[5, 50].pods) == set(seen[-1].usage.pods)
    assert (found[5, 50].samples, found[60, 100].samples) == (6, 8)


def test_the_node_has_percentiles_without_being_asked(node: Emulated) -> None:
    seen = looks(node, Wants(), 9)
    assert list(seen[-1].node_percentiles) == [50, 90, 95, 99]
    cpus = [use.cpu for use in seen[-1].node_percentiles.values()]
    assert cpus == sorted(cpus)


def test_best_effort_request_and_limit_are_averaged_with_the_rest(node: Emulated) -> None:
    last = looks(node, Wants(windows=(5,)), 4)[-1]
    assert last.usage.best_effort_request == last.windows[5].best_effort_request == 1000
    assert last.usage.best_effort_limit == last.windows[5].best_effort_limit == 4000


LIMITED = """
apiVersion: v1
kind: Pod
metadata: {name: limited, namespace: ns, uid: uid-limited, labels: {koordinator.sh/qosClass: LS}}
spec:
  nodeName: node-a
  containers:
    - name: main
      resources: {requests: {cpu: 500m}, limits: {cpu: "1"}}
status: {phase: Running}
"""
OPTIONAL = {"cpu.cfs_burst_us", "memory.min", "memory.low", "memory.high", "cpu.idle", "cpu.stat", "min_free_kbytes"}


def watching(node: Emulated, look: Hook = nothing) -> Observer:
    """Looks on behalf of every strategy there is."""
    files, wanted = HookedFiles(node.sandbox.files, look=look), wants.of(strategies.discover())
    return Observer(node.host(files), node.cluster, tasks_seconds=5.0, needs_of=wanted)


def test_what_only_matters_when_it_is_configured_is_not_read_before(node: Emulated) -> None:
    names: set[str] = set()
    observer = watching(node, lambda _call, path: names.add(path.rpartition("/")[2]))
    observer.observe()
    assert not names & OPTIONAL


@pytest.mark.parametrize(
    ("key", "strategy", "files_read"),
    [
        pytest.param("cpu-burst-config", {"policy": "auto"}, {"cpu.cfs_burst_us"}, id="burst"),
        pytest.param(
            "resource-qos-config",
            {"lsClass": {"memoryQOS": {"enable": True}}},
            {"memory.min", "memory.high"},
            id="protection of memory",
        ),
        pytest.param("resource-qos-config", {"beClass": {"cpuQOS": {"enable": True}}}, {"cpu.idle"}, id="rank of CPU"),
        pytest.param("system-config", {"minFreeKbytesFactor": 100}, {"min_free_kbytes"}, id="a setting of the kernel"),
    ],
)
def test_what_is_configured_is_read_from_the_next_look_on(
    node: Emulated, key: str, strategy: dict[str, object], files_read: set[str]
) -> None:
    names: set[str] = set()
    observer = watching(node, lambda _call, path: names.add(path.rpartition("/")[2]))
    observer.observe()
    node.raw_slo({key: {"clusterStrategy": strategy}})
    node.sandbox.advance(1.0)
    observer.observe()
    assert files_read <= names


def test_throttling_is_read_of_pods_with_a_limit_that_may_burst(node: Emulated) -> None:
    node.raw_slo({"cpu-burst-config": {"clusterStrategy": {"policy": "auto"}}})
    (node.folder / "pod-limited.yaml").write_text(LIMITED)
    node.sandbox.advance(1.0)
    observer = watching(node)
    for _ in range(3):
        seen = observer.observe()
        node.sandbox.advance(1.0)
    names = {pod.uid: pod.name for pod in seen.pods}
    throttled = set(seen.usage.throttled)
    assert {names[uid] for uid, place in seen.places.items() if throttled & set(place.containers.values())} == {
        "limited"
    }


def test_what_holds_a_value_of_ours_is_read_though_nobody_asks_any_more(node: Emulated) -> None:
    observer = watching(node)
    held = {"kubepods/besteffort/cpu.idle": Original(0, "cpuIdentity"), "system/vm.min_free_kbytes": Original(1, "x")}
    found = {changes.parse(place): each for place, each in held.items()}
    seen = observer.observe(lambda *_: RunState(found=found))
    assert "cpu.idle" in seen.cgroups["kubepods/besteffort"].values
    assert "vm.min_free_kbytes" in seen.system


def test_a_file_that_comes_later_is_read_from_then_on(node: Emulated) -> None:
    files = HookedFiles(node.sandbox.files, look=refusing("/cpu.idle", errno.ENOENT))
    observer = Observer(
        node.host(files), node.cluster, tasks_seconds=5.0, needs_of=lambda *_: Wants(frozenset({"cpu.idle"}))
    )
    assert "cpu.idle" not in observer.observe().cgroups["kubepods/besteffort"].values
    files.look = nothing
    node.sandbox.advance(1.0)
    assert "cpu.idle" in observer.observe().cgroups["kubepods/besteffort"].values


def test_a_strategy_that_fails_to_say_what_it_wants_takes_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_slo: SLO, _pods: Sequence[Pod]) -> list[str]:
        raise KeyError("no such option")

    rules = strategies.discover()
    memory = next(rule for rule in rules if rule.windows(SLO(), ()))
    bad = msgspec.structs.replace(memory, name="bad", reads=broken)
    assert wants.of([bad, memory])(SLO(), ()) == wants.of([memory])(SLO(), ())
    assert "strategy bad cannot say what it wants to see" in caplog.text
