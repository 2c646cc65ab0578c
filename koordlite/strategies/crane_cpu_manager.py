"""Give containers the CPUs that Crane's annotations promise, and keep all others off those that are exclusive.

Which CPUs these are is decided when the picture is taken (`Snapshot.crane`). Where `cpusetPools` or `cpuSuppress` is
enforced, they keep the other pods off. Under kubelet's static CPU manager policy nothing is placed, as with Crane.
Source: crane-agent `pkg/ensurance/cm/cpumanager`; docs/compatibility.md, "Crane".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

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
    """Decide about the node, and about each active pod whose CPUs are this strategy's business."""
    crane = snapshot.crane
    if crane.why_not:
        yield Decision("crane", "refuse", _WHY_NOT[crane.why_not])
    else:
        sets = {"exclusive": crane.exclusive, "immovable": crane.immovable, "reserved": crane.reserved}
        evidence: dict[str, int | float | str] = {"pods": len(crane.promises), "shared": str(crane.default)}
        evidence |= {name: str(cpus) for name, cpus in sets.items() if cpus}
        yield Decision("crane", "hold", "CraneCPUs", evidence)
    for pod in snapshot.pods:
        place = snapshot.places.get(pod.uid)
        if not pod.active or place is None:
            continue
        promise = crane.promises.get(pod.uid)
        if crane.why_not == "static":
            # What this strategy wrote before kubelet got the static policy goes back.
            groups = place.inside
            changes = tuple(group_files.releases(snapshot, NAME, (SET, MEMS), uid=pod.uid, groups=groups))
            if changes:
                yield Decision(f"pod/{pod.key}", "release", "KubeletPlacesCPUs", {}, changes)
        elif promise:
            yield _promised(snapshot, config, pod, place, promise)
        else:
            yield from _other(snapshot, pod, place)


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
    targets = {group: sets.get(name, shared) for name, group in place.containers.items()}
    targets |= dict.fromkeys(place.sandboxes, shared)
    changes = (*group_files.set_changes(snapshot, targets), *_memory(snapshot, config, place, promise))
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
    shared = _shared(snapshot, pod)
    changes: tuple[CgroupChange, ...] = ()
    if not _placed_elsewhere(snapshot, pod):
        changes = tuple(_set_changes(snapshot, pod, place, shared))
    if why:
        yield Decision(subject, "refuse", "CranePromiseRefused", {"why": why, "cpuset": str(shared)}, changes)
    elif _placed_elsewhere(snapshot, pod) or (_is_placed(snapshot, pod) and not changes):
        return
    elif not shared:
        yield Decision(subject, "hold", "EmptyPool", {"qos": str(pod.qos_class), "reserved": str(crane.reserved)})
    elif excluding:
        evidence = {"cpuset": str(shared), "reserved": str(crane.reserved)}
        yield Decision(subject, "set" if changes else "hold", "ReservedCPUsExcluded", evidence, changes)
    elif crane.exclusive or changes:
        yield Decision(subject, "set" if changes else "hold", "CraneSharedCPUs", {"cpuset": str(shared)}, changes)


def _set_changes(snapshot: Snapshot, pod: Pod, place: PodGroups, shared: CPUSet) -> Iterator[CgroupChange]:
    """The shared CPUs, as far as the pod's group has them; where those are all, what was found comes back.

    A set that was found narrower may be what crane-agent left: it gets the shared CPUs too, as crane-agent would do.
    """
    above = snapshot.cgroups.get(place.group)
    allowed = (above.effective if above else None) or shared
    whole = shared == group_files.pod_cpuset(snapshot)
    for group in place.inside:
        original = group_files.original(snapshot, NAME, group, SET)
        before = original if isinstance(original, CPUSet) else None
        if whole and before is not None and (not before or allowed <= before):
            yield from group_files.releases(snapshot, NAME, (SET,), groups=(group,))
            continue
        cpus = shared
        if _is_placed(snapshot, pod):
            # What the group has, or had before this strategy wrote, without exclusive CPUs.
            present = snapshot.cgroups.get(group)
            current = before if before is not None else present.effective if present else None
            cpus = (current or group_files.pod_cpuset(snapshot)) - snapshot.crane.exclusive
        yield from group_files.set_changes(snapshot, {group: cpus & allowed})


def _shared(snapshot: Snapshot, pod: Pod) -> CPUSet:
    """CPUs of a container that has none of its own."""
    shared = snapshot.crane.default & group_files.pod_cpuset(snapshot)
    return shared - snapshot.crane.reserved if pod.uid in snapshot.crane.excluding else shared


def _placed_elsewhere(snapshot: Snapshot, pod: Pod) -> bool:
    """Tell whether another strategy writes the sets of this pod, which has no CPUs of Crane's."""
    writers = snapshot.crane.placed_by_others
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return "cpuSuppress" in writers
    return "cpusetPools" in writers and (pod.uid not in snapshot.crane.excluding or _is_placed(snapshot, pod))


def _is_placed(snapshot: Snapshot, pod: Pod) -> bool:
    """Tell whether the pod has CPUs by Koordinator's protocol, be it that this agent writes them or another."""
    return bool(pod.resource_status.cpuset or (pod.raw_qos is QoSClass.SYSTEM and snapshot.system_qos.cpuset))


def _memory(snapshot: Snapshot, config: Config, place: PodGroups, promise: CranePromise) -> Iterator[CgroupChange]:
    """Memory nodes as a bit mask; without the setting, what was found comes back."""
    groups = {name: place.containers[name] for name in promise.containers if name in place.containers}
    nodes = {node.id for node in snapshot.topology.nodes if node.memory} & set(promise.nodes)
    if not config.memory_nodes or not nodes:
        yield from group_files.releases(snapshot, NAME, (MEMS,), groups=groups.values())
        return
    mask = sum(1 << node for node in nodes)
    for group in groups.values():
        present = snapshot.cgroups[group].values.get(MEMS) if group in snapshot.cgroups else None
        if present not in (None, mask):
            yield CgroupChange(group, MEMS, mask)
