"""Divide the CPU quotas of LS and unlabelled pods by what a CPU of this node is worth, where that is more than 1.

A limit then means the same work on every machine. The ratio is the one on the Node, whoever published it
(`cpuNormalization`, or Koordinator's manager). Quotas that may burst are divided by `cpuBurst`, those of batch
resources by `batchResource`. Source: Koordinator hook CPUNormalization.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec

from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas import ceilings
from koordlite.formulas.cpu import burst
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo import pod_overrides
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.numa.koordinator import assignments
from koordlite.strategies.shared import group_files

NAME = "normalizedQuota"
NEW_CONTAINERS = "theirs"
NEEDS_NODE = "node"
_BURSTING = ("auto", "cfsQuotaBurstOnly")
_BURST = "cpuBurst"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `normalizedQuota`. The ratio is the annotation `node.koordinator.sh/cpu-normalization-ratio`."""


class _Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A group with a limit."""

    name: str
    group: str
    present_us: int
    limit_us: int
    """Quota as kubelet writes it."""
    target_us: int


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide about the node, about each pod with a limit, and about what is given back."""
    ratio = snapshot.notes.cpu_normalization or 1.0
    reason = "QuotasDivided" if ratio > 1 else "QuotasWhole"
    yield Decision("node", "hold", reason, {"ratio": ratio})
    groups, of_pods = set[str](), [(pod, _quotas(snapshot, pod, ratio)) for pod in snapshot.pods]
    for pod, quotas in of_pods if ratio > 1 else ():
        if quotas and not _bursts(snapshot, pod):
            groups |= {quota.group for quota in quotas}
            # A quota that is neither kubelet's nor ours was set for a reason, and stays.
            changes = tuple(
                CgroupChange(each.group, "cpu.quota", each.target_us)
                for each in quotas
                if each.present_us != each.target_us
                and (each.present_us == each.limit_us or group_files.original(snapshot, NAME, each.group, "cpu.quota"))
            )
            texts = "; ".join(f"{each.name} {each.limit_us} → {each.target_us}" for each in quotas)
            divided: dict[str, int | float | str] = {"ratio": ratio, "quotas": texts}
            yield Decision(f"pod/{pod.key}", "set" if changes else "hold", "QuotaDivided", divided, changes)
    # What is not divided any more gets the quota that its limit stands for today, which may not be what was found.
    limits = {quota.group: quota.limit_us for _, quotas in of_pods for quota in quotas}
    for change in group_files.releases(snapshot, NAME, ("cpu.quota",)):
        if change.group not in groups:
            whole = msgspec.structs.replace(change, value=limits.get(change.group, change.value))
            evidence = {"quota": str(whole.value)}
            yield Decision(f"quota/{change.group}", "release", "QuotaWholeAgain", evidence, (whole,))


def _quotas(snapshot: Snapshot, pod: Pod, ratio: float) -> list[_Quota]:
    """Groups of a pod that shares CPUs and has limits; one whose quota another program has lifted is left alone."""
    shares = pod.raw_qos is QoSClass.LS or (pod.raw_qos is QoSClass.NONE and not pod.resource_status.cpuset)
    place = snapshot.places.get(pod.uid)
    if not shares or not pod.active or place is None:
        return []
    limits = [
        (c.name, place.containers.get(c.name, ""), c.limits["cpu"].milli) for c in pod.containers if "cpu" in c.limits
    ]
    whole, quotas = assignments.cpu_limit_milli(pod), list[_Quota]()
    for name, group, limit_milli in (*limits, *([("pod", place.group, whole)] if whole else [])):
        present = snapshot.cgroups.get(group, Cgroup())
        if present.quota_us is not None and present.quota_us != burst.UNLIMITED:
            quota = _Quota(
                name=name,
                group=group,
                present_us=present.quota_us,
                limit_us=burst.base_quota(limit_milli=limit_milli, period_us=present.period_us),
                target_us=burst.base_quota(limit_milli=limit_milli, period_us=present.period_us, ratio=ratio),
            )
            quotas.append(quota)
    return quotas


def _bursts(snapshot: Snapshot, pod: Pod) -> bool:
    """Tell whether `cpuBurst` may raise the quotas of the pod, and so writes them."""
    settings, _ = pod_overrides.cpu_burst(pod, snapshot.slo.cpu_burst)
    place = snapshot.places[pod.uid]
    groups = (place.group, *place.containers.values())
    raised = any(group_files.original(snapshot, _BURST, group, "cpu.quota") is not None for group in groups)
    return raised or ceilings.cpu_burst(settings, snapshot.slo.cpu_burst).policy in _BURSTING
