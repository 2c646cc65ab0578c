"""Memory is filled, reclaimed and runs out as on a node without swap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import slices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordlite.host import procfs
from koordlite.lab import Sandbox
from koordlite.lab.cgroups.trees import Group
from koordlite.model.wire import objects

MakePod = Callable[..., objects.PodObject]
GiB = 2**30
MiB = 2**20
ROOT = "/sys/fs/cgroup"


def group(sandbox: Sandbox, name: str) -> Group:
    found = sandbox.cgroups.memory.find(sandbox.kubelet.running[f"uid-{name}"].workloads[0].group)
    assert found is not None
    return found


def write(sandbox: Sandbox, name: str, file: str, value: object) -> None:
    sandbox.files.write(f"{ROOT}/{group(sandbox, name).path}/{file}", str(value).encode())


def restarts(sandbox: Sandbox, pod: objects.PodObject) -> int:
    (reported,) = sandbox.reported([pod])
    return (reported.status.container_statuses or ())[0].restart_count


def stalled(sandbox: Sandbox, path: str) -> int:
    """µs with a process waiting for memory."""
    return int(sandbox.files.read(path).splitlines()[0].rpartition(b"=")[2])


def test_memory_follows_its_annotation_over_time(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="1", memory="steps(0:1Gi,5:3Gi,10:2Gi)")])
    seen = []
    for _ in range(3):
        v2.advance(4.9)
        seen.append(group(v2, "a").anon)
    assert seen == pytest.approx([GiB, 3 * GiB, 2 * GiB], rel=0.001)
    assert stalled(v2, "/proc/pressure/memory") == 0


def test_memory_can_only_be_filled_so_fast(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="1", memory="greedy")])
    v2.advance(1)
    assert group(v2, "a").anon == pytest.approx(4 * GiB, rel=0.01)


def test_what_is_available_shrinks(v1: Sandbox, make_pod: MakePod) -> None:
    before = procfs.memory(v1.files).available
    v1.sync([make_pod("a", cpu="1", memory="steps(0:1Gi,1:2Gi)")])
    v1.advance(3)
    assert before - procfs.memory(v1.files).available == pytest.approx(2 * GiB, rel=0.001)


def test_a_full_node_takes_page_cache_before_it_kills(v1: Sandbox, make_pod: MakePod) -> None:
    pods = [make_pod(name, cpu="1", memory="3400Mi") for name in "ab"]
    v1.sync(pods)
    v1.advance(1)
    assert [restarts(v1, pod) for pod in pods] == [0, 0]
    assert group(v1, "a").anon == 3400 * MiB
    assert group(v1, "a").cache < 425 * MiB
    assert stalled(v1, "/proc/pressure/memory") > 0


def test_the_oom_killer_takes_best_effort_first(v1: Sandbox, make_pod: MakePod) -> None:
    service = make_pod("ls", requests={"cpu": "1", "memory": "6Gi"}, cpu="1", memory="5Gi")
    batch = make_pod("be", cpu="1", memory="steps(0:1Gi,2:3Gi)")
    v1.sync([service, batch])
    pid = v1.kubelet.running["uid-be"].workloads[0].process.pid
    v1.advance(4)
    assert group(v1, "be").anon == 0
    assert f"{pid}/" not in v1.files.list("/proc")
    assert (restarts(v1, service), restarts(v1, batch)) == (0, 0), "not started again yet"
    v1.advance(9)
    assert restarts(v1, batch) == 1
    assert v1.kubelet.running["uid-be"].workloads[0].process.oom_score_adj == 1000


def test_who_may_never_be_killed_is_not(v1: Sandbox, make_pod: MakePod) -> None:
    pods = [make_pod("a", cpu="1", memory="4Gi"), make_pod("b", cpu="1", memory="steps(0:2Gi,1:3500Mi)")]
    v1.sync(pods)
    v1.files.write(f"/proc/{v1.kubelet.running['uid-a'].workloads[0].process.pid}/oom_score_adj", b"-1000")
    v1.advance(15)
    assert restarts(v1, pods[0]) == 0
    assert restarts(v1, pods[1]) > 0


def test_a_pod_that_is_gone_does_not_come_back(v1: Sandbox, make_pod: MakePod) -> None:
    v1.sync([make_pod("a", cpu="1", memory="steps(0:1Gi,1:9Gi)")])
    v1.advance(3)
    v1.sync([])
    v1.advance(30)
    assert [each.name for each in v1.workloads] == ["system"]


def test_a_limit_kills_in_its_own_group_only(v2: Sandbox, make_pod: MakePod) -> None:
    limited = make_pod("a", limits={"memory": "1Gi"}, cpu="1", memory="steps(0:512Mi,1:2Gi)")
    other = make_pod("b", cpu="1", memory="20Gi")
    v2.sync([limited, other])
    v2.advance(15)
    assert restarts(v2, limited) > 0
    assert restarts(v2, other) == 0
    path = f"{ROOT}/{group(v2, 'a').path}/memory.events"
    assert b"oom_kill 0\n" not in v2.files.read(path)
    assert b"max 0\n" not in v2.files.read(path)


@pytest.mark.parametrize("together", [False, True])
def test_oom_group_lets_a_pod_die_as_one(v2: Sandbox, make_pod: MakePod, together: bool) -> None:
    pod = make_pod("a", containers=2, cpu="1", memory="steps(0:1Gi,1:4Gi)")
    v2.sync([pod])
    running = v2.kubelet.running["uid-a"]
    v2.files.write(f"{ROOT}/{running.group}/memory.max", b"3G")
    v2.files.write(f"{ROOT}/{running.group}/memory.oom.group", b"1" if together else b"0")
    v2.advance(2)
    alive = [each for each in v2.workloads if each.uid == "uid-a"]
    assert len(alive) == (0 if together else 1)


def test_above_high_it_grows_slowly_and_waits(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="1", memory="steps(0:1Gi,1:8Gi)")])
    write(v2, "a", "memory.high", 2 * GiB)
    v2.advance(5)
    assert 2 * GiB - 256 * MiB < group(v2, "a").anon < 2 * GiB + 512 * MiB
    path = f"{ROOT}/{group(v2, 'a').path}"
    assert stalled(v2, f"{path}/memory.pressure") > 1_000_000
    assert b"high 0\n" not in v2.files.read(f"{path}/memory.events")
    assert stalled(v2, f"{ROOT}/{v2.kubelet.layout.burstable}/memory.pressure") == 0


@pytest.mark.parametrize(("file", "spared"), [("memory.min", True), ("memory.low", True), ("", False)])
def test_protected_memory_is_taken_from_others(v2: Sandbox, make_pod: MakePod, file: str, spared: bool) -> None:
    v2.sync([make_pod("a", cpu="1", memory="80Gi"), make_pod("b", cpu="1", memory="80Gi")])
    if file:
        for each in (*list(group(v2, "a").lineage())[:-1],):
            v2.files.write(f"{ROOT}/{each.path}/{file}", b"90G")
    cached = group(v2, "a").cache
    v2.sync([*_sources(v2), make_pod("c", cpu="1", memory="80Gi")])
    v2.advance(1)
    assert (group(v2, "a").cache == cached) is spared
    assert group(v2, "b").cache < cached


def test_min_holds_where_low_gives_way(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod(name, cpu="1", memory="80Gi") for name in "ab"])
    for name, file in (("a", "memory.min"), ("b", "memory.low")):
        for each in list(group(v2, name).lineage())[:-1]:
            v2.files.write(f"{ROOT}/{each.path}/{file}", b"180G" if each.children else b"90G")
    cached = group(v2, "a").cache
    v2.sync([*_sources(v2), make_pod("c", cpu="1", memory="94Gi")])
    v2.advance(1)
    assert group(v2, "a").cache == cached
    assert group(v2, "b").cache < cached
    assert b"low 0\n" not in v2.files.read(f"{ROOT}/{group(v2, 'b').path}/memory.events")


def test_protection_below_an_unprotected_group_protects_nothing(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod(name, cpu="1", memory="80Gi") for name in "ab"])
    write(v2, "a", "memory.min", 90 * GiB)
    cached = group(v2, "a").cache
    v2.sync([*_sources(v2), make_pod("c", cpu="1", memory="80Gi")])
    v2.advance(1)
    assert group(v2, "a").cache < cached


def _sources(sandbox: Sandbox) -> list[objects.PodObject]:
    return [each.source for each in sandbox.kubelet.running.values()]


@settings(max_examples=slices.amount(15, 8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(amounts=st.lists(st.integers(64, 6000), min_size=1, max_size=5), limit=st.integers(100, 4000))
def test_no_group_holds_more_than_there_is(make_pod: MakePod, amounts: list[int], limit: int) -> None:
    sandbox = Sandbox("small")
    sandbox.sync([make_pod(f"p{n}", cpu="1", memory=f"steps(0:64Mi,1:{mib}Mi)") for n, mib in enumerate(amounts)])
    root = sandbox.cgroups.memory.root
    group(sandbox, "p0").memory_limit = limit * MiB
    for _ in range(5):
        sandbox.advance(1)
        assert all(each.anon >= 0 and each.cache >= 0 for each in root.walk())
        assert root.anon_below + root.cache_below <= sandbox.machine.memory
        assert group(sandbox, "p0").anon <= limit * MiB + 500 * MiB
