"""Share of L3 cache and memory bandwidth by QoS class and by pod, through control groups of resctrl.

Classes LSR, LS and BE get the part that their `resctrlQOS` says, pods the part that annotation
`node.koordinator.sh/resctrl` asks for. A group is made when it is needed, and given back when that ends. Rules:
Koordinator's strategy `ResctrlReconcile` and its runtime hook `resctrl`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from koordlite.changes import resctrl
from koordlite.changes.resctrl import ResctrlGroupChange, ResctrlMountChange, ResctrlReturn, SchemataChange, TasksChange
from koordlite.formulas import ceilings
from koordlite.model import keys
from koordlite.model.change import Change
from koordlite.model.decision import Decision, Lacking
from koordlite.model.pod import resctrl_protocol as protocol
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.slo.qos import ResctrlQOS
from koordlite.model.slo.settings import RESCTRL_CLASSES
from koordlite.model.snapshot import Snapshot
from koordlite.resctrl import schemata, shares
from koordlite.resctrl.shares import Allocation, Shares
from koordlite.resctrl.values import MON_GROUPS

_PLACE = "resctrl/"
NEW_CONTAINERS = "theirs"
"""Such a round only asks to which group a new container belongs; groups are made and given back by ticks."""
OVERVIEW = ("cache and bandwidth", "resctrl")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `resctrl`. Percentages come from the ConfigMap key `resource-qos-config` and from pods."""

    require: Literal["off", "automatic", "required"] = "automatic"
    """off: nothing is divided, and what was goes back. automatic: used where the machine has it. required: the agent
    is degraded on a machine without it."""
    mount: Literal["never", "ifAbsent"] = "ifAbsent"
    """Mount resctrl where it is not mounted. The agent does so only to enforce, only when a class or a pod asks for a
    share, and unmounts it when everything is put back."""
    pods: bool = True
    """Let pods ask for a group of their own. Hardware has few: classes come first."""
    pods_beyond_class: bool = False
    """Let pods ask for more than the range of their class, or for nothing at all and so leave their class, as in
    Koordinator. Pods in the besteffort cgroup are of class BE here, whatever their label says."""
    groups_per_namespace: int = bounded(4, ge=0, le=1000)
    """Maximum number of groups for the pods of one namespace, so that none takes all that the hardware has."""
    monitor_pods: bool = False
    """Give pods of a class a monitoring group each, so that their cache and bandwidth are measured."""
    monitor_seconds: float = bounded(10.0, ge=0, le=3600)
    """Time between two readings of cache occupancy and bandwidth counters; 0 reads none. Koordinator's is 10 s too."""
    l3_bandwidth_mbps: int = bounded(0, ge=0, le=10_000_000)
    """Memory bandwidth in MB/s behind one L3 cache, of which percentages are taken where the machine counts in amounts
    (AMD, mba_MBps). 0 is unknown: AMD's are then of 20 GB/s, as in Koordinator."""


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each class, each annotated pod, each monitored pod, and each group of ours that has ended."""
    if config.require == "off":
        yield from (_release(snapshot, f"{_PLACE}{qos}", str(qos), "ResctrlSwitchedOff") for qos in RESCTRL_CLASSES)
        yield from _release_ended(snapshot, ())
    elif snapshot.resctrl.absent:
        why = {"why": snapshot.resctrl.absent}
        annotated = list(_annotated(snapshot, config))
        is_needed = bool(annotated) or any(each.enable for each in snapshot.slo.resctrl.values())
        if snapshot.resctrl.mountable and config.mount == "ifAbsent" and is_needed:
            yield Decision("resctrl", "set", "ResctrlMounted", why, (ResctrlMountChange(),))
        elif config.require == "required":
            yield Decision("resctrl", "refuse", "ResctrlRequired", why, outcome=Lacking(snapshot.resctrl.absent))
        yield from (Decision(f"{_PLACE}{qos}", "skip", "NoResctrl", why) for qos in RESCTRL_CLASSES)
        yield from (Decision(f"pod/{pod.key}", "skip", "NoResctrl", why) for pod in annotated)
    else:
        pod_groups = _pod_groups(snapshot, config) if config.pods else {}
        enabled = [str(qos) for qos in RESCTRL_CLASSES if snapshot.slo.resctrl[qos].enable]
        groups = _groups_to_have(snapshot, [*enabled, *pod_groups.values()])
        separate = [uid for uid, group in pod_groups.items() if group in groups]
        yield from (_class_share(snapshot, config, qos, groups, separate) for qos in RESCTRL_CLASSES)
        yield from (_pod_share(snapshot, config, pod, groups, pod_groups) for pod in _annotated(snapshot, config))
        yield from _monitoring(snapshot, config, separate)
        yield from _release_ended(snapshot, pod_groups.values())


def _groups_to_have(snapshot: Snapshot, groups: Iterable[str]) -> frozenset[str]:
    """Control groups that exist, and those of `groups` that can be made, in their order."""
    present, most = snapshot.resctrl.group_names, snapshot.resctrl.max_groups
    missing = [group for group in groups if group not in present]
    return frozenset((*present, *missing[: max(0, most - len(present))]))


def _no_group_left(snapshot: Snapshot, subject: str) -> Decision:
    holders = ", ".join(snapshot.resctrl.group_names) or "I/O, or nobody"
    return Decision(subject, "refuse", "NoGroupLeft", {"groups": snapshot.resctrl.max_groups, "held_by": holders})


def monitor_seconds(config: Config) -> float:
    """Seconds between two looks at the counters; 0 is never."""
    return config.monitor_seconds


# ── shares of classes and pods ──


def _class_share(
    snapshot: Snapshot, config: Config, qos: QoSClass, groups: Collection[str], separate: Collection[str]
) -> Decision:
    subject, settings = f"{_PLACE}{qos}", snapshot.slo.resctrl[qos]
    if not settings.enable:
        return _release(snapshot, subject, str(qos), "ClassDisabled")
    cache = settings.cat_range_start_percent, settings.cat_range_end_percent
    try:
        allocation = _allocate(snapshot, config, Shares(cache=cache, bandwidth=settings.mba_percent))
    except ValueError as error:
        return Decision(subject, "refuse", "BadResctrlRange", {"why": str(error)})
    if _has_no_effect(snapshot, allocation):
        return _nothing_to_divide(snapshot, subject, str(qos), allocation)
    if qos not in groups:
        return _no_group_left(snapshot, subject)
    # The pods of the class, but for those with a group of their own, and its host applications.
    pods = [pod for pod in snapshot.pods if pod.active and pod.uid not in separate]
    cgroups = [g for pod in pods if _class_of(snapshot, config, pod) is qos for g in _pod_cgroups(snapshot, pod)]
    apps = [app.name for app in snapshot.slo.host_applications if protocol.group_class(app.qos) is qos]
    cgroups += [snapshot.host_groups[name] for name in apps if name in snapshot.host_groups]
    changes = _changes(snapshot, str(qos), allocation, cgroups)
    return Decision(subject, "set" if changes else "hold", "ClassSchemata", _evidence(allocation), changes)


def _pod_share(
    snapshot: Snapshot, config: Config, pod: Pod, groups: Collection[str], pod_groups: Mapping[str, str]
) -> Decision:
    subject, group = f"pod/{pod.key}", protocol.pod_group(pod.uid)
    try:
        claim = protocol.parse(pod.annotations[keys.POD_RESCTRL])
        whole = config.pods_beyond_class or claim.is_empty
        granted = claim if whole else ceilings.resctrl(claim, _bound(snapshot, pod))
        allocation = _allocate(snapshot, config, granted)
    except ValueError as error:
        return Decision(subject, "refuse", "BadPodResctrl", {"why": str(error)})
    if claim.is_empty:
        return Decision(
            subject, "hold", "PodAsksForNothing" if _class_of(snapshot, config, pod) is None else "ClassHolds"
        )
    if _has_no_effect(snapshot, allocation):
        return _nothing_to_divide(snapshot, subject, group, allocation)
    if pod.uid not in pod_groups:
        return Decision(subject, "refuse", "NamespaceHasItsGroups", {"groups": config.groups_per_namespace})
    if group not in groups:
        return _no_group_left(snapshot, subject)
    changes = _changes(snapshot, group, allocation, _pod_cgroups(snapshot, pod))
    evidence = {"group": group, **_evidence(allocation)}
    if granted != claim:
        bound = _bound(snapshot, pod)
        cache = f"{bound.cat_range_start_percent}-{bound.cat_range_end_percent} % of the cache"
        shares_of_class = f"{cache}, {bound.mba_percent} % of the bandwidth"
        evidence["clipped"] = f"class {ceilings.cgroup_class(pod)} has {shares_of_class}"
    return Decision(subject, "set" if changes else "hold", "PodSchemata", evidence, changes)


def _bound(snapshot: Snapshot, pod: Pod) -> ResctrlQOS:
    """The settings of the class that bounds the pod."""
    bounding = protocol.group_class(ceilings.cgroup_class(pod))
    return ResctrlQOS() if bounding is None else snapshot.slo.resctrl[bounding]


def _class_of(snapshot: Snapshot, config: Config, pod: Pod) -> QoSClass | None:
    """The class in whose group the pod's threads belong. One that asks for nothing leaves it only where it may."""
    qos = protocol.class_of(pod)
    if qos is None and not config.pods_beyond_class:
        bound = _bound(snapshot, pod)
        limits = bound.enable and msgspec.structs.replace(bound, enable=False) != ResctrlQOS()
        return protocol.group_class(ceilings.cgroup_class(pod)) if limits else None
    return qos


def _allocate(snapshot: Snapshot, config: Config, share: Shares) -> Allocation:
    return shares.allocate(snapshot.resctrl, share, l3_bandwidth_mbps=config.l3_bandwidth_mbps)


def _has_no_effect(snapshot: Snapshot, allocation: Allocation) -> bool:
    """Tell whether a group would neither limit nor measure anything on this machine."""
    return not allocation.values and snapshot.resctrl.monitor is None


def _nothing_to_divide(snapshot: Snapshot, subject: str, group: str, allocation: Allocation) -> Decision:
    release = _release(snapshot, subject, group, "NothingToDivide")
    divided = ", ".join((*snapshot.resctrl.caches, *snapshot.resctrl.bandwidths))
    verdict = release.verdict if release.changes else "skip"
    return msgspec.structs.replace(release, verdict=verdict, evidence={"divided": divided, **allocation.why})


def _evidence(allocation: Allocation) -> Mapping[str, str]:
    """The schemata lines, and how they follow from the percentages."""
    lines = {name: schemata.line(name, values) for name, values in allocation.values.items()}
    lines = lines or {"nothing": "nothing of its own and is only measured"}
    absent = {"absent_caches": ",".join(map(str, allocation.absent_ids))} if allocation.absent_ids else {}
    return {**lines, **allocation.why, **absent}


# ── which group a pod belongs to ──


def _annotated(snapshot: Snapshot, config: Config) -> Iterator[Pod]:
    """Active pods with the annotation, by name; none where `pods` is off."""
    if config.pods:
        pods = (pod for pod in snapshot.pods if pod.active and keys.POD_RESCTRL in pod.annotations)
        yield from sorted(pods, key=lambda pod: pod.key)


def _pod_groups(snapshot: Snapshot, config: Config) -> dict[str, str]:
    """The groups of pods that have, or are to have, one of their own, by uid, in the order in which they get them.

    A pod whose annotation can no longer be read keeps the group it has. Of a namespace those that have one come first.
    """
    ours = _our_groups(snapshot)
    groups: dict[str, str] = {}
    free: dict[str, int] = {}
    for pod in sorted(snapshot.pods, key=lambda pod: (protocol.pod_group(pod.uid) not in ours, pod.key)):
        text, group = pod.annotations.get(keys.POD_RESCTRL), protocol.pod_group(pod.uid)
        if text is not None and pod.active:
            share = protocol.parse_or_none(text)
            wants = group in ours if share is None else not share.is_empty
            if wants and free.setdefault(pod.namespace, config.groups_per_namespace) > 0:
                free[pod.namespace] -= 1
                groups[pod.uid] = group
    return groups


def _pod_cgroups(snapshot: Snapshot, pod: Pod) -> tuple[str, ...]:
    """The cgroups of a pod's containers and sandbox, as far as they have been found."""
    place = snapshot.places.get(pod.uid)
    return place.inside if place else ()


# ── monitoring groups ──


def _monitoring(snapshot: Snapshot, config: Config, separate: Collection[str]) -> Iterator[Decision]:
    """A monitoring group for each pod of a class, as long as there are RMIDs; one refusal for all that got none."""
    monitored: set[str] = set()
    if config.monitor_pods and snapshot.resctrl.monitor:
        rmids = snapshot.resctrl.monitor.num_rmids - len(snapshot.resctrl.groups)
        of_class = [
            (protocol.pod_monitor(str(qos), pod.uid), pod)
            for pod in snapshot.pods
            if pod.active and pod.uid in snapshot.places and pod.uid not in separate
            if (qos := _class_of(snapshot, config, pod))
            if snapshot.slo.resctrl[qos].enable and str(qos) in snapshot.resctrl.groups
        ]
        candidates = sorted(of_class, key=lambda pair: pair[1].key)
        for group, pod in candidates[: max(0, rmids)]:
            monitored.add(group)
            control = snapshot.resctrl.groups[group.partition(MON_GROUPS)[0]]
            creation = () if resctrl.GROUP.place(group) in snapshot.ours else (ResctrlGroupChange(group),)
            # Only threads in the control group already can be put into it.
            movable = (control.tasks or frozenset()) - snapshot.resctrl.monitors.get(group, frozenset())
            changes = (*creation, *_moves(snapshot, group, _pod_cgroups(snapshot, pod), movable.__contains__))
            yield Decision(f"{_PLACE}{group}", "set" if changes else "hold", "PodMonitored", {"pod": pod.key}, changes)
        if len(candidates) > len(monitored):
            num_rmids = snapshot.resctrl.monitor.num_rmids
            evidence = {"pods": len(candidates), "monitored": len(monitored), "num_rmids": num_rmids}
            yield Decision("resctrl/monitoring", "refuse", "NoMonitorLeft", evidence)
    ours = {place.part("group") for place in snapshot.ours if place.kind is resctrl.GROUP}
    for group in sorted(group for group in ours - monitored if MON_GROUPS in group):
        yield Decision(f"{_PLACE}{group}", "release", "PodNotMonitored", {}, (ResctrlReturn(group),))


# ── changes, and groups that are ours ──


def _changes(snapshot: Snapshot, group: str, allocation: Allocation, cgroups: Iterable[str]) -> tuple[Change, ...]:
    """The group, the values it does not hold yet, and the threads of the cgroups that are not in it.

    In a group we made, a value that is no longer asked for becomes again what the group began with.
    """
    present = snapshot.resctrl.groups.get(group)
    targets = dict(allocation.values)
    if present and resctrl.GROUP.place(group) in snapshot.ours:
        initial = shares.initial_values(snapshot.resctrl, present)
        targets |= {name: {**ids, **targets.get(name, {})} for name, ids in initial.items()}
    values = shares.to_write(snapshot.resctrl, present, targets)
    tids = (present.tasks if present else None) or frozenset()
    return (
        *([] if present else [ResctrlGroupChange(group)]),
        *(SchemataChange(group, resource, ids) for resource, ids in values.items()),
        *_moves(snapshot, group, cgroups, lambda tid: tid not in tids),
    )


def _moves(
    snapshot: Snapshot, group: str, cgroups: Iterable[str], is_movable: Callable[[int], bool]
) -> Iterator[Change]:
    """Make one change for all threads to be moved, of the cgroups whose threads were read this time."""
    by_cgroup = {each: [tid for tid in snapshot.resctrl.threads.get(each, ()) if is_movable(tid)] for each in cgroups}
    tids = sorted(tid for threads in by_cgroup.values() for tid in threads)
    if tids:
        yield TasksChange(group, tuple(tids), tuple(each for each, threads in by_cgroup.items() if threads))


def _release(snapshot: Snapshot, subject: str, group: str, reason: str) -> Decision:
    """Threads go back to where they were found, values to what they were, and the group goes if we made it."""
    ours = group in _our_groups(snapshot)
    return Decision(subject, "release" if ours else "hold", reason, {}, (ResctrlReturn(group),) if ours else ())


def _release_ended(snapshot: Snapshot, current: Collection[str]) -> Iterator[Decision]:
    """Groups of pods that are gone, or no longer ask for one."""
    for group in sorted(_our_groups(snapshot)):
        if protocol.is_pod_group(group) and group not in current:
            yield _release(snapshot, f"{_PLACE}{group}", group, "PodGroupEnded")


def _our_groups(snapshot: Snapshot) -> set[str]:
    """Control groups in which something is ours: the group itself, a value, a thread."""
    ours = (place.part("group") for place in snapshot.ours if place.kind.is_resctrl)
    return {group.partition(MON_GROUPS)[0] for group in ours}
