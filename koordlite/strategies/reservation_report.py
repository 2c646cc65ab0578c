"""Report which CPUs the node reservation keeps for processes outside Kubernetes.

The annotation `node.koordinator.sh/reservation` is resolved once, when the picture is taken, so that every strategy
sees the same CPUs; this one says what came of it and publishes the concrete list on the NodeResourceTopology. Switched
off, it reports nothing; the CPUs stay reserved as long as the annotation is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.changes.published import TopologyChange
from koordlite.formulas.topology import topology_diff
from koordlite.model import keys, nrt
from koordlite.model.decision import Decision
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import NodeSnapshot, Snapshot

NEW_CONTAINERS = "none"
NEEDS_NODE = "node"
ALIASES = ("reservation",)
OVERVIEW = ("kept for the system", "reservation")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `reservationReport`."""


FORMERLY = "nodeReservation"
"""Off, it never gave the reserved CPUs back: the old name promised too much."""
_REASONS = {"list": "ReservedByList", "quantity": "ReservedByQuantity", "none": "NothingReserved"}


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide about the node: the CPUs and resources reserved, or why the annotation was refused."""
    text = nrt.encode_reservation(snapshot.reserved)
    published = topology_diff.same_text(snapshot.published.topology.get(keys.RESERVATION), text)
    changes = () if published else (TopologyChange(keys.RESERVATION, text),)
    fallback = snapshot.reserved.fallback
    refused = next((p for p in snapshot.problems if p.field == keys.RESERVATION and p.why != fallback), None)
    if refused:
        yield Decision("node", "refuse", "BadReservation", {**_evidence(snapshot), "why": refused.why}, changes)
    else:
        reason = "ReservationFallback" if fallback else _REASONS[snapshot.reserved.source]
        yield Decision("node", "set" if changes else "hold", reason, _evidence(snapshot), changes)


def _evidence(snapshot: Snapshot) -> dict[str, int | str]:
    reserved = snapshot.reserved
    amounts = {name: str(amount) for name, amount in sorted(reserved.resources.items())}
    return {
        "reservedCPUs": str(reserved.cpus),
        "count": len(reserved.cpus),
        **amounts,
        **({"fallback": reserved.fallback} if reserved.fallback else {}),
    }
