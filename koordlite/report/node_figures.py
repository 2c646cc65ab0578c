"""The node once this tick's writes have landed: the picture, overlaid with the changes that went well,
and what best effort would get if the strategies that only observe were enforced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from koordlite import strategies
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import NodeResourceChange
from koordlite.model import cpuset, keys
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CPULimit, Decision
from koordlite.model.snapshot import Snapshot, gives_way
from koordlite.resctrl.values import CacheUse


class CPUCell(msgspec.Struct, frozen=True):
    """One CPU on the map of the machine."""

    cpu: int
    node: int
    """NUMA node."""
    owner: str
    """`reserved`, `system`, `LSE`, `LSR`, or `LS` for the shared pool."""
    best_effort: bool
    """Best-effort pods may run here."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Numbers of one round that are drawn over time, in millicores and bytes; None is unknown."""

    time: float = 0.0
    """Seconds since the run started, simulated seconds in a sandbox; since the epoch in a replay."""
    node_cpu: int | None = None
    prod_cpu: int | None = None
    """Use of pods and host applications that are not best-effort."""
    be_cpu: int | None = None
    be_limit: int | None = None
    """Limit of best-effort pods after this round: the tighter of their CPUs and their quota."""
    be_budget: int | None = None
    """CPU that the suppress formula leaves best effort."""
    batch_cpu: int | None = None
    batch_memory: int | None = None
    threshold_milli: int | None = None
    """Use of the node above which best-effort pods are limited; None while suppression is off."""
    would_limit: int | None = None
    """Limit of best-effort pods if `cpuSuppress` were enforced; None unless it only observes."""
    would_batch_cpu: int | None = None
    """Their offer if `beAllocatable` were enforced; None unless it only observes."""
    would_batch_memory: int | None = None
    capacity_milli: int = 0


def be_policy(snapshot: Snapshot) -> str:
    """cpuset or cfsQuota, by which best effort is limited."""
    return "cpuset" if snapshot.slo.threshold.cpu_suppress_policy == "cpuset" else "cfsQuota"


class Overlay:
    """The node once `changes` are in force: the picture, overlaid with them."""

    def __init__(self, snapshot: Snapshot, changes: Collection[Change]) -> None:
        self.snapshot, self.changes = snapshot, changes
        self._files: dict[tuple[str, str], object] = {}
        """Values written since the picture was taken, by group and field."""
        self.resources = dict(snapshot.published.node_resources)
        """Amounts of the extended resources of the Node; None of what is not there."""
        for change in changes:
            if isinstance(change, CgroupChange):
                self._files[change.group, change.field] = change.value
            elif isinstance(change, NodeResourceChange):
                self.resources[change.resource] = change.value

    def cpuset(self, group: str) -> CPUSet | None:
        """CPUs that a group is configured with, not those effective in the picture: an empty set on v2 follows the
        parent, whose set may have moved since."""
        cgroup = self.snapshot.cgroups.get(group)
        cpus = self._files.get((group, "cpuset.cpus"), cgroup.cpuset if cgroup else None)
        return cpus if isinstance(cpus, CPUSet) else None

    def quota_milli(self, group: str) -> int | None:
        """Quota of a group in millicores; None when unlimited or unknown."""
        cgroup = self.snapshot.cgroups.get(group)
        quota_us = self._files.get((group, "cpu.quota"), cgroup.quota_us if cgroup else None)
        if not isinstance(quota_us, int) or quota_us < 0:
            return None
        return quota_us * 1000 // (cgroup.period_us if cgroup else 100_000)

    @cached_property
    def best_effort(self) -> CPUSet | None:
        """CPUs best-effort containers may run on; None when their group cannot be read.

        Under kubelet's static CPU policy only the containers are narrowed, so their own sets count, inside the root's.
        """
        name = self.snapshot.layout.besteffort
        group, root = self.snapshot.cgroups.get(name), self._files.get((name, "cpuset.cpus"))
        if not isinstance(root, CPUSet):
            if group is None:
                return None
            root = group.effective if group.effective is not None else group.cpuset
        if root is None:
            return None
        places = [place for place in self.snapshot.places.values() if place.group.startswith(f"{name}/")]
        groups = {each for place in places for each in (place.group, *place.containers.values())}
        sets = {each: self.cpuset(each) for each in groups}
        # Most containers have the same few sets: each is narrowed once.
        pairs = {(sets[place.group], sets[each]) for place in places for each in place.containers.values()}
        return cpuset.union(root & (pod or root) & (container or root) for pod, container in pairs) or root

    @property
    def best_effort_limit(self) -> int | None:
        """Millicores best-effort pods may use: the tighter of their CPUs and their quota; None when unknown."""
        quota, cpus = self.quota_milli(self.snapshot.layout.besteffort), self.best_effort
        limits = [limit for limit in (quota, len(cpus) * 1000 if cpus is not None else None) if limit is not None]
        return min(limits, default=None)


def figures(now: Overlay, decisions: Sequence[Decision], modes: Mapping[str, str], *, time: float) -> Figures:
    """The figures of the node as it is `now`; `decisions` and `modes` are those of that round."""
    snapshot = now.snapshot
    capacity = snapshot.node.capacity_milli if snapshot.node else len(snapshot.topology.cpus) * 1000
    settings, usage = snapshot.slo.threshold, snapshot.usage
    budgets = (decision.outcome.budget_milli for decision in decisions if isinstance(decision.outcome, CPULimit))
    # What the strategies that only observe would change besides.
    observed = [decision for decision in decisions if modes.get(decision.strategy) == "observe"]
    limits = any(isinstance(decision.outcome, CPULimit) for decision in observed)
    offers = any(modes.get(name) == "observe" for name in strategies.publishing(keys.BATCH_CPU))
    by_place = {change.place: change for change in now.changes}
    for change in (change for decision in observed if limits or offers for change in decision.changes):
        by_place.setdefault(change.place, change)
    would = Overlay(snapshot, by_place.values())
    return Figures(
        time=time,
        node_cpu=usage.node.cpu if usage.node else None,
        prod_cpu=prod_cpu(snapshot),
        be_cpu=usage.best_effort_cpu,
        be_limit=now.best_effort_limit,
        be_budget=next(budgets, None),
        batch_cpu=now.resources.get(keys.BATCH_CPU),
        batch_memory=now.resources.get(keys.BATCH_MEMORY),
        threshold_milli=capacity * settings.cpu_suppress_threshold_percent // 100 if settings.enable else None,
        would_limit=would.best_effort_limit if limits else None,
        would_batch_cpu=would.resources.get(keys.BATCH_CPU) if offers else None,
        would_batch_memory=would.resources.get(keys.BATCH_MEMORY) if offers else None,
        capacity_milli=capacity,
    )


ROUNDING_MILLI = 1000
"""Best effort gets whole CPUs: its budget is rounded up (`formulas.cpu.suppress`, Koordinator
`calculateBESuppressCPU`), so a node that is full is above its threshold by less than this, by the rule. Only what is
beyond that points to a limit that came too late or could not be low enough."""
WELL = "by a CPU or more"
WHY = "less is rounding: limits are whole CPUs"
"""Words of reports for the two."""


def above(use: int | None, threshold: int | None) -> bool:
    """Tell whether `use` exceeds `threshold`, in millicores; False where either is unknown."""
    return use is not None and threshold is not None and use > threshold


def well_above(use: int | None, threshold: int | None) -> bool:
    """Tell whether it is above by more than the rounding can explain."""
    return threshold is not None and above(use, threshold + ROUNDING_MILLI - 1)


def prod_cpu(snapshot: Snapshot) -> int | None:
    """Millicores used by pods and host applications that suppression protects; None without a sample of the node."""
    if snapshot.usage.node is None:
        return None
    give_way = {pod.uid for pod in snapshot.pods if gives_way(snapshot, pod)}
    apps = {app.name for app in snapshot.slo.host_applications if app.is_best_effort}
    pods = sum(use.cpu for uid, use in snapshot.usage.pods.items() if uid not in give_way)
    return pods + sum(use.cpu for name, use in snapshot.usage.host_apps.items() if name not in apps)


class OwnedUse(msgspec.Struct, frozen=True):
    """One cache as one owner uses it. A class has no pod; a pod has the class it counts with, which includes it."""

    qos: str
    cache: int
    use: CacheUse
    namespace: str = ""
    pod: str = ""


def bandwidths(use: CacheUse) -> Iterator[tuple[str, float]]:
    """Bytes per second by Koordinator's word for what is counted; nothing for what the hardware could not say."""
    for word, rate in (("local", use.local_bytes_per_second), ("total", use.total_bytes_per_second)):
        if rate is not None:
            yield word, rate
