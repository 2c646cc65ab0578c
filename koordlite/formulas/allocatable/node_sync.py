"""Writing a node's extended resources: when, and in which form.

Batch and mid resources alike. CPU is in millicores, memory in bytes. Source: Koordinator noderesource controller,
`isNodeResourceSyncNeeded`, `IsResourceDiff`, `PrepareNodeForResource`, and the batchresource plugin's `Prepare`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.wire.objects import Zone, ZoneResource

ZONE_RESOURCES = (keys.BATCH_CPU, keys.BATCH_MEMORY)
"""Resources that are offered by NUMA node."""
_SECONDS_PER_MINUTE = 60

Amounts = Mapping[str, int | None]
"""Amounts by resource name; None where the node has none, or is to have none."""


def degraded(*, age_seconds: float | None, degrade_minutes: int) -> bool:
    """age > degrade_minutes × 60: the usage is too old to promise anything on. None: there never was any.

    Source: Koordinator `isDegradeNeeded`.
    """
    return age_seconds is None or age_seconds > degrade_minutes * _SECONDS_PER_MINUTE


def differs(*, old: int | None, new: int | None, threshold: float) -> bool:
    """|new − old| > old × threshold, or only one of them is there: the change is worth a write."""
    if old is None or new is None:
        return old is not new
    # In thousandths, as Koordinator compares: its doubles then round alike.
    return abs(new - old) * 1000 > old * 1000 * threshold


def must_sync(
    *, old: Amounts, new: Amounts, threshold: float, since_last_seconds: float | None, update_seconds: float
) -> str:
    """One of them differs by more than the threshold, or it is time: why all of them are written; else empty.

    What a rule offers goes out together, so that CPU and memory of one moment stand side by side. `old` is what the
    node shows; `since_last_seconds` is None when they were never written in this run.
    """
    if since_last_seconds is None:
        return "not written yet in this run"
    if since_last_seconds > update_seconds:
        return f"last written {since_last_seconds:.0f} s ago, more than {update_seconds:g} s"
    for name, amount in new.items():
        before = old.get(name)
        if differs(old=before, new=amount, threshold=threshold):
            if before is None or amount is None:
                return f"{name} {'appears' if before is None else 'goes away'}"
            return f"{name} {amount} differs from {before} by more than {threshold:g} of it"
    return ""


def multiplied(*, thousandths: int, ratio: float) -> int:
    """trunc(amount × normalization ratio) where the ratio is above 1, else as it is; in thousandths of a unit.

    A batch-cpu is worth the same on every machine, so a faster one offers more of them. Source: Koordinator
    `MultiplyMilliQuant`.
    """
    return int(float(thousandths) * ratio) if ratio > 1 else thousandths


def whole(*, thousandths: int) -> int:
    """⌈amount⌉: the API server takes extended resources of a Node as whole numbers only."""
    return -(-thousandths // 1000)


def prepared(
    *, thousandths: Mapping[str, int | None], ratio: float, allocated: Mapping[str, int]
) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Offer, and what is left of it for Kubernetes: (offered, left), whole numbers by resource.

    batch-cpu is `multiplied` by the normalization `ratio`, then all are made `whole`; `allocated` is what third parties
    have handed out already. None stays None: the resource goes from the Node. Source: Koordinator
    `PrepareNodeForResource`, `Prepare`.
    """
    offered = {
        name: None
        if amount is None
        else whole(thousandths=multiplied(thousandths=amount, ratio=ratio if name == keys.BATCH_CPU else 1.0))
        for name, amount in thousandths.items()
    }
    there = {name: amount for name, amount in offered.items() if amount is not None}
    return offered, {**offered, **left_by_third_parties(offered=there, allocated=allocated)}


def metadata_changes(*, current: Mapping[str, str], target: Mapping[str, str | None]) -> dict[str, str | None]:
    """Annotations or labels of `target` that differ from the `current` ones; None is one to remove."""
    return {key: text for key, text in target.items() if current.get(key) != text}


def left_by_third_parties(*, offered: Mapping[str, int], allocated: Mapping[str, int]) -> dict[str, int]:
    """max(offered − allocated, 0): what Kubernetes may hand out of what another scheduler has begun to fill.

    Source: Koordinator batchresource plugin, third-party allocations of priority koord-batch.
    """
    return {name: max(amount - allocated.get(name, 0), 0) for name, amount in offered.items()}


def zone_changes(
    *, zones: Iterable[Zone], target: Mapping[str, Mapping[str, Quantity]], threshold: float, is_time: bool = False
) -> dict[tuple[str, str], ZoneResource | None]:
    """Amounts to write, by zone and resource, so that each zone offers its part in `target`; None removes it.

    A difference up to the threshold waits until it is time. What a zone still offers without being in `target` is taken
    back; Koordinator leaves it there (docs/compatibility.md). Source: Koordinator `UpdateNRTZoneListIfNeeded`.
    """
    changes: dict[tuple[str, str], ZoneResource | None] = {}
    for zone in zones:
        by_name = {resource.name: resource for resource in zone.resources or ()}
        parts = target.get(zone.name, {})
        for name in ZONE_RESOURCES:
            part, present = parts.get(name), by_name.get(name)
            new = None
            if part is not None:
                # Each of the three amounts by itself: what is close enough stays.
                three = (present.capacity, present.allocatable, present.available) if present else ("", "", "")
                most, promised, free = (_amount_text(each, part, -1.0 if is_time else threshold) for each in three)
                new = ZoneResource(name=name, capacity=most, allocatable=promised, available=free)
            if new != present:
                changes[zone.name, name] = new
    return changes


def _amount_text(present: str | int, target: Quantity, threshold: float) -> str | int:
    try:
        old = Quantity.parse(present)
    except ValueError:
        return str(target)  # Nobody can read it, so nobody can miss it.
    same = old == target or not abs(target.milli - old.milli) > old.milli * threshold
    return present if same else str(target)
