"""Give best-effort pods the shares, the CPU quota and the memory limit that their batch resources stand for.

Kubelet does not know batch-cpu and batch-memory: to it such a pod asks for nothing. Source: Koordinator hook
BatchResource.

Who owns a file that others write too: the quota of the besteffort group is cpuSuppress's. While the policy is cfsQuota
pods have no quota below it, and on cgroup v1 none has more than the group has. An idle pod (cpuIdentity) takes no
shares until it wakes up. The quota of a pod with pinned CPUs outside the besteffort group is cpusetPools'. cpuBurst
leaves BE pods alone, and memoryQos writes other files: min, low and high.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas import batch_resource
from koordlite.formulas.batch_resource import UNLIMITED, Resources, Values
from koordlite.model import keys
from koordlite.model.cgroup_fields import CgroupField, shares_of_weight, weight_of_shares
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Amounts, ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.settings import StrategySettings
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import group_files

NAME = "batchResource"
NEW_CONTAINERS = "theirs"
LIMIT: CgroupField = "memory.limit"
_FIELDS: tuple[CgroupField, ...] = ("cpu.shares", "cpu.quota", LIMIT)
_BATCH = (keys.BATCH_CPU, keys.BATCH_MEMORY)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `batchResource`. What is asked for stands in the pods."""

    limit_below_use: bool = False
    """Write a memory limit also where a container already holds more than that, page cache aside: on cgroup v2 the
    kernel then ends one of its processes at once, on v1 it refuses."""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's group or a container's, what it asks for and what it gets."""

    name: str
    group: str
    amounts: Resources
    values: Values
    fields: tuple[CgroupField, ...]
    """The files of it that this strategy owns."""


def pod_reads(_slo: SLO, pods: Sequence[Pod]) -> dict[str, tuple[str, ...]]:
    """Files to read, of the BE pods with batch resources."""
    return {pod.uid: ("cpu.shares", LIMIT) for pod in pods if _concerns(pod)}


def memory_held(snapshot: Snapshot) -> Iterator[str]:
    """Groups whose memory limit is to fall."""
    for pod in snapshot.pods:
        if pod.uid in snapshot.places and _concerns(pod):
            yield from (part.group for part in _parts(snapshot, pod) if _limit_falls(snapshot, part))


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each BE pod with batch resources, about each memory limit that waits, and about what is
    given back."""
    targets: set[tuple[str, str]] = set()
    for pod in snapshot.pods:
        yield from _unbelieved(pod)
        if pod.uid not in snapshot.places or not _concerns(pod):
            continue
        parts = _parts(snapshot, pod)
        if not parts:
            continue  # Its groups are gone, or none of their files can be read.
        targets |= {(part.group, field) for part in parts for field in part.fields}
        changes = tuple(c for part in parts for field in part.fields for c in _change(snapshot, part, field, config))
        evidence = _evidence(snapshot, parts)
        yield Decision(f"pod/{pod.key}", "set" if changes else "hold", "BatchResources", evidence, changes)
        yield from (d for part in parts for d in _memory_notes(snapshot, pod, part, config))
    releases = (c for c in group_files.releases(snapshot, NAME, _FIELDS) if (c.group, c.field) not in targets)
    # An idle group takes its shares later.
    back = tuple(c for c in releases if c.field != "cpu.shares" or not _idle(snapshot, c.group))
    if back:
        yield Decision("node", "release", "BatchResourcesReleased", {"files": len(back)}, back)
    else:
        yield Decision("node", "hold", "BatchResourcesOn" if targets else "BatchResourcesOff")


def _concerns(pod: Pod) -> bool:
    """Tell whether it is labelled BE and asks for batch resources."""
    return pod.raw_qos is QoSClass.BE and pod.active and any(recorded(pod, each) for each in pod.containers)


def recorded(pod: Pod, container: ContainerInfo) -> Amounts | None:
    """The batch resources of a container; None where its spec has none. The annotation can only lower them."""
    if not any(name in container.requests or name in container.limits for name in _BATCH):
        return None
    noted = pod.extended_resources.get(container.name, Amounts())
    return Amounts(_at_most(container.requests, noted.requests), _at_most(container.limits, noted.limits))


def _at_most(spec: Mapping[str, Quantity], noted: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    lower = {name: noted[name] for name in _BATCH if name in noted and name in spec and noted[name].value > 0}
    return {**spec, **{name: min(amount, spec[name]) for name, amount in lower.items()}}


def _unbelieved(pod: Pod) -> Iterator[Decision]:
    """Containers that the annotation names beyond the pod's spec."""
    if not pod.extended_resources or pod.raw_qos is not QoSClass.BE or not pod.active:
        return
    excess = []
    for container in pod.containers:
        noted = pod.extended_resources.get(container.name, Amounts())
        for theirs, spec in ((noted.requests, container.requests), (noted.limits, container.limits)):
            excess += [
                f"{container.name} {name} {theirs[name]} > {spec.get(name, 'none')}"
                for name in _BATCH
                if name in theirs and theirs[name].value > (spec[name].value if name in spec else 0)
            ]
    if excess:
        evidence = {"annotation": keys.EXTENDED_RESOURCE_SPEC, "exceeds": "; ".join(dict.fromkeys(excess))}
        yield Decision(f"pod/{pod.key}", "refuse", "AnnotationExceedsSpec", evidence)


def _amounts(amounts: Amounts, native: Amounts) -> Resources:
    """Batch amounts; where one is missing the native one counts, which kubelet has written."""
    return Resources(
        request_milli=_amount(amounts.requests, keys.BATCH_CPU) or _milli(native.requests),
        limit_milli=_amount(amounts.limits, keys.BATCH_CPU) or _milli(native.limits),
        limit_bytes=_amount(amounts.limits, keys.BATCH_MEMORY) or _amount(native.limits, "memory"),
    )


def _amount(amounts: Mapping[str, Quantity], name: str) -> int:
    """Count whole units, rounded up, as Koordinator takes them: batch-cpu counts millicores."""
    return max(amounts[name].value, 0) if name in amounts else 0


def _milli(amounts: Mapping[str, Quantity]) -> int:
    return max(amounts["cpu"].milli, 0) if "cpu" in amounts else 0


def _parts(snapshot: Snapshot, pod: Pod) -> tuple[_Part, ...]:
    """The pod, and those of its containers that have batch resources and a group. Of the others kubelet has written all
    but what a CPU of this node is worth: their quota is part of the pod's, and divided as that is."""
    amounts = {c.name: _amounts(recorded(pod, c) or Amounts(), Amounts(c.requests, c.limits)) for c in pod.containers}
    overhead = Amounts(pod.overhead, pod.overhead)
    containers = ((amounts[c.name], c.one_shot) for c in pod.containers)
    of_pod = batch_resource.of_pod(containers, _amounts(overhead, overhead))
    place, ratio = snapshot.places[pod.uid], snapshot.notes.cpu_normalization or 1.0
    pinned = bool(pod.resource_status.cpuset) and pod.kube_qos is not KubeQoS.BEST_EFFORT
    owned = tuple(field for field in _FIELDS if field != "cpu.quota" or not pinned)
    parts = [_part(snapshot, "pod", place.group, of_pod, owned)]
    for container in pod.containers:
        group, fields = place.containers.get(container.name, ""), owned
        if not recorded(pod, container):
            divides = amounts[container.name].limit_milli > 0 and ratio > 1 and not quota_off(snapshot.slo)
            fields = tuple(field for field in owned if field == "cpu.quota" and divides)
        if fields and group in snapshot.cgroups:
            parts.append(_part(snapshot, container.name, group, amounts[container.name], fields))
    return tuple(part for part in parts if part.group in snapshot.cgroups)


def _part(snapshot: Snapshot, name: str, group: str, amounts: Resources, fields: tuple[CgroupField, ...]) -> _Part:
    period_us = snapshot.cgroups[group].period_us if group in snapshot.cgroups else Cgroup().period_us
    values = batch_resource.values(
        amounts, period_us=period_us, ratio=snapshot.notes.cpu_normalization or 1.0, quota_off=quota_off(snapshot.slo)
    )
    limit_bytes = values.limit_bytes
    if limit_bytes > 0:
        # The kernel keeps whole pages; otherwise what stands there would never be what was asked for.
        limit_bytes = max(limit_bytes // snapshot.page_bytes * snapshot.page_bytes, snapshot.page_bytes)
    # cgroup v1 refuses a quota above that of a group higher up.
    root, quota_us = snapshot.layout.besteffort, values.quota_us
    above = snapshot.cgroups.get(root, Cgroup()).quota_us
    inside = snapshot.layout.version == 1 and group.startswith(f"{root}/")
    if inside and above is not None and UNLIMITED not in (above, quota_us):
        quota_us = min(quota_us, above)
    return _Part(
        name=name,
        group=group,
        amounts=amounts,
        values=msgspec.structs.replace(values, limit_bytes=limit_bytes, quota_us=quota_us),
        fields=fields,
    )


def quota_off(slo: SLO) -> bool:
    """Tell whether the policy is cfsQuota, under which the besteffort group itself is limited. Source: Koordinator
    `parseRuleForNodeSLO`."""
    threshold = slo.threshold
    return threshold.enable and threshold.cpu_suppress_policy in ("cfsQuota", "guided")


def _evidence(snapshot: Snapshot, parts: Sequence[_Part]) -> dict[str, int | float | str]:
    """The numbers of the pod, then each container in one text."""
    whole = parts[0]
    ratio = snapshot.notes.cpu_normalization or 1.0
    evidence: dict[str, int | float | str] = {"batch_cpu": whole.amounts.request_milli, "shares": whole.values.shares}
    if whole.amounts.limit_milli and quota_off(snapshot.slo):
        evidence["policy"] = snapshot.slo.threshold.cpu_suppress_policy
    elif whole.amounts.limit_milli:
        evidence["batch_cpu_limit"] = whole.amounts.limit_milli
        evidence |= {"normalization_ratio": ratio} if ratio > 1 else {}
        evidence["quota_us"] = whole.values.quota_us
    if whole.values.limit_bytes > 0:
        evidence["memory_limit_bytes"] = whole.values.limit_bytes
    # Pods of one template share the text.
    evidence["containers"] = sys.intern("; ".join(_words(part) for part in parts[1:]))
    idle = [part.name for part in parts if _idle(snapshot, part.group)]
    if idle:
        evidence["idle"] = ", ".join(idle)
    return evidence


def _words(part: _Part) -> str:
    if LIMIT not in part.fields:
        return f"{part.name} native {part.amounts.limit_milli}m → quota {part.values.quota_us} µs"
    quota = "no quota" if part.values.quota_us == UNLIMITED else f"quota {part.values.quota_us} µs"
    memory = "no memory limit" if part.values.limit_bytes == UNLIMITED else f"memory limit {part.values.limit_bytes} B"
    return f"{part.name} {part.amounts.request_milli}m → {part.values.shares} shares, {quota}, {memory}"


def _change(snapshot: Snapshot, part: _Part, field: CgroupField, config: Config) -> Iterator[CgroupChange]:
    """The change if it is one, and may be made; a value that is back where it was found is not ours any more."""
    present = cgroup.present(snapshot.cgroups[part.group], field)
    if field == "cpu.shares":
        value = part.values.shares
        # v2 keeps a coarser weight, and that is what is read.
        coarse = value if snapshot.layout.version == 1 else shares_of_weight(weight_of_shares(value))
        stands = present is None or _idle(snapshot, part.group) or present in (value, coarse)
    elif field == "cpu.quota":
        value = part.values.quota_us
        stands = present is None or present == value
    else:
        value = part.values.limit_bytes
        use = snapshot.memory_held.get(part.group)
        # It would end a process at once, or nobody knows whether it would.
        kills = not config.limit_below_use and (use is None or use.fixed > value)
        stands = present is None or present == value or (kills and _limit_falls(snapshot, part))
    if not stands:
        yield group_files.change(snapshot, part.group, field, value)


def _idle(snapshot: Snapshot, group: str) -> bool:
    """The kernel takes no shares for an idle group."""
    return snapshot.cgroups[group].values.get("cpu.idle") == 1


def _limit_falls(snapshot: Snapshot, part: _Part) -> bool:
    present, limit_bytes = snapshot.cgroups[part.group].values.get(LIMIT), part.values.limit_bytes
    if LIMIT not in part.fields:
        return False
    return present is not None and limit_bytes != UNLIMITED and (present == UNLIMITED or limit_bytes < present)


def _memory_notes(snapshot: Snapshot, pod: Pod, part: _Part, config: Config) -> Iterator[Decision]:
    """A limit below what is in use is never written without a word."""
    use, subject = snapshot.memory_held.get(part.group), f"pod/{pod.key}"
    if not _limit_falls(snapshot, part):
        return
    named: dict[str, int | str] = {"of": part.name, "memory_limit_bytes": part.values.limit_bytes}
    if use is None:
        yield Decision(subject, "hold", "MemoryUseUnknown", named)
    elif use.total > part.values.limit_bytes:
        numbers = {**named, "used_bytes": use.total, "cache_bytes": use.file_cache}
        if use.fixed <= part.values.limit_bytes:
            yield Decision(subject, "shrink", "MemoryLimitReclaims", numbers)
        elif config.limit_below_use:
            yield Decision(subject, "shrink", "MemoryLimitKills", numbers)
        else:
            yield Decision(subject, "hold", "MemoryLimitBelowUse", numbers)
