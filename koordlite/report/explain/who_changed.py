"""Pods that made the difference between two moments: the ones whose use changed most, the rest summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    changes = {name: now.used.get(name, 0) - before.used.get(name, 0) for name in (*now.used, *before.used)}
    if not (now.amount - before.amount) * sum(changes.values()) < 0:
        return ""
    named, rest = _named(changes, resource)
    if not named:
        return ""
    words = [f"{name} {'used ' if name == named[0] else ''}{_more(changes[name], resource)}" for name in named]
    words += [f"{_others(rest)} {_more(sum(rest), resource)}"] if abs(sum(rest)) >= _LEAST[resource] else []
    show = units.cores if resource == "cpu" else units.size
    what = (
        "the limit of BE"
        if isinstance(decision.outcome, CPULimit)
        else decision.name.rpartition("/")[2] or decision.kind
    )
    moved = "fell" if now.amount < before.amount else "rose"
    return f"{what} {moved} {show(before.amount)} → {show(now.amount)} because {', '.join(words)}"


def line(decision: Decision, then: Snapshot, now: Snapshot) -> str:
    """`shop/web-1 +8.2 cores, shop/cache-0 −1.0 cores, 4 others +0.2 cores`; empty where no pod's use made the
    difference, or the decision does not depend on the use of pods."""
    resource = _resource(decision)
    if then is UNSEEN or now is UNSEEN or not resource:
        return ""
    before, after = _used(decision, then, resource), _used(decision, now, resource)
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in (*after, *before)}
    named, rest = _named(changes, resource)
    words = [f"{name} {_signed(changes[name], resource)}" for name in named]
    if named and rest:
        words.append(f"{_others(rest)} {_signed(sum(rest), resource)}")
    return ", ".join(words)


def _named(changes: Mapping[str, int], resource: str) -> tuple[list[str], list[int]]:
    """The names whose use changed most, and the changes of the others."""
    most = sorted(changes, key=lambda name: (-abs(changes[name]), name))
    named = [name for name in most[:NAMED] if abs(changes[name]) >= _LEAST[resource]]
    return named, [changes[name] for name in most if name not in named and changes[name]]


def _others(rest: Sequence[int]) -> str:
    return "1 other" if len(rest) == 1 else f"{len(rest)} others"


def _used(decision: Decision, snapshot: Snapshot, resource: str) -> Mapping[str, int]:
    """Offers go by the mean of some minutes, the limit by the last sample."""
    return use_by_name(
        snapshot, snapshot.usage if isinstance(decision.outcome, CPULimit) else snapshot.average, resource
    )


def _resource(decision: Decision) -> str:
    if isinstance(decision.outcome, CPULimit):
        return "cpu"
    if decision.strategy in strategies.publishing(*keys.PROMISED_RESOURCES) and decision.subject.endswith(
        ("-cpu", "-memory")
    ):
        return decision.subject.rpartition("-")[2]
    return ""


def use_by_name(snapshot: Snapshot, usage: Usage, resource: str) -> dict[str, int]:
    """Use of all that is not best effort, by the name people know."""
    used = {pod.key: usage.pods[pod.uid] for pod in snapshot.pods if pod.uid in usage.pods and not pod.is_best_effort}
    used |= {f"host application {name}": use for name, use in usage.host_apps.items()}
    return {name: use.cpu if resource == "cpu" else use.memory for name, use in used.items()}


def _signed(amount: int, resource: str) -> str:
    return f"{'+' if amount >= 0 else '−'}{_size(amount, resource)}"


def _more(amount: int, resource: str) -> str:
    return f"{_size(amount, resource)} {'more' if amount >= 0 else 'less'}"


def _size(amount: int, resource: str) -> str:
    return f"{units.cores(abs(amount))} cores" if resource == "cpu" else units.size(abs(amount))
