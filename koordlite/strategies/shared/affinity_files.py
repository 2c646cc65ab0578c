"""Files that `numaAffinity` writes in the groups of the pods it has placed, and what it gives back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from koordlite.changes import cgroup as cgroup_kind
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas.topology import affinity as rules
from koordlite.model import cpuset
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared.affinity import NAME, Config

CPUS: CgroupField = "cpuset.cpus"
MEMS: CgroupField = "cpuset.mems"


def sets(snapshot: Snapshot, wanted: Mapping[str, CPUSet]) -> Iterator[CgroupChange]:
    """The CPUs of each group in `wanted` that has others."""
    for group, cpus in wanted.items():
        present = snapshot.cgroups.get(group)
        if cpus and present is not None and present.cpuset not in (None, cpus):
            yield CgroupChange(group, CPUS, cpus)


def mems(snapshot: Snapshot, uid: str, node: int) -> Iterator[CgroupChange]:
    """Memory of that NUMA node alone for each container of the pod."""
    for group in snapshot.places[uid].containers.values():
        present = snapshot.cgroups.get(group)
        if present is not None and present.values.get(MEMS) not in (None, 1 << node):
            yield CgroupChange(group, MEMS, 1 << node)


def given_back(
    snapshot: Snapshot, staying: Mapping[str, Collection[CgroupField]]
) -> Mapping[str, tuple[CgroupChange, ...]]:
    """By uid: what was found comes back where this strategy wrote, but for the fields in `staying` of a pod. Under
    kubelet's static policy without the CPUs that it has given to other pods since."""
    owner = {group: uid for uid, place in snapshot.places.items() for group in place.all}
    back: dict[str, list[CgroupChange]] = defaultdict(list)
    for place, found in snapshot.found.items():
        if found.strategy != NAME or place.kind is not cgroup_kind.PLACE:
            continue
        group, field = place.part("cgroup"), place.part("field")
        uid = owner.get(group)
        if uid is None or group not in snapshot.cgroups or field in staying.get(uid, ()):
            continue
        value = found.value
        if isinstance(value, CPUSet):
            value = value - cpuset.union(held.cpus for held in snapshot.kubelet.pod_cpus if held.uid != uid) or value
            back[uid].append(CgroupChange(group, CPUS, value, gives_back=True))
        else:
            back[uid].append(CgroupChange(group, MEMS, value, gives_back=True))
    return {uid: tuple(changes) for uid, changes in back.items()}


def memory_stays(
    snapshot: Snapshot, pods: Mapping[str, Pod], placed: Mapping[str, int], config: Config
) -> dict[str, str]:
    """Reason why the memory of a placed pod does not follow it, by uid; empty for those whose memory does.

    It follows where every container has a limit, and as much is free on the NUMA node: when a group may use one node
    only and that is full, the kernel ends its processes although others have memory.
    """
    stays: dict[str, str] = {}
    used = snapshot.numa_memory.get("", {})
    for node in snapshot.topology.nodes:
        limits: dict[str, int] = {}
        for uid in (uid for uid, at in placed.items() if at == node.id):
            allowance = limit(pods[uid], "memory")
            stays[uid] = _why(
                snapshot, pods[uid], node.id, config, limited=allowance is not None, known=node.id in used
            )
            if not stays[uid] and allowance is not None:
                limits[uid] = allowance
        free, reserve = node.memory - used.get(node.id, 0), int(node.memory * config.memory_reserve_percent / 100)
        # What they have is part of what they may have: while all of it would fit once more, nobody has to look.
        if sum(limits.values()) > free - reserve:
            fits = rules.memory_fits(_growth(snapshot, limits), free=free, reserve=reserve)
            stays |= {uid: "less than its limit is free there" for uid in limits if uid not in fits}
    return stays


def _growth(snapshot: Snapshot, limits: Mapping[str, int]) -> list[tuple[str, int, bool]]:
    """By uid what it may still take there, and whether its memory follows already."""
    found = []
    for uid, allowance in limits.items():
        use, already = snapshot.usage.pods.get(uid), _has_ours(snapshot, uid)
        found.append((uid, max(0, allowance - use.memory) if already and use else allowance, already))
    return found


def limit(pod: Pod, resource: str) -> int | None:
    """Amount that all containers together may use (millicores of cpu, bytes of memory); None when one of them has no
    limit."""
    found: Sequence[int | None] = [
        (each.limits[resource].milli if resource == "cpu" else each.limits[resource].value)
        if resource in each.limits
        else None
        for each in pod.containers
        if not each.one_shot
    ]
    return None if None in found or not found else sum(each for each in found if each is not None)


def _why(snapshot: Snapshot, pod: Pod, node: int, config: Config, *, limited: bool, known: bool) -> str:
    if not config.memory_nodes:
        return "memoryNodes is false"
    if not limited:
        return "a container has no memory limit"
    if any((pod.uid, container.name) in snapshot.kubelet.memory_nodes for container in pod.containers):
        return "kubelet's memory manager chose its memory"
    if not known:
        return "the use of memory by NUMA node is not known"
    if any(not _may_take(snapshot, group, node) for group in snapshot.places[pod.uid].containers.values()):
        return "a container may not take memory there"
    return ""


def _has_ours(snapshot: Snapshot, uid: str) -> bool:
    groups = snapshot.places[uid].containers.values()
    return any(cgroup_kind.PLACE.place(group, MEMS) in snapshot.found for group in groups)


def _may_take(snapshot: Snapshot, group: str, node: int) -> bool:
    """Tell whether the group might take memory there before this strategy wrote; 0 is all that the group above has."""
    found = snapshot.found.get(cgroup_kind.PLACE.place(group, MEMS))
    present = snapshot.cgroups.get(group)
    mask = found.value if found is not None else present.values.get(MEMS) if present else None
    return isinstance(mask, int) and (mask == 0 or bool(mask >> node & 1))
