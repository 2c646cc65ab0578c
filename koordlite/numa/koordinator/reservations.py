"""Holdings of reservations on a node, as one pod sees them: those it may take, and those it may not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.numa.koordinator.amounts import left, zones_added
from koordlite.numa.koordinator.values import Allocation, Amounts, Zones

RESTRICTED_POLICY = "Restricted"


class Reserved(msgspec.Struct, frozen=True):
    """Holding of one reservation on a node."""

    uid: str
    policy: str = ""
    """`Restricted`: a pod takes all it needs from the reservation; else the rest may come from the node."""
    zones: Zones = msgspec.field(default_factory=dict)
    taken_zones: Zones = msgspec.field(default_factory=dict)
    """What its owners took of them."""
    free_cpus: CPUSet = EMPTY
    """Its CPUs that no owner has."""

    @classmethod
    def of(cls, policy: str, held: Allocation, owners: Iterable[Allocation]) -> Reserved:
        """The reservation that holds `held`, with the allocations of its owners."""
        took = tuple(owners)
        cpus = held.cpus - union(owner.cpus for owner in took)
        return cls(held.uid, policy, held.zones, zones_added(owner.zones for owner in took), cpus)

    @property
    def free_zones(self) -> dict[int, Amounts]:
        """Its amounts that no owner has."""
        return {zone: left(amounts, self.taken_zones.get(zone, {})) for zone, amounts in self.zones.items()}


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """The reservations of one node, as one pod sees them."""

    matched: tuple[Reserved, ...] = ()
    """Those the pod may take."""
    others: tuple[Reserved, ...] = ()
    ignored: bool = False
    """The pod takes what is reserved as if it were free (label reservation-ignored)."""
    nominated: str = ""
    """Uid of the one that was chosen for the pod; empty for none."""

    @property
    def counted_twice(self) -> dict[int, Amounts]:
        """Resources that owners took, of all reservations."""
        return zones_added(one.taken_zones for one in (*self.matched, *self.others))

    def __bool__(self) -> bool:
        return bool(self.matched or self.others)


NO_RESERVATIONS = Reservations()
