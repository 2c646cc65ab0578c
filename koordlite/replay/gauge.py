"""What a round meant for the work on the node: the few numbers that two courses are compared by."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.record.moment import Moment
from koordlite.report import present


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """CPU in millicores; None is unknown."""

    wall: float
    node_cpu: int | None
    prod_cpu: int | None
    """Use of all that is not best effort."""
    be_cpu: int | None
    be_limit: int | None
    """What best effort may use from here on."""
    be_budget: int | None
    """What the formula leaves best effort."""
    capacity: int
    threshold: int | None
    """Use of the node above which best effort is limited; None while suppression is off."""


def gauge(moment: Moment, decisions: Iterable[Decision], done: Iterable[Change]) -> Gauge:
    """The numbers of `moment`, after `decisions` and the changes `done`."""
    seen, changes = moment.seen, list(done)
    capacity = seen.node.capacity_milli if seen.node else len(seen.topology.cpus) * 1000
    settings, cpus = seen.slo.threshold, present.best_effort_cpus(seen, changes)
    return Gauge(
        wall=moment.wall,
        node_cpu=seen.usage.node.cpu if seen.usage.node else None,
        prod_cpu=present.prod_cpu(seen),
        be_cpu=seen.usage.best_effort_cpu,
        be_limit=present.best_effort_limit(seen, cpus, changes),
        be_budget=present.best_effort_budget(decisions),
        capacity=capacity,
        threshold=capacity * settings.cpu_suppress_threshold_percent // 100 if settings.enable else None,
    )


def landed(moment: Moment) -> list[Change]:
    """The changes of the recorded round that were carried out."""
    ok = {step.place for step in moment.applied if step.ok}
    return [change for decision in moment.decisions for change in decision.changes if change.place in ok]
