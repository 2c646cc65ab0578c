"""Give containers the CPUs that Crane's annotations promise, and keep all others off those that are exclusive.

Which CPUs these are is decided when the picture is taken (`Snapshot.crane`). Where `cpusetPools` or `cpuSuppress` is
enforced, they keep the other pods off. Under kubelet's static CPU manager policy nothing is placed, as with Crane.
Source: crane-agent `pkg/ensurance/cm/cpumanager`; docs/compatibility.md, "Crane".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.changes import cgroup as cgroup_kind
from koordlite.changes.cgroup import CgroupChange
from koordlite.model import cpuset
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.crane import CranePromise
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.crane import CPUPolicy
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Mode, StrategySettings
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import group_files

NAME = "craneCPUManager"
SET: CgroupField = "cpuset.cpus"
MEMS: CgroupField = "cpuset.mems"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `craneCPUManager`. What is promised stands in the pods."""

    mode: Mode = "off"
    """off: not judged at all. observe: judged and reported, nothing is written. enforce: judged, reported, written."""
    default_cpu_policy: CPUPolicy = "exclusive"
    """The policy of a pod that does not say: none, exclusive, numa or immovable. Crane's --default-cpu-policy."""
    memory_nodes: bool = False
    """Containers with promised CPUs take memory from the NUMA nodes of these CPUs only. Crane leaves memory alone."""


def pod_reads(_slo: SLO, pods: Sequence[Pod]) -> dict[str, tuple[str, ...]]:
    """Files that say where pods with a topology result take memory from."""
    return {pod.uid: (MEMS,) for pod in pods if pod.crane.zones}


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for the node, one for each active pod whose CPUs are this strategy's business."""
    yield _node(snapshot)
    for pod in snapshot.pods:
        place = snapshot.places.get(pod.uid)
        if not pod.active or place is None:
            continue
        promise = snapshot.crane.promises.get(pod.uid)
        if snapshot.crane.why_not == "static":
            yield from _left_to_kubelet(snapshot, pod, place)
        elif promise:
            yield _promised(snapshot, config, pod, place, promise)
        else:
            yield from _other(snapshot, pod, place)


def _node(snapshot: Snapshot) -> Decision:
    crane = snapshot.crane
    if crane.why_not:
        return Decision("crane", "refuse", _WHY_NOT[crane.why_not])
    sets = {"exclusive": crane.exclusive, "immovable": crane.immovable, "reserved": crane.reserved}
    evidence: dict[str, int | float | str] = {"pods": len(crane.promises), "shared": str(crane.default)}
    evidence |= {name: str(cpus) for name, cpus in sets.items() if cpus}
    return Decision("crane", "hold", "CraneCPUs", evidence)


_WHY_NOT = {"static": "KubeletPlacesCPUs", "unknown": "KubeletPolicyUnknown"}


def _promised(snapshot: Snapshot, config: Config, pod: Pod, place: PodGroups, promise: CranePromise) -> Decision:
    kept_off = snapshot.crane.reserved if pod.uid in snapshot.crane.excluding else cpuset.EMPTY
    usable = group_files.pod_cpuset(snapshot) - kept_off
    sets = {name: cpus & usable for name, cpus in promise.containers.items()}
    evidence: dict[str, int | float | str] = {
        "policy": promise.policy,
        "numa_nodes": ", ".join(map(str, promise.nodes)),
        "cpuset": str(cpuset.union(sets.values())),
    }
    if len(sets) > 1:
        evidence["containers"] = "; ".join(f"{name}: {cpus}" for name, cpus in sets.items())
    absent = promise.cpus - usable
    if absent:
        evidence["absent"] = str(absent)
    empty = [name for name, cpus in sets.items() if not cpus]
    shared = _shared(snapshot, pod)
    wanted = {group: sets.get(name, shared) for name, group in place.containers.items()}
    wanted |= dict.fromkeys(place.sandboxes, shared)
    changes = (*_sets(snapshot, wanted), *_memory(snapshot, config, place, promise))
    if empty:
        return Decision(f"pod/{pod.key}", "refuse", "CraneCPUsNotOnline", {**evidence, "container": empty[0]}, changes)
    away = promise.policy == "numa" and not snapshot.topology.numa_of(promise.cpus) <= set(promise.nodes)
    reason = "NoSharedCPUOnNUMANode" if away else "CranePromise"
    return Decision(f"pod/{pod.key}", "set" if changes else "hold", reason, evidence, changes)


def _other(snapshot: Snapshot, pod: Pod, place: PodGroups) -> Iterator[Decision]:
    """A pod without promised CPUs: off the exclusive ones, and off the reserved ones where it asks for that."""
    crane, subject = snapshot.crane, f"pod/{pod.key}"
    why = crane.refused.get(pod.uid, "")
    excluding = pod.uid in crane.excluding
    wanted = _shared(snapshot, pod)
    changes: tuple[CgroupChange, ...] = ()
    if not _placed_elsewhere(snapshot, pod):
        changes = tuple(_kept_off(snapshot, pod, place, wanted))
    if why:
        yield Decision(subject, "refuse", "CranePromiseRefused", {"why": why, "cpuset": str(wanted)}, changes)
    elif _placed_elsewhere(snapshot, pod) or (_is_placed(snapshot, pod) and not changes):
        return
    elif not wanted:
        yield Decision(subject, "hold", "EmptyPool", {"qos": str(pod.qos_class), "reserved": str(crane.reserved)})
    elif excluding:
        evidence = {"cpuset": str(wanted), "reserved": str(crane.reserved)}
        yield Decision(subject, "set" if changes else "hold", "ReservedCPUsExcluded", evidence, changes)
    elif crane.exclusive or changes:
        yield Decision(subject, "set" if changes else "hold", "CraneSharedCPUs", {"cpuset": str(wanted)}, changes)


def _kept_off(snapshot: Snapshot, pod: Pod, place: PodGroups, wanted: CPUSet) -> Iterator[CgroupChange]:
    """The shared CPUs, as far as the pod's group has them; where those are all, what was found comes back.

    A set that was found narrower may be what crane-agent left: it gets the shared CPUs too, as crane-agent would do.
    """
    above = snapshot.cgroups.get(place.group)
    allowed = (above.effective if above else None) or wanted
    whole = wanted == group_files.pod_cpuset(snapshot)
    for group in (*place.containers.values(), *place.sandboxes):
        found = _found(snapshot, group, SET)
        if whole and found is not None and (not found or allowed <= found):
            yield from _given_back(snapshot, (group,), SET)
        else:
            cpus = _beside_exclusive(snapshot, group) if _is_placed(snapshot, pod) else wanted
            yield from _sets(snapshot, {group: cpus & allowed})


def _found(snapshot: Snapshot, group: str, field: CgroupField) -> CPUSet | None:
    """The set that stood there before this strategy's first write; None where it has not written."""
    found = snapshot.found.get(cgroup_kind.PLACE.place(group, field))
    ours = found is not None and found.strategy == NAME
    return found.value if ours and found is not None and isinstance(found.value, CPUSet) else None


def _shared(snapshot: Snapshot, pod: Pod) -> CPUSet:
    """CPUs of a container that has none of its own."""
    shared = snapshot.crane.default & group_files.pod_cpuset(snapshot)
    return shared - snapshot.crane.reserved if pod.uid in snapshot.crane.excluding else shared


def _placed_elsewhere(snapshot: Snapshot, pod: Pod) -> bool:
    """Tell whether another strategy writes the sets of this pod, which has no CPUs of Crane's."""
    others = snapshot.crane.placed_by_others
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return "cpuSuppress" in others
    return "cpusetPools" in others and (pod.uid not in snapshot.crane.excluding or _is_placed(snapshot, pod))


def _is_placed(snapshot: Snapshot, pod: Pod) -> bool:
    """Tell whether the pod has CPUs by Koordinator's protocol, be it that this agent writes them or another."""
    return bool(pod.resource_status.cpuset or (pod.raw_qos is QoSClass.SYSTEM and snapshot.system_qos.cpuset))


def _beside_exclusive(snapshot: Snapshot, group: str) -> CPUSet:
    """CPUs that a group has, or had before this strategy wrote, without exclusive CPUs."""
    cgroup, found = snapshot.cgroups.get(group), _found(snapshot, group, SET)
    held = found if found is not None else cgroup.effective if cgroup else None
    return (held or group_files.pod_cpuset(snapshot)) - snapshot.crane.exclusive


def _sets(snapshot: Snapshot, wanted: Mapping[str, CPUSet]) -> Iterator[CgroupChange]:
    for group, cpus in wanted.items():
        cgroup = snapshot.cgroups.get(group)
        if not cpus or cgroup is None or cgroup.cpuset in (None, cpus):
            continue
        inherits = snapshot.layout.version == 2 and not cgroup.cpuset and cgroup.effective
        if not (inherits and inherits <= cpus):
            yield CgroupChange(group, SET, cpus)


def _memory(snapshot: Snapshot, config: Config, place: PodGroups, promise: CranePromise) -> Iterator[CgroupChange]:
    """Memory nodes as a bit mask; without the setting, what was found comes back."""
    groups = {name: place.containers[name] for name in promise.containers if name in place.containers}
    nodes = {node.id for node in snapshot.topology.nodes if node.memory} & set(promise.nodes)
    if not config.memory_nodes or not nodes:
        yield from _given_back(snapshot, groups.values(), MEMS)
        return
    mask = sum(1 << node for node in nodes)
    for group in groups.values():
        present = snapshot.cgroups[group].values.get(MEMS) if group in snapshot.cgroups else None
        if present not in (None, mask):
            yield CgroupChange(group, MEMS, mask)


def _left_to_kubelet(snapshot: Snapshot, pod: Pod, place: PodGroups) -> Iterator[Decision]:
    """Give back what this strategy wrote before kubelet got the static policy, without what kubelet gave to others."""
    groups = (*place.containers.values(), *place.sandboxes)
    others = cpuset.union(held.cpus for held in snapshot.kubelet.pod_cpus if held.uid != pod.uid)
    changes = tuple(
        msgspec.structs.replace(change, value=change.value - others) if isinstance(change.value, CPUSet) else change
        for change in (*_given_back(snapshot, groups, SET), *_given_back(snapshot, groups, MEMS))
    )
    if changes:
        yield Decision(f"pod/{pod.key}", "release", "KubeletPlacesCPUs", {}, changes)


def _given_back(snapshot: Snapshot, groups: Iterable[str], field: CgroupField) -> Iterator[CgroupChange]:
    """Value found before this strategy's first write."""
    for group in groups:
        found = snapshot.found.get(cgroup_kind.PLACE.place(group, field))
        if found is not None and found.strategy == NAME and group in snapshot.cgroups:
            yield CgroupChange(group, field, found.value, gives_back=True)
