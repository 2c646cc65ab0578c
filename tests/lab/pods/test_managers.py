"""The emulated kubelet under the static policy: it admits, gives CPUs and refuses as a real one does."""

from __future__ import annotations

import json
from collections.abc import Callable

from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.lab import Sandbox
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.kubelet import Kubelet as KubeletState
from koordlite.model.wire import objects

MakePod = Callable[..., objects.PodObject]
SINGLE = {"topology-manager-policy": "single-numa-node", "topology-manager-scope": "pod"}


def node(reserved: int = 0, **annotations: str) -> objects.NodeObject:
    """A node of 32 CPUs under the static policy, of which some are reserved."""
    notes = {"sandbox.koordlite.io/cpu-manager-policy": "static"}
    notes |= {f"sandbox.koordlite.io/{key}": value for key, value in annotations.items()}
    status = objects.NodeStatus(capacity={"cpu": "32"}, allocatable={"cpu": str(32 - reserved)})
    return objects.NodeObject(metadata=objects.ObjectMeta(name="n", annotations=notes), status=status)


def guaranteed(make_pod: MakePod, name: str, cpu: str, **more: int) -> objects.PodObject:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return make_pod(name, requests=amounts, limits=amounts, **more)


def cpus_of(sandbox: Sandbox, name: str, workload: int = 0) -> CPUSet:
    group = sandbox.kubelet.running[f"uid-{name}"].workloads[workload].group
    return Cgroups.detect(sandbox.files).state(group).cpuset


def test_guaranteed_pods_with_whole_cpus_get_whole_cores_and_all_others_the_rest(
    v2: Sandbox, make_pod: MakePod
) -> None:
    pods = [guaranteed(make_pod, "own", "2", containers=2), guaranteed(make_pod, "part", "1500m"), make_pod("other")]
    v2.sync(pods, node(reserved=2))
    assert [str(cpus_of(v2, "own", each)) for each in (0, 1)] == ["1,17", "2,18"]
    shared = v2.machine.cpuset - CPUSet.parse("1-2,17-18")
    assert cpus_of(v2, "part") == cpus_of(v2, "other") == shared
    state = json.loads(v2.files.read("/var/lib/kubelet/cpu_manager_state"))
    assert state["entries"] == {"uid-own": {"c0": "1,17", "c1": "2,18"}}
    assert state["defaultCpuSet"] == str(shared)
    seen = v2.kubelet_state(KubeletState())
    assert (seen.cpu_manager_policy, seen.reserved_cpus) == ("static", CPUSet.parse("0,16"))
    v2.sync(pods[1:], node(reserved=2))
    assert cpus_of(v2, "other") == v2.machine.cpuset


def test_a_pod_that_fits_on_no_numa_node_fails_and_leaves_no_trace(v2: Sandbox, make_pod: MakePod) -> None:
    fits, refused = guaranteed(make_pod, "fits", "10"), guaranteed(make_pod, "wide", "6", containers=3)
    v2.sync([fits, refused], node(**SINGLE))
    assert sorted(v2.kubelet.running) == ["uid-fits"]
    _, reported = v2.reported([fits, refused])
    assert (reported.status.phase, reported.status.reason) == ("Failed", "TopologyAffinityError")
    assert reported.status.message == "Resources cannot be allocated with Topology locality"
    v2.sync([refused], node(**SINGLE))
    assert v2.reported([refused])[0].status.phase == "Failed", "kubelet never tries again"


def test_kubelet_admits_every_pod_again_when_it_restarts_with_another_policy(v2: Sandbox, make_pod: MakePod) -> None:
    wide = guaranteed(make_pod, "wide", "6", containers=3)
    v2.sync([wide], node())
    assert len(cpus_of(v2, "wide", 0)) == 6
    v2.sync([wide], node(**SINGLE))
    assert not v2.kubelet.running
    v2.sync([wide])
    assert not cpus_of(v2, "wide"), "under policy none it has no set of its own"


def test_words_that_kubelet_does_not_know_are_named(v2: Sandbox) -> None:
    (problem,) = v2.sync([], node(**{"topology-manager-policy": "strict"}))
    assert problem.why == "must be none, best-effort, restricted or single-numa-node"
