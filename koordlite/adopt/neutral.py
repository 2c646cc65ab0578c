"""Values of the groups of pods if kubelet alone had written there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import msgspec

from koordlite.formulas.cpu import burst
from koordlite.model.cgroup_fields import MIN_SHARES, CgroupField
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.groups import Cgroup, MemoryCharge
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.numa.koordinator import assignments

UNLIMITED = -1
Values = Mapping[CgroupField, CPUSet | int]
_KERNEL: dict[CgroupField, int] = {
    "cpu.burst": 0,
    "cpu.idle": 0,
    "cpu.bvt_warp_ns": 0,
    "memory.min": 0,
    "memory.low": 0,
    "memory.high": UNLIMITED,
    "memory.wmark_ratio": 0,
    "memory.wmark_scale_factor": 50,
    "memory.wmark_min_adj": 0,
    "memory.priority": 0,
    "memory.use_priority_oom": 0,
    "memory.pagecache_limit.enable": 0,
    "memory.pagecache_limit.size": 0,
    "memory.pagecache_limit.sync": 0,
}
"""What a kernel has where nobody wrote, also Anolis' own fields. `memory.oom.group` is missing: kubelet writes it."""
_BEST_EFFORT: dict[CgroupField, int] = {"cpu.shares": MIN_SHARES, "memory.limit": UNLIMITED}
"""To kubelet a pod with batch resources asks for nothing."""


def by_group(snapshot: Snapshot) -> dict[str, Values]:
    """By group of kubelet, of a pod or of a container: what kubelet or the kernel would have there.
    CPU sets and quotas are left out where kubelet's static CPU manager policy may have written them."""
    layout = snapshot.layout
    levels: dict[str, Values] = {layout.kubepods: _KERNEL, layout.burstable: _KERNEL}
    levels[layout.besteffort] = {**_KERNEL, "cpuset.cpus": whole(snapshot), "cpu.quota": UNLIMITED}
    return levels | dict(_of_pods(snapshot))


def whole(snapshot: Snapshot) -> CPUSet:
    """The set of a group that nobody narrowed: on v2 none, which means the parent's; on v1 that of kubelet's top
    group, which kubelet copies."""
    if snapshot.layout.version == 2:
        return EMPTY
    top = snapshot.cgroups.get(snapshot.layout.kubepods, Cgroup()).cpuset
    return top or CPUSet(cpu.id for cpu in snapshot.topology.cpus)


def picture(snapshot: Snapshot) -> Snapshot:
    """The same machine as kubelet alone would have it: with the values of `by_group`, and nothing of ours.
    Its groups use no memory, so that no limit waits for what a container uses today."""
    expected, top = by_group(snapshot), snapshot.cgroups.get(snapshot.layout.kubepods, Cgroup())
    cgroups = {
        group: _with(cgroup, expected.get(group, {}), top.effective) for group, cgroup in snapshot.cgroups.items()
    }
    unused = dict.fromkeys(cgroups, MemoryCharge(total=0, file_cache=0))
    return dataclasses.replace(
        snapshot, cgroups=cgroups, ours=frozenset(), found={}, remembered={}, refused_writes={}, memory_held=unused
    )


def present(cgroup: Cgroup) -> dict[CgroupField, CPUSet | int]:
    """All that the picture shows of a group."""
    numbers: dict[CgroupField, CPUSet | int] = {}
    for field, value in cgroup.values.items():
        numbers[field] = value  # type: ignore[index]
    if cgroup.cpuset is not None:
        numbers["cpuset.cpus"] = cgroup.cpuset
    if cgroup.quota_us is not None:
        numbers["cpu.quota"] = cgroup.quota_us
    return numbers


def _of_pods(snapshot: Snapshot) -> Iterator[tuple[str, Values]]:
    for pod in snapshot.pods:
        place = snapshot.places.get(pod.uid)
        if place is None:
            continue
        of_kind = _BEST_EFFORT if pod.kube_qos is KubeQoS.BEST_EFFORT else {}
        common: dict[CgroupField, CPUSet | int] = {**_KERNEL, **of_kind}
        # Under its static policy kubelet writes the set of every container itself, and again every ten seconds.
        if snapshot.kubelet.cpu_manager_policy != "static" or pod.kube_qos is KubeQoS.BEST_EFFORT:
            common["cpuset.cpus"] = whole(snapshot)
        yield place.group, {**common, **_quota(snapshot, pod, assignments.cpu_limit_milli(pod) or 0)}
        limits = {each.name: each.limits["cpu"].milli for each in pod.containers if "cpu" in each.limits}
        for name, group in place.containers.items():
            yield group, {**common, **_quota(snapshot, pod, limits.get(name, 0))}
        yield from ((group, common) for group in place.sandboxes)


def _quota(snapshot: Snapshot, pod: Pod, limit_milli: int) -> Values:
    """Kubelet itself lifts the quota of pods to which it gave CPUs alone."""
    if any(cpus.uid == pod.uid for cpus in snapshot.kubelet.pod_cpus):
        return {}
    return {"cpu.quota": burst.base_quota(limit_milli=limit_milli)}


def _with(cgroup: Cgroup, expected: Values, inherited: CPUSet | None) -> Cgroup:
    """Only what the machine has is replaced. `inherited` are the CPUs of a group without a set of its own."""
    numbers = {field: expected.get(field, value) for field, value in cgroup.values.items()}  # type: ignore[call-overload]
    values = {field: value for field, value in numbers.items() if isinstance(value, int)}
    adapted = msgspec.structs.replace(cgroup, values=values)
    quota, cpus = expected.get("cpu.quota"), expected.get("cpuset.cpus")
    if cgroup.quota_us is not None and isinstance(quota, int):
        adapted = msgspec.structs.replace(adapted, quota_us=quota)
    if cgroup.cpuset is not None and isinstance(cpus, CPUSet):
        adapted = msgspec.structs.replace(adapted, cpuset=cpus, effective=cpus or inherited)
    return adapted
