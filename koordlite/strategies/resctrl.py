"""Share of L3 cache and memory bandwidth by QoS class and by pod, through control groups of resctrl.

Classes LSR, LS and BE get the part that their `resctrlQOS` says, pods the part that annotation
`node.koordinator.sh/resctrl` asks for. A group is made when it is needed, and given back when that ends. Rules:
Koordinator's strategy `ResctrlReconcile` and its runtime hook `resctrl`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal

from koordlite.changes.resctrl_group import ResctrlGroupChange
from koordlite.changes.resctrl_mount import ResctrlMountChange
from koordlite.changes.resctrl_return import ResctrlReturn
from koordlite.changes.resctrl_schemata import SchemataChange
from koordlite.changes.resctrl_tasks import TasksChange
from koordlite.model import keys
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.model.pod import resctrl_protocol as protocol
from koordlite.model.pod.pod import Pod
from koordlite.model.pod.qos import QoSClass
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.slo.settings import RESCTRL_CLASSES
from koordlite.model.snapshot import Snapshot
from koordlite.resctrl import schemata, shares
from koordlite.resctrl.shares import Allocation, Shares
from koordlite.resctrl.values import MON_GROUPS

_PLACE = "resctrl/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `resctrl`. Percentages come from the ConfigMap key `resource-qos-config` and from pods."""

    require: Literal["off", "automatic", "required"] = "automatic"
    """off: nothing is divided, and what was goes back. automatic: used where the machine has it. required: the agent
    is degraded on a machine without it."""
    mount: Literal["never", "ifAbsent"] = "ifAbsent"
    """Whether the agent may mount resctrl where it is not mounted. It does so only to enforce, only when a class or a
    pod asks for a share, and unmounts it when everything is put back."""
    pods: bool = True
    """Whether pods may ask for a group of their own. Hardware has few: classes come first."""
    monitor_pods: bool = False
    """Whether pods of a class get a monitoring group each, so that their cache and bandwidth are measured."""
    monitor_seconds: float = bounded(10.0, ge=0, le=3600)
    """Time between two readings of cache occupancy and bandwidth counters; 0 reads none. Koordinator's is 10 s too."""
    l3_bandwidth_mbps: int = bounded(0, ge=0, le=10_000_000)
    """Memory bandwidth in MB/s behind one L3 cache, of which percentages are taken where the machine counts in amounts
    (AMD, mba_MBps). 0 is unknown: AMD's are then of 20 GB/s, as in Koordinator."""


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for each class, each pod that asks for itself, and each group of ours that has ended."""
    if config.require == "off":
        yield from (_given_back(seen, f"{_PLACE}{qos}", str(qos), "ResctrlSwitchedOff") for qos in RESCTRL_CLASSES)
        yield from _ended(seen, ())
    elif seen.resctrl.absent:
        yield from _absent(seen, config)
    else:
        own = _own_groups(seen) if config.pods else {}
        enabled = [str(qos) for qos in RESCTRL_CLASSES if seen.slo.resctrl[qos].enable]
        room = _Room(seen, [*enabled, *own.values()])
        apart = [uid for uid, group in own.items() if room.has(group)]
        yield from (_class(seen, config, qos, room, apart) for qos in RESCTRL_CLASSES)
        yield from (_pod(seen, config, pod, room) for pod in _asking(seen, config))
        yield from _monitored(seen, config, apart)
        yield from _ended(seen, own.values())


class _Room:
    """Which groups there are or can be made, first come first served."""

    def __init__(self, seen: Snapshot, wanted: Iterable[str]) -> None:
        self._present = seen.resctrl.group_names
        self.most = seen.resctrl.max_groups
        absent = [group for group in wanted if group not in self._present]
        self._granted = {*self._present, *absent[: max(0, self.most - len(self._present))]}

    def has(self, group: str) -> bool:
        """Whether the group is there or can be made."""
        return group in self._granted

    def refusal(self, subject: str) -> Decision:
        """Why there is no group for the subject, and who has them."""
        held = ", ".join(self._present) or "I/O, or nobody"
        return Decision(subject, "refuse", "NoGroupLeft", {"groups": self.most, "held_by": held})


# ── absence ──


def _absent(seen: Snapshot, config: Config) -> Iterator[Decision]:
    why = {"why": seen.resctrl.absent}
    if seen.resctrl.mountable and config.mount == "ifAbsent" and _is_asked_for(seen, config):
        yield Decision("resctrl", "set", "ResctrlMounted", why, (ResctrlMountChange(),))
    elif config.require == "required":
        yield Decision("resctrl", "refuse", "ResctrlRequired", why)
    yield from (Decision(f"{_PLACE}{qos}", "skip", "NoResctrl", why) for qos in RESCTRL_CLASSES)
    yield from (Decision(f"pod/{pod.key}", "skip", "NoResctrl", why) for pod in _asking(seen, config))


def _is_asked_for(seen: Snapshot, config: Config) -> bool:
    return any(each.enable for each in seen.slo.resctrl.values()) or any(True for _ in _asking(seen, config))


# ── classes ──


def _class(seen: Snapshot, config: Config, qos: QoSClass, room: _Room, apart: Collection[str]) -> Decision:
    subject, settings = f"{_PLACE}{qos}", seen.slo.resctrl[qos]
    if not settings.enable:
        return _given_back(seen, subject, str(qos), "ClassDisabled")
    part = settings.cat_range_start_percent, settings.cat_range_end_percent
    asked = Shares(cache=part, bandwidth=settings.mba_percent)
    try:
        wanted = shares.allocate(seen.resctrl, asked, l3_bandwidth_mbps=config.l3_bandwidth_mbps)
    except ValueError as error:
        return Decision(subject, "refuse", "BadResctrlRange", {"why": str(error)})
    if _is_idle(seen, wanted):
        return _nothing(seen, subject, str(qos), wanted)
    if not room.has(qos):
        return room.refusal(subject)
    changes = _changes(seen, str(qos), wanted, _cgroups_of(seen, qos, apart))
    return Decision(subject, "set" if changes else "hold", "ClassSchemata", _evidence(wanted), changes)


def _given_back(seen: Snapshot, subject: str, group: str, reason: str) -> Decision:
    """Threads go where they were found, values are as found, and the group goes if we made it."""
    ours = group in _ours(seen)
    return Decision(subject, "release" if ours else "hold", reason, {}, (ResctrlReturn(group),) if ours else ())


def _is_idle(seen: Snapshot, wanted: Allocation) -> bool:
    """A group would neither divide nor measure anything: the machine has none of what the percentages are of."""
    return not wanted.values and seen.resctrl.monitor is None


def _nothing(seen: Snapshot, subject: str, group: str, wanted: Allocation) -> Decision:
    given = _given_back(seen, subject, group, "NothingToDivide")
    divided = ", ".join((*seen.resctrl.caches, *seen.resctrl.bandwidths))
    verdict = given.verdict if given.changes else "skip"
    return dataclasses.replace(given, verdict=verdict, evidence={"divided": divided, **wanted.why})


def _ours(seen: Snapshot) -> set[str]:
    """Control groups in which something is ours: the group itself, a value, a thread."""
    places = (place.removeprefix(_PLACE) for place in seen.ours if place.startswith(_PLACE))
    return {place.partition("/")[0] for place in places}


def _cgroups_of(seen: Snapshot, qos: QoSClass, apart: Collection[str]) -> Iterator[str]:
    """The cgroups of a class's pods, without those that have a group of their own, and of its host applications."""
    for pod in seen.pods:
        place = seen.places.get(pod.uid)
        if place and pod.active and pod.uid not in apart and class_of(pod) is qos:
            yield from (*place.containers.values(), *place.sandboxes)
    for app in seen.slo.host_applications:
        if group_class(app.qos) is qos and app.name in seen.host_groups:
            yield seen.host_groups[app.name]


def class_of(pod: Pod) -> QoSClass | None:
    """The class whose group a pod's threads belong to; none for SYSTEM, and for a pod that asks for nothing by its
    annotation: it stays in the root group, which has everything."""
    text = pod.annotations.get(keys.POD_RESCTRL)
    if text is not None and _read(text) == Shares():
        return None
    return group_class(pod.qos_class)


def group_class(qos: QoSClass) -> QoSClass | None:
    """LSE and LSR share LSR; classes without a group have none."""
    return {QoSClass.LSE: QoSClass.LSR}.get(qos, qos if qos in RESCTRL_CLASSES else None)


# ── pods ──


def _asking(seen: Snapshot, config: Config) -> Iterator[Pod]:
    if config.pods:
        found = (pod for pod in seen.pods if pod.active and keys.POD_RESCTRL in pod.annotations)
        yield from sorted(found, key=lambda pod: pod.key)


def _own_groups(seen: Snapshot) -> dict[str, str]:
    """The groups of pods that have, or are to have, one of their own, by uid, in the order in which they get them.

    A pod whose annotation can no longer be read keeps the group it has.
    """
    ours = _ours(seen)
    found: dict[str, str] = {}
    for pod in sorted(seen.pods, key=lambda pod: pod.key):
        text, group = pod.annotations.get(keys.POD_RESCTRL), protocol.pod_group(pod.uid)
        if text is not None and pod.active:
            asked = _read(text)
            if group in ours if asked is None else not asked.is_empty:
                found[pod.uid] = group
    return found


def _read(text: str) -> Shares | None:
    try:
        return protocol.parse(text)
    except ValueError:
        return None


def _pod(seen: Snapshot, config: Config, pod: Pod, room: _Room) -> Decision:
    subject, group = f"pod/{pod.key}", protocol.pod_group(pod.uid)
    try:
        asked = protocol.parse(pod.annotations[keys.POD_RESCTRL])
        wanted = shares.allocate(seen.resctrl, asked, l3_bandwidth_mbps=config.l3_bandwidth_mbps)
    except ValueError as error:
        return Decision(subject, "refuse", "BadPodResctrl", {"why": str(error)})
    if asked.is_empty:
        return Decision(subject, "hold", "PodAsksForNothing")
    if _is_idle(seen, wanted):
        return _nothing(seen, subject, group, wanted)
    if not room.has(group):
        return room.refusal(subject)
    place = seen.places.get(pod.uid)
    changes = _changes(seen, group, wanted, (*place.containers.values(), *place.sandboxes) if place else ())
    evidence = {"group": group, **_evidence(wanted)}
    return Decision(subject, "set" if changes else "hold", "PodSchemata", evidence, changes)


def _ended(seen: Snapshot, wanted: Collection[str]) -> Iterator[Decision]:
    """Groups of pods that are gone, or that do not ask any more."""
    for group in sorted(_ours(seen)):
        if protocol.is_pod_group(group) and group not in wanted:
            yield _given_back(seen, f"{_PLACE}{group}", group, "PodGroupEnded")


# ── monitoring ──


def _monitored(seen: Snapshot, config: Config, apart: Collection[str]) -> Iterator[Decision]:
    """A monitoring group for each pod of a class, as long as the hardware has ids for them; the rest is told once."""
    kept: set[str] = set()
    if config.monitor_pods and seen.resctrl.monitor:
        left = seen.resctrl.monitor.num_rmids - len(seen.resctrl.groups)
        for group, pod in _monitors(seen, apart)[: max(0, left)]:
            kept.add(group)
            place = seen.places[pod.uid]
            changes = _monitor(seen, group, (*place.containers.values(), *place.sandboxes))
            yield Decision(f"{_PLACE}{group}", "set" if changes else "hold", "PodMonitored", {"pod": pod.key}, changes)
        pods = len(_monitors(seen, apart))
        if pods > len(kept):
            evidence = {"pods": pods, "monitored": len(kept), "num_rmids": seen.resctrl.monitor.num_rmids}
            yield Decision("resctrl/monitoring", "refuse", "NoMonitorLeft", evidence)
    for group in sorted(_our_monitors(seen) - kept):
        yield Decision(f"{_PLACE}{group}", "release", "PodNotMonitored", {}, (ResctrlReturn(group),))


def _monitors(seen: Snapshot, apart: Collection[str]) -> list[tuple[str, Pod]]:
    """The monitoring group of each pod whose class has a control group."""
    found = [
        (protocol.pod_monitor(str(qos), pod.uid), pod)
        for pod in seen.pods
        if pod.active and pod.uid in seen.places and pod.uid not in apart and (qos := class_of(pod))
        if seen.slo.resctrl[qos].enable and str(qos) in seen.resctrl.groups
    ]
    return sorted(found, key=lambda pair: pair[1].key)


def _our_monitors(seen: Snapshot) -> set[str]:
    found = (place.removeprefix(_PLACE) for place in seen.ours if MON_GROUPS in place and place.startswith(_PLACE))
    return {place for place in found if place.partition(MON_GROUPS)[2].count("/") == 0}


def _monitor(seen: Snapshot, group: str, cgroups: Iterable[str]) -> tuple[Change, ...]:
    """Only threads that are in the control group already can be put into its monitoring group."""
    control = seen.resctrl.groups[group.partition(MON_GROUPS)[0]]
    made = () if f"{_PLACE}{group}" in seen.ours else (ResctrlGroupChange(group),)
    held = seen.resctrl.monitors.get(group, frozenset())
    able = (control.tasks or frozenset()) - held
    moves = _moves(seen, group, cgroups, lambda tid: tid in able)
    return (*made, *moves)


# ── changes ──


def _changes(seen: Snapshot, group: str, wanted: Allocation, cgroups: Iterable[str]) -> tuple[Change, ...]:
    """The group, what it does not hold yet, and the threads of the cgroups that are not in it.

    In a group we made, a part that nobody asks for any more is again what the group began with.
    """
    present = seen.resctrl.groups.get(group)
    parts = dict(wanted.values)
    if present and f"{_PLACE}{group}" in seen.ours:
        begun = shares.initial_values(seen.resctrl, present)
        parts |= {name: {**ids, **parts.get(name, {})} for name, ids in begun.items()}
    values = shares.to_write(seen.resctrl, present, parts)
    held = (present.tasks if present else None) or frozenset()
    return (
        *([] if present else [ResctrlGroupChange(group)]),
        *(SchemataChange(group, resource, ids) for resource, ids in values.items()),
        *_moves(seen, group, cgroups, lambda tid: tid not in held),
    )


def _moves(seen: Snapshot, group: str, cgroups: Iterable[str], wanted: Callable[[int], bool]) -> Iterator[Change]:
    """Threads of the cgroups that were looked at this time."""
    found = {each: [t for t in seen.resctrl.threads.get(each, ()) if wanted(t)] for each in cgroups}
    tids = sorted(tid for threads in found.values() for tid in threads)
    if tids:
        yield TasksChange(group, tuple(tids), tuple(each for each, threads in found.items() if threads))


def _evidence(wanted: Allocation) -> Mapping[str, str]:
    """The lines, and by which rule of the hardware they came about."""
    lines = {name: schemata.line(name, values) for name, values in wanted.values.items()}
    lines = lines or {"nothing": "nothing of its own and is only measured"}
    absent = {"absent_caches": ",".join(map(str, wanted.absent_ids))} if wanted.absent_ids else {}
    return {**lines, **wanted.why, **absent}


SENTENCES = {
    "NoResctrl": "no resctrl: {why}",
    "ClassSchemata": "the class gets[ {L3}][ {L3CODE}][ {L3DATA}][ {MB}][ {nothing}][: {cache}][; {bandwidth}]",
    "NothingToDivide": "percentages apply to L3 and MB, but this machine divides only {divided}[; {bandwidth}]",
    "ClassDisabled": "the class is switched off",
    "PodSchemata": (
        "the pod has group {group} with[ {L3}][ {L3CODE}][ {L3DATA}][ {MB}][ {nothing}][: {cache}][; {bandwidth}]"
        "[; caches {absent_caches} are not present]"
    ),
    "PodAsksForNothing": "the annotation asks for nothing, so the pod stays in the root group, which has everything",
    "BadPodResctrl": "the annotation cannot be read: {why}; the pod keeps what it has",
    "PodGroupEnded": "the pod is gone or no longer asks for a group; its group is removed",
    "NoGroupLeft": "the hardware has {groups} groups and all are taken: {held_by}",
    "ResctrlMounted": "resctrl has to be mounted, because a share is asked for: {why}",
    "ResctrlRequired": "the configuration requires resctrl, but it is not available: {why}",
    "ResctrlSwitchedOff": "resctrl is switched off in the configuration",
    "PodMonitored": "pod {pod} has a monitoring group",
    "PodNotMonitored": "the pod is gone, changed its class, or monitoring is off; its monitoring group is removed",
    "NoMonitorLeft": "{monitored} of {pods} pods are monitored; the hardware has {num_rmids} ids for all groups",
    "BadResctrlRange": "the range cannot be used: {why}",
}
