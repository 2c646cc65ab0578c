"""The terms of the budget that best effort has on a node."""

from __future__ import annotations

from koordlite.formulas.allocatable import reservation
from koordlite.formulas.cpu import suppress
from koordlite.model.picture.usage import Use
from koordlite.model.snapshot import NodeSnapshot, Snapshot, gives_way

Evidence = dict[str, int | float | str]


def budget(seen: NodeSnapshot, used: Use) -> tuple[int, Evidence]:
    """The result of `suppress.be_cpu_budget` in millicores, and its terms under the formula's names.

    The Node must have capacity; `used` is its last sample. Source: Koordinator `calculateBESuppressCPU`;
    who gives way is decided by the cgroup, not by the label (docs/compatibility.md, suppress-by-cgroup).
    """
    capacity, threshold = seen.node.capacity_milli, seen.slo.threshold
    minimum = threshold.cpu_suppress_min_percent
    system = _system_milli(seen, used)
    parts = {"prod_milli": _prod_milli(seen), "host_milli": _host_milli(seen), "system_milli": system}
    budget_milli = suppress.be_cpu_budget(
        capacity_milli=capacity,
        threshold_percent=threshold.cpu_suppress_threshold_percent,
        min_percent=minimum,
        **parts,
    )
    return budget_milli, {
        "capacity_milli": capacity,
        "threshold_percent": threshold.cpu_suppress_threshold_percent,
        **parts,
        **({} if minimum is None else {"min_percent": minimum}),
    }


def _prod_milli(seen: Snapshot) -> int:
    best_effort = {pod.uid for pod in seen.pods if gives_way(seen, pod)}
    return sum(use.cpu for uid, use in seen.usage.pods.items() if uid not in best_effort)


def _host_milli(seen: Snapshot) -> int:
    used = seen.usage.host_apps
    return sum(used[a.name].cpu for a in seen.slo.host_applications if a.name in used and not a.is_best_effort)


def _system_milli(seen: NodeSnapshot, used: Use) -> int:
    return suppress.system_use(
        node_milli=used.cpu,
        pods_milli=sum(use.cpu for use in seen.usage.pods.values()),
        host_apps_milli=sum(use.cpu for use in seen.usage.host_apps.values()),
        reserved_milli=_reserved_milli(seen),
    )


def _reserved_milli(seen: NodeSnapshot) -> int:
    """CPU kept back by kubelet or by the annotation, whichever is more."""
    by_kubelet = reservation.from_kubelet(
        capacity=seen.node.capacity, allocatable=seen.notes.kubelet_allocatable(seen.node)
    )
    kept = reservation.larger(by_kubelet, seen.reserved.resources)
    return kept["cpu"].milli if "cpu" in kept else 0
