"""Tell the kernel's scheduler which pods give way: group identity where the kernel has it, `cpu.idle` elsewhere.

On kernels with `cpu.bvt_warp_ns` (Anolis) every class has an identity from -1 to 2. Mainline kernels know only idle
groups: a class below 0, or one with `schedIdle`, has idle pods. The QoS groups stay as they are there: the kernel
refuses a weight for an idle group, and kubelet writes those weights again and again. Sources: Koordinator hook
GroupIdentity; Linux `sched_group_set_shares`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence, Set

from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo.qos import CPUQOS
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot

NAME = "cpuIdentity"
IDENTITY: CgroupField = "cpu.bvt_warp_ns"
IDLE: CgroupField = "cpu.idle"
_WRITTEN: tuple[CgroupField, ...] = (IDENTITY, IDLE, "cpu.shares")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpuIdentity`. Identities come from `cpuQOS` of the ConfigMap key `resource-qos-config`."""


def reads(slo: SLO, _pods: Sequence[Pod]) -> tuple[str, ...]:
    """What is written and what goes with it, while a class has CPU QoS."""
    qos = slo.resource_qos
    enabled = any(each.cpu_qos.enable for each in (qos.lsr_class, qos.ls_class, qos.be_class))
    return _WRITTEN if enabled and qos.policies.cpu_policy == "groupIdentity" else ()


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for each QoS group and pod whose class has CPU QoS, one for what is given back."""
    wanted: set[str] = set()
    for subject, group, settings in _subjects(seen):
        if settings.enable and seen.slo.resource_qos.policies.cpu_policy == "groupIdentity":
            yield _decided(seen, subject, group, settings)
            if _wanted(seen, settings) != (IDLE, 0):
                wanted.add(group)
    yield _released(seen, wanted)


def pod_settings(seen: Snapshot, pod: Pod) -> CPUQOS:
    """CPU QoS by label; a pod without one by its Kubernetes class. Source: Koordinator `getPodBvtValue`."""
    qos = seen.slo.resource_qos
    labelled = {QoSClass.LSR: qos.lsr_class, QoSClass.LS: qos.ls_class, QoSClass.BE: qos.be_class}
    if pod.raw_qos in labelled:
        return labelled[pod.raw_qos].cpu_qos
    guaranteed = qos.lsr_class if qos.lsr_class.cpu_qos.enable else qos.ls_class
    by_kube = {KubeQoS.GUARANTEED: guaranteed, KubeQoS.BURSTABLE: qos.ls_class, KubeQoS.BEST_EFFORT: qos.be_class}
    return by_kube[pod.kube_qos].cpu_qos


def _subjects(seen: Snapshot) -> Iterator[tuple[str, str, CPUQOS]]:
    """Whom a class concerns: name, group and settings. The QoS groups only where the kernel has identities."""
    qos, layout = seen.slo.resource_qos, seen.layout
    if _has(seen, IDENTITY):
        yield layout.burstable, layout.burstable, qos.ls_class.cpu_qos
        yield layout.besteffort, layout.besteffort, qos.be_class.cpu_qos
    for pod in seen.pods:
        if pod.active and pod.uid in seen.places:
            yield f"pod/{pod.key}", seen.places[pod.uid].group, pod_settings(seen, pod)


def _decided(seen: Snapshot, subject: str, group: str, settings: CPUQOS) -> Decision:
    values = seen.cgroups.get(group, Cgroup()).values
    field, value = _wanted(seen, settings)
    evidence: dict[str, int | str] = {"file": field, "value": value, "identity": settings.group_identity}
    if field == IDLE and value == 0:
        # Mainline kernels have no rank above the ordinary.
        return Decision(subject, "hold", "CPUIdentity", evidence)
    if field not in values:
        return Decision(subject, "skip", "UnsupportedByKernel", {"file": field})
    changes = () if values[field] == value else (CgroupChange(group, field, value),)
    return Decision(subject, "set" if changes else "hold", "CPUIdentity", evidence, changes)


def _wanted(seen: Snapshot, settings: CPUQOS) -> tuple[CgroupField, int]:
    if _has(seen, IDENTITY):
        return IDENTITY, settings.group_identity
    return IDLE, int(settings.group_identity < 0 or settings.sched_idle == 1)


def _released(seen: Snapshot, wanted: Set[str]) -> Decision:
    """Groups whose class has no CPU QoS any more get back what was found, those that were idle also their shares."""
    changes = tuple(
        CgroupChange(group, field, found.value, gives_back=True)
        for place, found in seen.found.items()
        for group, name in ((place.part("cgroup"), place.part("field")),)
        for field in _WRITTEN
        if field == name and found.strategy == NAME and group not in wanted and group in seen.cgroups
    )
    if changes:
        return Decision("node", "release", "CPUIdentityReleased", {"files": len(changes)}, changes)
    return Decision("node", "hold", "CPUIdentityOn" if wanted else "CPUIdentityOff", {"groups": len(wanted)})


def _has(seen: Snapshot, field: CgroupField) -> bool:
    return field in seen.cgroups.get(seen.layout.kubepods, Cgroup()).values


SENTENCES = {
    "CPUIdentity": "{file} is {value} for identity {identity}",
    "CPUIdentityReleased": "{files} files are restored to the values found",
    "CPUIdentityOn": "{groups} groups have their CPU identity",
    "CPUIdentityOff": "no class has a CPU identity that this kernel supports",
}
