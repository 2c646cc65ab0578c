"""What best effort would get if the strategies that only observe were enforced: their changes on top of what holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.model import keys
from koordlite.model.change import Change
from koordlite.model.decision import CPULimit, Decision
from koordlite.model.snapshot import Snapshot
from koordlite.report import present


class Would(msgspec.Struct, frozen=True):
    """Millicores and bytes; None where the strategy is enforced or off, so that nothing differs from what holds."""

    limit: int | None = None
    """What best-effort pods could use."""
    batch_cpu: int | None = None
    """What they could request."""
    batch_memory: int | None = None


def would(
    snapshot: Snapshot, decisions: Iterable[Decision], modes: Mapping[str, str], done: Sequence[Change] = ()
) -> Would:
    """`done` are the changes that have been made."""
    observed = [decision for decision in decisions if modes.get(decision.strategy) == "observe"]
    limits = any(isinstance(decision.outcome, CPULimit) for decision in observed)
    offers = modes.get("beAllocatable") == "observe"
    if not limits and not offers:
        return Would()
    wanted = {change.place: change for change in done}
    for change in (change for decision in observed for change in decision.changes):
        wanted.setdefault(change.place, change)
    made = tuple(wanted.values())
    cpus = present.best_effort_cpus(snapshot, made) if limits else None
    return Would(
        limit=present.best_effort_limit(snapshot, cpus, made) if limits else None,
        batch_cpu=present.node_resource(snapshot, keys.BATCH_CPU, made) if offers else None,
        batch_memory=present.node_resource(snapshot, keys.BATCH_MEMORY, made) if offers else None,
    )
