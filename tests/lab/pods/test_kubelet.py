"""The emulated kubelet leaves cgroups as the real one does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.lab import Sandbox, shapes
from koordlite.lab.pods import pod_spec
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.kubelet import Kubelet as KubeletState
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.wire import objects

MakePod = Callable[..., objects.PodObject]


@pytest.mark.parametrize("shape", shapes())
def test_groups_are_where_the_host_code_looks_for_them(shape: str, make_pod: MakePod) -> None:
    sandbox = Sandbox(shape)
    sandbox.sync([make_pod("a"), make_pod("b", requests={"cpu": "1"})])
    cgroups = Cgroups.detect(sandbox.files)
    assert cgroups.layout == sandbox.kubelet.layout
    for name, qos in (("a", KubeQoS.BEST_EFFORT), ("b", KubeQoS.BURSTABLE)):
        pod_group = cgroups.pod_group(f"uid-{name}", qos)
        group = cgroups.container_group(pod_group, pod_spec.container_id(f"uid-{name}", "c0"))
        assert group is not None
        assert len(cgroups.threads(group)) >= 4
        assert len(cgroups.children(pod_group)) == 2, "the container and the pause container"


def test_shares_and_quotas_follow_requests_and_limits(v1: Sandbox, make_pod: MakePod) -> None:
    v1.sync(
        [
            make_pod("lim", containers=2, requests={"cpu": "500m"}, limits={"cpu": "1500m"}),
            make_pod("req", requests={"cpu": "250m"}),
            make_pod("be", requests={"kubernetes.io/batch-cpu": "4000"}, limits={"kubernetes.io/batch-cpu": "4000"}),
        ]
    )

    def file(group: str, name: str) -> int:
        return int(v1.files.read(f"/sys/fs/cgroup/cpu/kubepods/{group}/{name}"))

    assert file("burstable/poduid-lim", "cpu.cfs_quota_us") == 300_000
    assert file("burstable/poduid-lim", "cpu.shares") == 1024
    assert file("burstable/poduid-req", "cpu.cfs_quota_us") == -1
    assert file("burstable", "cpu.shares") == 1280
    assert file("besteffort", "cpu.shares") == 2
    assert file("besteffort/poduid-be", "cpu.cfs_quota_us") == -1, "kubelet ignores batch resources"


def test_on_v2_containers_inherit_their_cpus(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a")])
    state = Cgroups.detect(v2.files).state(v2.kubelet.running["uid-a"].workloads[0].group)
    assert (state.cpuset, state.effective) == (CPUSet(), v2.machine.cpuset)


def test_on_v1_a_new_container_starts_inside_its_parents_cpus(v1: Sandbox, make_pod: MakePod) -> None:
    v1.files.write("/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus", b"0-1")
    v1.sync([make_pod("late")])
    state = Cgroups.detect(v1.files).state(v1.kubelet.running["uid-late"].workloads[0].group)
    assert state.cpuset == CPUSet([0, 1])


STATIC_NODE = objects.NodeObject(
    metadata=objects.ObjectMeta(annotations={"sandbox.koordlite.io/cpu-manager-policy": "static"})
)


def test_on_v1_a_container_does_not_start_where_kubelets_own_set_is_refused(v1: Sandbox, make_pod: MakePod) -> None:
    besteffort = "/sys/fs/cgroup/cpuset/kubepods/besteffort"
    v1.files.write(f"{besteffort}/cpuset.cpus", b"1-3")
    late = make_pod("late")
    v1.sync([late], STATIC_NODE)
    (reported,) = v1.reported([late])
    (status,) = reported.status.container_statuses or ()
    assert reported.status.phase == "Pending"
    waiting = (status.state or {})["waiting"]
    assert waiting["reason"] == "RunContainerError"
    assert waiting["message"].startswith('failed to write "0-3"')
    assert waiting["message"].endswith("cpuset.cpus: permission denied")

    v1.files.write(f"{besteffort}/cpuset.cpus", b"0-3")
    v1.files.write(f"{besteffort}/poduid-late/cpuset.cpus", b"0-3")
    v1.advance(11)
    (reported,) = v1.reported([late])
    group = v1.kubelet.running["uid-late"].workloads[0].group
    assert reported.status.phase == "Running"
    assert Cgroups.detect(v1.files).state(group).cpuset == CPUSet.parse("0-3")


def test_on_v2_kubelets_own_set_is_taken_whatever_the_parent_has(v2: Sandbox, make_pod: MakePod) -> None:
    v2.files.write("/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpuset.cpus", b"1-3")
    v2.sync([make_pod("late")], STATIC_NODE)
    state = Cgroups.detect(v2.files).state(v2.kubelet.running["uid-late"].workloads[0].group)
    assert (state.cpuset, state.effective) == (v2.machine.cpuset, CPUSet.parse("1-3"))


def test_a_cpu_manager_policy_that_does_not_exist_is_named(v1: Sandbox) -> None:
    (problem,) = v1.sync(
        [],
        objects.NodeObject(
            metadata=objects.ObjectMeta(annotations={"sandbox.koordlite.io/cpu-manager-policy": "dynamic"})
        ),
    )
    assert (problem.value, problem.why) == ("dynamic", "must be static or none")


@pytest.mark.parametrize("shape", ["small", "intel-2s-ht"])
def test_the_cpus_of_a_container_are_kept_from_all_other_pods(shape: str, make_pod: MakePod) -> None:
    sandbox, amounts = Sandbox(shape), {"cpu": "2", "memory": "1Gi"}
    sandbox.sync([make_pod("pinned", requests=amounts, limits=amounts), make_pod("other")], STATIC_NODE)
    cgroups, running = Cgroups.detect(sandbox.files), sandbox.kubelet.running
    core = CPUSet([0, len(sandbox.machine.cpus) // 2])
    assert cgroups.state(running["uid-pinned"].workloads[0].group).cpuset == core
    assert cgroups.state(running["uid-other"].workloads[0].group).cpuset == sandbox.machine.cpuset - core
    state = json.loads(sandbox.files.read("/var/lib/kubelet/cpu_manager_state"))
    assert state["entries"] == {"uid-pinned": {"c0": str(core)}}
    seen = sandbox.kubelet_state(KubeletState())
    assert (seen.cpu_manager_policy, seen.pod_cpus[0].cpus) == ("static", core)


def test_without_static_cpus_the_checkpoint_says_none(v2: Sandbox) -> None:
    state = json.loads(v2.files.read("/var/lib/kubelet/cpu_manager_state"))
    assert (state["policyName"], "entries" in state) == ("none", False)
    assert v2.kubelet_state(KubeletState(cpu_manager_policy="x")).cpu_manager_policy == "x"


def test_a_deleted_pod_leaves_nothing(v2: Sandbox, make_pod: MakePod) -> None:
    before = set(v2.files.paths("/sys/fs/cgroup"))
    v2.sync([make_pod("a")])
    pid = v2.kubelet.running["uid-a"].workloads[0].process.pid
    assert v2.files.read(f"/proc/{pid}/comm") == b"c0\n"
    v2.sync([])
    assert set(v2.files.paths("/sys/fs/cgroup")) == before
    with pytest.raises(FileNotFoundError):
        v2.files.read(f"/proc/{pid}/comm")


def test_a_finished_pod_is_stopped(v2: Sandbox, make_pod: MakePod) -> None:
    pod = make_pod("a")
    v2.sync([pod])
    v2.sync([objects.PodObject(metadata=pod.metadata, spec=pod.spec, status=objects.PodStatus(phase="Succeeded"))])
    assert not v2.kubelet.running


def test_a_changed_annotation_takes_effect_without_a_restart(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="1")])
    v2.advance(1)
    before = v2.stats("uid-a").used_us
    v2.sync([make_pod("a", cpu="3", requests={"cpu": "1"}, limits={"cpu": "2"})])
    v2.advance(1)
    assert v2.stats("uid-a").used_us - before == 2_000_000, "resized in place: the quota of the new limit holds"


def test_what_an_annotation_gets_wrong_is_reported_until_it_is_fixed(v2: Sandbox, make_pod: MakePod) -> None:
    bad = make_pod("bad", cpu="lots")
    (problem,) = v2.sync([bad])
    assert "sandbox.koordlite.io/cpu" in str(problem)
    assert "pod/d/bad" in str(problem)
    assert v2.sync([bad, make_pod("good", cpu="1")]) == (problem,)
    assert v2.sync([make_pod("good", cpu="1")]) == ()


def test_reported_pods_have_ids_and_keep_their_identity(v2: Sandbox, make_pod: MakePod) -> None:
    pods = [make_pod("a", requests={"cpu": "1"})]
    v2.sync(pods)
    (first,) = v2.reported(pods)
    assert (first.status.phase, first.status.qos_class) == ("Running", "Burstable")
    statuses = first.status.container_statuses or ()
    assert [status.container_id for status in statuses] == [pod_spec.container_id("uid-a", "c0")]
    assert v2.reported(pods)[0] is first


def test_a_vanished_group_takes_its_processes_with_it(v2: Sandbox, make_pod: MakePod) -> None:
    pods = [make_pod("a", cpu="1"), make_pod("b", cpu="1")]
    v2.sync(pods)
    v2.advance(1)
    group = v2.kubelet.running["uid-a"].group
    v2.vanish(group)
    v2.advance(1)
    with pytest.raises(FileNotFoundError):
        v2.files.read(f"/sys/fs/cgroup/{group}/cpu.stat")
    assert {"d/a/c0", "d/b/c0"} & {each.name for each in v2.workloads} == {"d/b/c0"}
    v2.sync([make_pod("a", cpu="2"), pods[1]])
    v2.sync([pods[1]])
