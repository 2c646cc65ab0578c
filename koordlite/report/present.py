"""The node once this tick's writes have landed: the picture, overlaid with the changes that went well,
and what best effort would get if the strategies that only observe were enforced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

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

Written = Mapping[tuple[str, str], object]
"""By group and field what has been written since the picture was taken."""


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


def figures(
    snapshot: Snapshot,
    decisions: Sequence[Decision],
    done: Sequence[Change],
    cpus: CPUSet | None,
    modes: Mapping[str, str],
    *,
    time: float,
) -> Figures:
    """The figures once the changes `done` are in force; `decisions` and `modes` are those of that round, `cpus` is the
    answer of `best_effort_cpus` for it."""
    capacity = snapshot.node.capacity_milli if snapshot.node else len(snapshot.topology.cpus) * 1000
    settings, usage = snapshot.slo.threshold, snapshot.usage
    budgets = (decision.outcome.budget_milli for decision in decisions if isinstance(decision.outcome, CPULimit))
    # What the strategies that only observe would change besides.
    observed = [decision for decision in decisions if modes.get(decision.strategy) == "observe"]
    limits = any(isinstance(decision.outcome, CPULimit) for decision in observed)
    offers = any(modes.get(name) == "observe" for name in strategies.publishing(keys.BATCH_CPU))
    by_place = {change.place: change for change in done}
    for change in (change for decision in observed if limits or offers for change in decision.changes):
        by_place.setdefault(change.place, change)
    changes = tuple(by_place.values())
    return Figures(
        time=time,
        node_cpu=usage.node.cpu if usage.node else None,
        prod_cpu=prod_cpu(snapshot),
        be_cpu=usage.best_effort_cpu,
        be_limit=best_effort_limit(snapshot, cpus, done),
        be_budget=next(budgets, None),
        batch_cpu=node_resource(snapshot, keys.BATCH_CPU, done),
        batch_memory=node_resource(snapshot, keys.BATCH_MEMORY, done),
        threshold_milli=capacity * settings.cpu_suppress_threshold_percent // 100 if settings.enable else None,
        would_limit=best_effort_limit(snapshot, best_effort_cpus(snapshot, changes), changes) if limits else None,
        would_batch_cpu=node_resource(snapshot, keys.BATCH_CPU, changes) if offers else None,
        would_batch_memory=node_resource(snapshot, keys.BATCH_MEMORY, changes) if offers else None,
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


def best_effort_cpus(snapshot: Snapshot, done: Iterable[Change] = ()) -> CPUSet | None:
    """CPUs best-effort containers may run on after the changes `done`; None when their group cannot be read.

    Under kubelet's static CPU policy only the containers are narrowed, so their own sets count, inside the root's.
    """
    name, fields = snapshot.layout.besteffort, written(done)
    group, root = snapshot.cgroups.get(name), fields.get((name, "cpuset.cpus"))
    if not isinstance(root, CPUSet):
        if group is None:
            return None
        root = group.effective if group.effective is not None else group.cpuset
    if root is None:
        return None
    prefix = f"{name}/"
    places = [place for place in snapshot.places.values() if place.group.startswith(prefix)]
    groups = {each for place in places for each in (place.group, *place.containers.values())}
    sets = {each: configured(snapshot, each, fields) for each in groups}
    # Most containers have the same few sets: each is narrowed once.
    pairs = {(sets[place.group], sets[each]) for place in places for each in place.containers.values()}
    return cpuset.union(root & (pod or root) & (container or root) for pod, container in pairs) or root


def best_effort_limit(snapshot: Snapshot, cpus: CPUSet | None, done: Iterable[Change] = ()) -> int | None:
    """Millicores best-effort pods may use: the tighter of their CPUs and their quota; None when neither is known."""
    quota = quota_milli(snapshot, snapshot.layout.besteffort, written(done))
    limits = [limit for limit in (quota, len(cpus) * 1000 if cpus is not None else None) if limit is not None]
    return min(limits, default=None)


def node_resource(snapshot: Snapshot, name: str, done: Iterable[Change] = ()) -> int | None:
    """Amount of the extended resource `name` on the Node; None when it is not there."""
    value = snapshot.published.node_resources.get(name)
    for change in done:
        if isinstance(change, NodeResourceChange) and change.resource == name:
            value = change.value
    return value


def prod_cpu(snapshot: Snapshot) -> int | None:
    """Millicores used by pods and host applications that suppression protects; None without a sample of the node."""
    if snapshot.usage.node is None:
        return None
    give_way = {pod.uid for pod in snapshot.pods if gives_way(snapshot, pod)}
    apps = {app.name for app in snapshot.slo.host_applications if app.is_best_effort}
    pods = sum(use.cpu for uid, use in snapshot.usage.pods.items() if uid not in give_way)
    return pods + sum(use.cpu for name, use in snapshot.usage.host_apps.items() if name not in apps)


def written(done: Iterable[Change]) -> Written:
    """Values of cgroup files that the changes `done` have set."""
    return {(c.group, c.field): c.value for c in done if isinstance(c, CgroupChange)}


def configured(snapshot: Snapshot, group: str, fields: Written) -> CPUSet | None:
    """CPUs that a group was configured with, not those effective in the picture: an empty set on v2 follows the parent,
    whose set may have moved since."""
    cgroup = snapshot.cgroups.get(group)
    cpus = fields.get((group, "cpuset.cpus"), cgroup.cpuset if cgroup else None)
    return cpus if isinstance(cpus, CPUSet) else None


def quota_milli(snapshot: Snapshot, group: str, fields: Written) -> int | None:
    """Quota of a group in millicores; None when unlimited or unknown."""
    cgroup = snapshot.cgroups.get(group)
    quota_us = fields.get((group, "cpu.quota"), cgroup.quota_us if cgroup else None)
    if not isinstance(quota_us, int) or quota_us < 0:
        return None
    return quota_us * 1000 // (cgroup.period_us if cgroup else 100_000)


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
