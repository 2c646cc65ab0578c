"""Pods that made the difference between two moments: the ones whose use changed most, the rest summed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite import strategies
from koordlite.model import keys
from koordlite.model.decision import CPULimit, Decision
from koordlite.model.picture.usage import Usage
from koordlite.model.snapshot import Snapshot
from koordlite.report import units
from koordlite.report.tick import UNSEEN

NAMED = 3
"""Pods named; the others are summed."""
_LEAST = {"cpu": 50, "memory": 16 << 20}
"""Millicores and bytes: smaller changes explain nothing."""


class Mark(msgspec.Struct, frozen=True):
    """The number of a decision, and the use of pods at that time."""

    amount: int
    """Millicores or bytes that best effort may use or request."""
    used: Mapping[str, int]


def mark(decision: Decision, snapshot: Snapshot) -> Mark | None:
    """None where the decision does not depend on the use of pods, or has no number."""
    resource = _resource(decision)
    if snapshot is UNSEEN or not resource:
        return None
    limit, result = decision.outcome, decision.evidence.get("result")
    amount = limit.limit_milli if isinstance(limit, CPULimit) else result
    return Mark(amount, _used(decision, snapshot, resource)) if isinstance(amount, int) else None


def because(decision: Decision, before: Mark, now: Mark) -> str:
    """`batch-cpu fell 11.4 → 3.2 because shop/web-1 used 8.2 cores more, 4 others 0.2 cores less`; empty where nothing
    moved, or the use of pods moved the other way: then something else was the cause."""
    resource = _resource(decision)
    changes, named, smaller = _most(before.used, now.used, resource)
    if not named or not (now.amount - before.amount) * sum(changes.values()) < 0:
        return ""
    words = [f"{name} {'used ' if name == named[0] else ''}{_more(changes[name], resource)}" for name in named]
    if abs(sum(smaller)) >= _LEAST[resource]:
        words.append(f"{units.count(len(smaller), 'other')} {_more(sum(smaller), resource)}")
    show = units.cores if resource == "cpu" else units.size
    is_limit = isinstance(decision.outcome, CPULimit)
    what = "the limit of BE" if is_limit else decision.name.rpartition("/")[2] or decision.kind
    moved = "fell" if now.amount < before.amount else "rose"
    return f"{what} {moved} {show(before.amount)} → {show(now.amount)} because {', '.join(words)}"


def line(decision: Decision, then: Snapshot, now: Snapshot) -> str:
    """`shop/web-1 +8.2 cores, shop/cache-0 −1.0 cores, 4 others +0.2 cores`; empty where no pod's use made the
    difference, or the decision does not depend on the use of pods."""
    resource = _resource(decision)
    if then is UNSEEN or now is UNSEEN or not resource:
        return ""
    changes, named, smaller = _most(_used(decision, then, resource), _used(decision, now, resource), resource)
    amounts = [(name, changes[name]) for name in named]
    amounts += [(units.count(len(smaller), "other"), sum(smaller))] if named and smaller else []
    return ", ".join(f"{name} {'+' if amount >= 0 else '−'}{_size(amount, resource)}" for name, amount in amounts)


def _most(
    before: Mapping[str, int], now: Mapping[str, int], resource: str
) -> tuple[dict[str, int], list[str], list[int]]:
    """Changes of use, the names of those that changed most, and the changes of the others."""
    changes = {name: now.get(name, 0) - before.get(name, 0) for name in (*now, *before)}
    most = sorted(changes, key=lambda name: (-abs(changes[name]), name))
    named = [name for name in most[:NAMED] if abs(changes[name]) >= _LEAST[resource]]
    return changes, named, [changes[name] for name in most if name not in named and changes[name]]


def _used(decision: Decision, snapshot: Snapshot, resource: str) -> Mapping[str, int]:
    """Offers go by the mean of some minutes, the limit by the last sample."""
    usage = snapshot.usage if isinstance(decision.outcome, CPULimit) else snapshot.average
    return use_by_name(snapshot, usage, resource)


def _resource(decision: Decision) -> str:
    """`cpu` or `memory`; empty where the decision does not depend on the use of pods."""
    if isinstance(decision.outcome, CPULimit):
        return "cpu"
    resource = decision.subject.rpartition("-")[2]
    is_offer = decision.strategy in strategies.publishing(*keys.PROMISED_RESOURCES)
    return resource if is_offer and "-" in decision.subject and resource in _LEAST else ""


def use_by_name(snapshot: Snapshot, usage: Usage, resource: str) -> dict[str, int]:
    """Use of all that is not best effort, by the name people know."""
    uses = {pod.key: usage.pods[pod.uid] for pod in snapshot.pods if pod.uid in usage.pods and not pod.is_best_effort}
    uses |= {f"host application {name}": use for name, use in usage.host_apps.items()}
    return {name: use.cpu if resource == "cpu" else use.memory for name, use in uses.items()}


def _more(amount: int, resource: str) -> str:
    return f"{_size(amount, resource)} {'more' if amount >= 0 else 'less'}"


def _size(amount: int, resource: str) -> str:
    return f"{units.cores(abs(amount))} cores" if resource == "cpu" else units.size(abs(amount))
