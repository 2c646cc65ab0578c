"""Tell the kernel's scheduler which pods give way: group identity where the kernel has it, `cpu.idle` elsewhere.

On kernels with `cpu.bvt_warp_ns` (Anolis) every class has an identity from -1 to 2. Mainline kernels know only idle
groups: a class below 0, or one with `schedIdle`, has idle pods. The QoS groups stay as they are there: the kernel
refuses a weight for an idle group, and kubelet writes those weights again and again. Sources: Koordinator hook
GroupIdentity; Linux `sched_group_set_shares`.

Pods labelled LS may lower their identity by annotation `koordinator.sh/cpuQOS`. Host applications have the identity of
their class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.system import SystemFileChange
from koordlite.formulas.system_settings import GROUP_IDENTITY
from koordlite.model import keys
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.qos import CPUQOS
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import class_cpu_qos, group_files

NAME = "cpuIdentity"
NEW_CONTAINERS = "theirs"
POLICY = "groupIdentity"
IDENTITY: CgroupField = "cpu.bvt_warp_ns"
IDLE: CgroupField = "cpu.idle"
_SYSTEM = "system/"
_WRITTEN: tuple[CgroupField, ...] = (IDENTITY, IDLE, "cpu.shares")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpuIdentity`. Identities come from `cpuQOS` of the ConfigMap key `resource-qos-config`."""


def reads(slo: SLO, _pods: Sequence[Pod]) -> tuple[str, ...]:
    """Files to read: those that are written and what goes with them, while a class has CPU QoS."""
    return (*_WRITTEN, f"{_SYSTEM}{GROUP_IDENTITY}") if class_cpu_qos.is_on(slo, POLICY) else ()


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each QoS group, pod and host application whose class has CPU QoS, about the kernel's switch,
    and about what is given back."""
    groups: set[str] = set()
    for subject, group, settings, refusal in _subjects(snapshot) if class_cpu_qos.is_on(snapshot.slo, POLICY) else ():
        if settings.enable or refusal:
            decision = _decided(snapshot, subject, group, settings)
            if refusal:
                # The class's settings hold, and the annotation is refused in words.
                evidence = {**refusal, **decision.evidence}
                decision = Decision(subject, "refuse", "BadCPUQOSAnnotation", evidence, decision.changes)
            yield decision
        if settings.enable and _target(snapshot, settings) != (IDLE, 0):
            groups.add(group)
    yield from _switched_on(snapshot)
    # Groups whose class has no CPU QoS any more get back what was found, those that were idle also their shares.
    changes = tuple(c for c in group_files.releases(snapshot, NAME, _WRITTEN) if c.group not in groups)
    if changes:
        yield Decision("node", "release", "CPUIdentityReleased", {"files": len(changes)}, changes)
    else:
        yield Decision("node", "hold", "CPUIdentityOn" if groups else "CPUIdentityOff", {"groups": len(groups)})


_Refusal = dict[str, str]
"""Evidence about an annotation; empty where there is nothing to be said."""


def _subjects(snapshot: Snapshot) -> Iterator[tuple[str, str, CPUQOS, _Refusal]]:
    """Subjects of a class: name, group and settings, and why an annotation is refused. The QoS groups only
    where the kernel has identities."""
    qos, layout = snapshot.slo.resource_qos, snapshot.layout
    if group_files.has(snapshot, IDENTITY):
        yield layout.burstable, layout.burstable, qos.ls_class.cpu_qos, {}
        yield layout.besteffort, layout.besteffort, qos.be_class.cpu_qos, {}
    for pod in snapshot.pods:
        if not pod.active or pod.uid not in snapshot.places:
            continue
        settings, refusal = class_cpu_qos.of_pod(snapshot.slo, pod), _Refusal()
        if keys.CPU_QOS in pod.annotations:
            claim, bad = pod_overrides.cpu_qos(pod, settings)
            if bad:
                refusal = {"annotation": bad.key, "why": bad.why}
            elif pod.raw_qos is not QoSClass.LS:
                refusal = {"annotation": keys.CPU_QOS, "why": "only pods labelled LS may change their identity"}
            else:
                settings = claim
        yield f"pod/{pod.key}", snapshot.places[pod.uid].group, settings, refusal
    by_class = class_cpu_qos.by_label(snapshot.slo)
    for app in snapshot.slo.host_applications:
        group = snapshot.host_groups.get(app.name, "")
        if group in snapshot.cgroups and app.qos in by_class:
            yield f"host/{app.name}", group, by_class[app.qos], {}


def _switched_on(snapshot: Snapshot) -> Iterator[Decision]:
    """Newer Anolis kernels have a switch for identities; it is `systemConfig`'s where `system-config` names it."""
    place, present = SystemFileChange(GROUP_IDENTITY, "1").place, snapshot.system.get(GROUP_IDENTITY)
    original = snapshot.found.get(place)
    ours = original is not None and original.strategy == NAME
    subject, named = f"{_SYSTEM}{GROUP_IDENTITY}", snapshot.slo.system.sched_group_identity_enabled
    if class_cpu_qos.is_on(snapshot.slo, POLICY) and present is not None and named is None:
        changes = () if present == "1" else (SystemFileChange(GROUP_IDENTITY, "1"),)
        yield Decision(subject, "set" if changes else "hold", "IdentitySwitch", {"value": 1}, changes)
    elif class_cpu_qos.is_on(snapshot.slo, POLICY) and present == "0":
        yield Decision(subject, "hold", "IdentitySwitchedOff", {"value": str(named)})
    elif ours and original is not None and named is None and not class_cpu_qos.is_on(snapshot.slo, POLICY):
        change = SystemFileChange(GROUP_IDENTITY, str(original.value), gives_back=True)
        yield Decision(subject, "release", "IdentitySwitch", {"value": str(original.value)}, (change,))


def _decided(snapshot: Snapshot, subject: str, group: str, settings: CPUQOS) -> Decision:
    values = snapshot.cgroups.get(group, Cgroup()).values
    field, value = _target(snapshot, settings)
    evidence: dict[str, int | str] = {"file": field, "value": value, "identity": settings.group_identity}
    if field == IDLE and value == 0:
        # Mainline kernels have no rank above the ordinary.
        return Decision(subject, "hold", "CPUIdentity", evidence)
    if field not in values:
        return Decision(subject, "skip", "UnsupportedByKernel", {"file": field})
    if field == IDLE and group.startswith(f"{snapshot.layout.besteffort}/"):
        evidence["ranks"] = "best-effort pods among each other, not against services"
    changes = () if values[field] == value else (CgroupChange(group, field, value),)
    return Decision(subject, "set" if changes else "hold", "CPUIdentity", evidence, changes)


def _target(snapshot: Snapshot, settings: CPUQOS) -> tuple[CgroupField, int]:
    if group_files.has(snapshot, IDENTITY):
        return IDENTITY, settings.group_identity
    return IDLE, int(settings.group_identity < 0 or settings.sched_idle == 1)
