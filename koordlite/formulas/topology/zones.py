"""The NUMA zones of a node: what each has, and what of it may be handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordlite.model.quantity import Quantity
from koordlite.model.topology import NUMANode

Resources = Mapping[str, Quantity]

HUGE_PAGES = {"hugepages-1Gi": 2**30, "hugepages-2Mi": 2**21}
"""Resource name → bytes of one page."""


def capacity(node: NUMANode, *, huge_pages: bool = True) -> dict[str, Quantity]:
    """Logical CPUs, huge pages, and the memory that is not huge pages.

    Without `huge_pages` all memory counts as ordinary. Source: Koordinator `calTopologyZoneList`.
    """
    pages = {name: dict(node.huge_pages).get(size, 0) if huge_pages else 0 for name, size in HUGE_PAGES.items()}
    plain = max(0, node.memory - sum(pages.values()))
    amounts = {"cpu": len(node.cpus), **pages, "memory": plain}
    return {name: Quantity.of(amount, "DecimalSI" if name == "cpu" else "BinarySI") for name, amount in amounts.items()}


def allocatable(zones: Sequence[Resources], reserved: Resources) -> list[dict[str, Quantity]]:
    """capacity − ⌈reserved / n⌉ for each zone, where n zones have the resource at all.

    A zone without CPUs bears no part of the reserved CPUs. Source: Koordinator `applyNUMAReservationToZoneResources`,
    which refuses machines with such zones.
    """
    shares = {
        name: share(amount, sum(1 for zone in zones if name in zone and zone[name].nano))
        for name, amount in reserved.items()
    }
    return [without(zone, shares) for zone in zones]


def share(amount: Quantity, count: int) -> Quantity:
    """⌈amount / count⌉ in thousandths, 0 for no parts. Source: Koordinator `divideResourceByCount`."""
    return Quantity.of_milli(-(-amount.milli // count)) if count > 0 else Quantity(0)


def without(zone: Resources, shares: Resources) -> dict[str, Quantity]:
    """max(zone − share, 0); shares that are not positive take nothing."""
    return {
        name: Quantity(max(0, amount.nano - max(0, shares[name].nano)), amount.format) if name in shares else amount
        for name, amount in zone.items()
    }
