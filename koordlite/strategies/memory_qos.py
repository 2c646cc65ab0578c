"""Keep memory of pods from reclaim, begin the reclaim of others early, and bound swap, as class or annotation ask.

Pods, containers and the QoS levels above them are written in one plan, so that a level always covers what is below it.
Source: Koordinator strategy CgroupReconcile; swap is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.changes import cgroup
from koordlite.changes.cgroup import UNLIMITED, CgroupChange
from koordlite.formulas import ceilings, memory_qos
from koordlite.formulas.memory_qos import Values
from koordlite.model import keys
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.decision import Decision, Verdict
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.qos import MemoryQOS, ResourceQOS
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import group_files

NAME = "memoryQos"
NEW_CONTAINERS = "theirs"
_PROTECTION: tuple[CgroupField, ...] = ("memory.min", "memory.low")
_PAGE_CACHE: tuple[CgroupField, ...] = (
    "memory.pagecache_limit.enable",
    "memory.pagecache_limit.size",
    "memory.pagecache_limit.sync",
)
_SWAP: CgroupField = "memory.swap.max"
_FIELD_NAMES: Mapping[CgroupField, str] = {"memory.min": "min_bytes", "memory.low": "low_bytes"}
_OF_KOORDINATOR = (*_PROTECTION, "memory.high", *memory_qos.fixed(MemoryQOS()), *_PAGE_CACHE)
FIELDS: tuple[CgroupField, ...] = (*_OF_KOORDINATOR, _SWAP)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `memoryQos`. Percentages come from `memoryQOS` of the ConfigMap key `resource-qos-config`, and from
    annotations of pods within what is said here. Caps are for `memory.min` and for `memory.low` each, in percent of the
    node's memory, for all annotated pods together; those of a class are its pods' together."""

    annotations_may_enable: bool = False
    """Let an annotation give a pod memory QoS where its class has none, as in Koordinator."""
    node_protection_percent: int = bounded(50, ge=0, le=100)
    """Cap of all annotated pods of the node."""
    lsr_protection_percent: int = bounded(50, ge=0, le=100)
    """Cap of annotated pods of classes LSE and LSR."""
    ls_protection_percent: int = bounded(30, ge=0, le=100)
    """Cap of annotated pods of class LS, and of class SYSTEM."""
    be_protection_percent: int = bounded(10, ge=0, le=100)
    """Cap of annotated pods in the besteffort cgroup or of class BE."""

    def protection_percent(self, of_pod: QoSClass) -> int:
        """The cap of a class."""
        caps = dict.fromkeys((QoSClass.LSE, QoSClass.LSR), self.lsr_protection_percent)
        return {**caps, QoSClass.BE: self.be_protection_percent}.get(of_pod, self.ls_protection_percent)


def reads(slo: SLO, pods: Sequence[Pod]) -> tuple[str, ...]:
    """Everything that is written, while a class or a pod asks for it; swap, while a class does."""
    qos = slo.resource_qos
    classes = [each.memory_qos for each in (qos.lsr_class, qos.ls_class, qos.be_class, qos.system_class)]
    is_on = any(each.enable for each in classes) or any(keys.MEMORY_QOS in pod.annotations for pod in pods)
    swap = any(_swap_percent(each) is not None for each in classes)
    return (*(_OF_KOORDINATOR if is_on else ()), *((_SWAP, "swap") if swap else ()))


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each pod with memory QoS and each QoS level above one, and about what is given back."""
    targets: dict[str, Values] = {}
    by_level: dict[str, list[Values]] = {level: [] for level in _levels(snapshot)}
    missing, neutral = set[str](), memory_qos.fixed(MemoryQOS())
    asking = [(pod, claim) for pod in snapshot.pods for claim in (_claim(snapshot, pod, config),)]
    caps = _caps(snapshot, config, asking)
    for pod, claim in asking:
        if claim.settings is None or not pod.active or pod.uid not in snapshot.places:
            if claim.bad or claim.clipped:
                yield _with_claim(Decision(f"pod/{pod.key}", "hold", "MemoryQOSNotAllowed"), claim, "")
            continue
        of_pod = _capped(_of_pod(snapshot, pod, claim.settings), caps.get(pod.uid))
        targets |= of_pod
        levels = {KubeQoS.BURSTABLE: snapshot.layout.burstable, KubeQoS.BEST_EFFORT: snapshot.layout.besteffort}
        level = levels.get(pod.kube_qos, snapshot.layout.kubepods)
        group = snapshot.places[pod.uid].group
        by_level[level].append(of_pod[group])
        # Files that are asked for with a value that matters, and which this kernel has not.
        present = snapshot.cgroups[group].values if group in snapshot.cgroups else of_pod[group]
        missing |= {f for f, value in of_pod[group].items() if f not in present and value != neutral.get(f, 0)}
        yield _with_claim(_decided(snapshot, f"pod/{pod.key}", "MemoryQOS", of_pod), claim, _cut(caps.get(pod.uid)))
    for level, values in _of_levels(snapshot, by_level).items():
        targets[level] = values
        yield _decided(snapshot, level, "MemoryQOSLevel", {level: values})
    for decision, limits in _swap(snapshot, asking):
        targets |= {group: {**targets.get(group, {}), **values} for group, values in limits.items()}
        yield decision
    releases = group_files.releases(snapshot, NAME, FIELDS)
    changes = tuple(change for change in releases if change.field not in targets.get(change.group, {}))
    if changes:
        yield Decision("node", "release", "MemoryQOSReleased", {"files": len(changes)}, changes)
    else:
        yield Decision("node", "hold", "MemoryQOSOn" if targets else "MemoryQOSOff", {"groups": len(targets)})
    if missing:
        yield Decision("node", "skip", "UnsupportedByKernel", {"file": ", ".join(sorted(missing))})


def class_settings(qos: ResourceQOS, of_pod: QoSClass) -> MemoryQOS:
    """The settings of the class a pod is in. Source: Koordinator `GetPodResourceQoSByQoSClass`."""
    by_class = {QoSClass.LSE: qos.lsr_class, QoSClass.LSR: qos.lsr_class, QoSClass.LS: qos.ls_class}
    by_class |= {QoSClass.BE: qos.be_class, QoSClass.SYSTEM: qos.system_class}
    return by_class[of_pod].memory_qos


class _Claim(msgspec.Struct, frozen=True):
    """Settings of a pod: None when it has no memory QoS; and what is to be said about its annotation."""

    settings: MemoryQOS | None
    bad: pod_overrides.UnusableAnnotation | None = None
    clipped: str = ""
    swap_percent: int | None = None
    """Claim of the annotation."""


def _claim(snapshot: Snapshot, pod: Pod, config: Config) -> _Claim:
    """The settings of the class with those of the annotation, as far as annotations may go."""
    of_class = class_settings(snapshot.slo.resource_qos, pod.qos_class)
    if keys.MEMORY_QOS not in pod.annotations:
        return _Claim(of_class if of_class.enable else None)
    settings, bad = pod_overrides.memory_qos(pod, of_class)
    swap = settings.swap_max_percent
    if not pod_overrides.has_memory_qos(pod, of_class):
        return _Claim(None, bad, swap_percent=swap)
    if config.annotations_may_enable:
        return _Claim(settings, bad, swap_percent=swap)
    if not of_class.enable:
        return _Claim(None, bad, f"memory QoS of class {pod.qos_class} is off")
    allowed = ceilings.memory_qos(settings, of_class)
    clipped = f"priority {settings.priority} → {allowed.priority}" if allowed != settings else ""
    return _Claim(allowed, bad, clipped, swap)


def _with_claim(decision: Decision, claim: _Claim, cut: str) -> Decision:
    """The decision with what is to be said about the annotation; `cut` is what the caps take."""
    clipped = ", ".join(filter(None, (claim.clipped, cut)))
    more = {"clipped": clipped} if clipped else {}
    if claim.bad:
        evidence = {"annotation": claim.bad.key, "why": claim.bad.why, **decision.evidence, **more}
        return Decision(decision.subject, "refuse", "BadMemoryQOSAnnotation", evidence, decision.changes)
    return msgspec.structs.replace(decision, evidence={**decision.evidence, **more}) if more else decision


Part = tuple[int, int]
"""Allowed and requested amount of a protection."""


def _caps(
    snapshot: Snapshot, config: Config, asking: Sequence[tuple[Pod, _Claim]]
) -> dict[str, dict[CgroupField, Part]]:
    """Amounts, by pod uid, that the caps leave of each protection that an annotation raises beyond the class's."""
    by_class = snapshot.slo.resource_qos
    annotated = [
        (pod, memory_qos.pod_amounts(pod)[0], claim.settings)
        for pod, claim in asking
        if claim.settings and keys.MEMORY_QOS in pod.annotations and pod.active and pod.uid in snapshot.places
    ]
    classes = {pod.uid: ceilings.cgroup_class(pod) for pod, _, _ in annotated}
    capacity = snapshot.node.capacity_memory if snapshot.node else 0
    caps = {str(each): capacity * config.protection_percent(each) // 100 for each in QoSClass}
    parts: dict[str, dict[CgroupField, Part]] = {pod.uid: {} for pod, _, _ in annotated}
    for field in _PROTECTION:
        amounts = {pod.uid: memory_qos.protection(settings, request)[field] for pod, request, settings in annotated}
        own = {
            pod.uid: memory_qos.protection(class_settings(by_class, pod.qos_class), request)[field]
            for pod, request, _ in annotated
        }
        extra = {uid: max(amount - own[uid], 0) for uid, amount in amounts.items()}
        extra = ceilings.scaled(extra, caps, classes)
        extra = ceilings.scaled(extra, {"": capacity * config.node_protection_percent // 100}, dict.fromkeys(extra, ""))
        for uid, amount in amounts.items():
            parts[uid][field] = min(amount, own[uid] + extra[uid]), amount
    return parts


def _capped(of_pod: Mapping[str, Values], parts: Mapping[CgroupField, Part] | None) -> dict[str, Values]:
    """The values of the pod and its containers, each with its part of what the caps leave."""
    cut = {field: part for field, part in (parts or {}).items() if part[0] < part[1]}
    return {
        group: {
            field: value * cut[field][0] // cut[field][1] if field in cut else value for field, value in values.items()
        }
        for group, values in of_pod.items()
    }


def _cut(parts: Mapping[CgroupField, Part] | None) -> str:
    """Effect of the caps, in words."""
    amounts = (parts or {}).items()
    return ", ".join(f"{_FIELD_NAMES[field]} {claim} → {cap}" for field, (cap, claim) in amounts if cap < claim)


def _of_pod(snapshot: Snapshot, pod: Pod, settings: MemoryQOS) -> dict[str, Values]:
    """Values of the pod's group and of its containers' groups."""
    resource = memory_qos.resource(pod)
    place = snapshot.places[pod.uid]
    request, limit = memory_qos.pod_amounts(pod)
    values = memory_qos.pod_values(settings, request=request, limit=limit)
    amounts = snapshot.node.allocatable if snapshot.node else {}
    allocatable = amounts["memory"].value if "memory" in amounts else 0
    by_group = {place.group: values}
    for container in pod.containers:
        group = place.containers.get(container.name, "")
        if group in snapshot.cgroups:
            by_group[group] = memory_qos.container_values(
                settings,
                request=memory_qos.amount(container, resource, "requests"),
                limit=memory_qos.amount(container, resource, "limits"),
                allocatable=allocatable,
                page=snapshot.page_bytes,
            )
    return by_group


def _swap_percent(of_class: MemoryQOS) -> int | None:
    return of_class.swap_max_percent if of_class.enable else None


Limits = Mapping[str, Values]
"""Values by group of a container."""


def _swap(snapshot: Snapshot, asking: Sequence[tuple[Pod, _Claim]]) -> Iterator[tuple[Decision, Limits]]:
    """Decisions about the swap of pods whose class bounds it, each with the limits that should stand; where nothing is
    to be written, one about the node. No policy of an annotation takes a pod out of its class's bound."""
    bounded_pods = [
        (pod, annotation.swap_percent, bound)
        for pod, annotation in asking
        for bound in (_swap_percent(class_settings(snapshot.slo.resource_qos, pod.qos_class)),)
        if bound is not None and pod.active and pod.uid in snapshot.places
    ]
    if not bounded_pods:
        return
    count = {"pods": len(bounded_pods)}
    if not group_files.has(snapshot, _SWAP):
        yield Decision("node", "skip", "SwapUnsupported", {"cgroup_version": snapshot.layout.version, **count}), {}
    elif not snapshot.swap_bytes:
        yield Decision("node", "skip", "NoSwap", count), {}
    elif snapshot.kubelet.swap_behavior == "LimitedSwap":
        yield Decision("node", "hold", "SwapOfKubelet", count), {}
    else:
        yield from (_swap_of_pod(snapshot, pod, claim, bound) for pod, claim, bound in bounded_pods)


def _swap_of_pod(snapshot: Snapshot, pod: Pod, claim: int | None, bound: int) -> tuple[Decision, Limits]:
    """Limits of the pod's containers. A number above 0 that stood there before us is another's: kubelet writes one for
    LimitedSwap, and 0 or nothing otherwise."""
    resource = memory_qos.resource(pod)
    percent = bound if claim is None else min(claim, bound)
    limits, total, foreign = dict[str, Values](), 0, list[str]()
    for container in pod.containers:
        group = snapshot.places[pod.uid].containers.get(container.name, "")
        values = snapshot.cgroups.get(group, Cgroup()).values
        before = snapshot.found.get(cgroup.PLACE.place(group, _SWAP))
        if (values.get(_SWAP, UNLIMITED) if before is None else before.value) not in (0, UNLIMITED):
            foreign.append(container.name)
            continue
        request, limit = (memory_qos.amount(container, resource, which) for which in ("requests", "limits"))
        most = memory_qos.swap_max(percent, request=request, limit=limit)
        total += most
        limits |= {group: {_SWAP: most}} if _SWAP in values else {}
    changes = tuple(change for group, values in limits.items() for change in _changes(snapshot, group, values))
    evidence: dict[str, int | str] = {"swap_bytes": total, "swap_percent": percent, "files": len(changes)}
    evidence |= {"clipped": f"swapMaxPercent {claim} → {bound}"} if claim is not None and claim > bound else {}
    evidence |= {"containers": ", ".join(foreign)} if foreign else {}
    verdict: Verdict = "set" if changes else "hold"
    reason = "SwapOfOthers" if foreign else "SwapLimit"
    return Decision(f"pod/{pod.key}", verdict, reason, evidence, changes), limits


def _levels(snapshot: Snapshot) -> tuple[str, ...]:
    layout = snapshot.layout
    return layout.kubepods, layout.burstable, layout.besteffort


def _of_levels(snapshot: Snapshot, by_level: Mapping[str, list[Values]]) -> dict[str, Values]:
    """Sums for the levels that have such pods, all of them for the root, and the order of the OOM killer of a class.

    Koordinator writes `memory.oom.group` here as well: then running out of memory would end every pod of the level.
    """
    sums = {level: memory_qos.sums(pods) for level, pods in by_level.items() if pods}
    if sums:
        sums[snapshot.layout.kubepods] = memory_qos.sums(pod for pods in by_level.values() for pod in pods)
    qos = snapshot.slo.resource_qos
    for level, settings in zip(_levels(snapshot), (qos.lsr_class, qos.ls_class, qos.be_class), strict=True):
        if settings.memory_qos.enable:
            order = memory_qos.of_class(settings.memory_qos)
            order.pop("memory.oom.group")
            sums[level] = {**sums.get(level, {}), **order}
    return {level: values for level, values in sums.items() if level in snapshot.cgroups}


def _decided(snapshot: Snapshot, subject: str, reason: str, targets: Mapping[str, Values]) -> Decision:
    changes = tuple(change for group, values in targets.items() for change in _changes(snapshot, group, values))
    first = next(iter(targets.values()))
    evidence = {_FIELD_NAMES[field]: first[field] for field in _PROTECTION if field in first}
    return Decision(subject, "set" if changes else "hold", reason, {**evidence, "files": len(changes)}, changes)


def _changes(snapshot: Snapshot, group: str, targets: Values) -> Iterator[CgroupChange]:
    """Changes: what differs among the files this kernel has."""
    present = snapshot.cgroups[group].values if group in snapshot.cgroups else {}
    for field, target in targets.items():
        value = memory_qos.rounded(field, target, page=snapshot.page_bytes)
        if field in present and present[field] != value:
            yield CgroupChange(group, field, value)
