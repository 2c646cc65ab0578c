"""What suppression knows of a node: the terms of the budget, and what it remembers from tick to tick."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.formulas.allocatable import reservation
from koordlite.formulas.cpu import suppress
from koordlite.model.picture.usage import Use
from koordlite.model.snapshot import NodeSnapshot, Snapshot, gives_way

Evidence = dict[str, int | float | str]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one round leaves for the next; a flat mapping on the way (`Decision.remember`)."""

    followed_milli: int | None = None
    """The budget that is followed."""
    shrunk_at: float | None = None
    """When a falling budget last took CPU away, by `Snapshot.time`."""
    node_gone_at: float | None = None
    """Since when the Node has been missing."""
    ticked_at: float | None = None
    """When the last tick judged, by `Snapshot.time`."""
    limited_at: float | None = None
    """Since when the limit of the last round has been in force."""
    limit_milli: int | None = None
    """The limit of the last round."""
    allowed_milli_seconds: int = 0
    """CPU time that rounds between two ticks have left to best effort, from the last tick to `limited_at`."""
    owed_milli_seconds: int = 0
    """CPU time that the limit owes to best effort (`suppress.owed_milli_seconds`), as of the last tick."""

    @classmethod
    def of(cls, kept: Mapping[str, float]) -> Memory:
        """From what was remembered; what is missing has its default."""
        return msgspec.convert(dict(kept), cls, strict=False)

    def kept(self) -> dict[str, float]:
        """As it is remembered."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def age_since_shrink(self, now: float) -> float:
        """Seconds since CPU was taken away; infinite if it never was, or if the clock has started again."""
        return now - self.shrunk_at if self.shrunk_at is not None and now >= self.shrunk_at else float("inf")

    def allowed_since_tick(self, now: float, limit_milli: int) -> int | None:
        """CPU time in millicore seconds that the limit has left to best effort since the last tick; None when the
        limit in force is not the one that the last round decided, or the clock has started again."""
        if self.limited_at is None or now < self.limited_at or self.limit_milli != limit_milli:
            return None
        return self.allowed_milli_seconds + round(limit_milli * (now - self.limited_at))


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
