"""Which pods made the difference between two moments: the ones whose use changed most, the rest summed."""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Usage
from koordlite.model.snapshot import Snapshot
from koordlite.report import units

NAMED = 3
"""Pods named; the others are summed."""
_AVERAGED = ("beAllocatable", "midAllocatable")
"""Strategies that judge the mean of some minutes; `cpuSuppress` judges the last sample."""
_LEAST = {"cpu": 50, "memory": 16 << 20}
"""Millicores and bytes: smaller changes explain nothing."""


def line(decision: Decision, then: Snapshot | None, now: Snapshot | None) -> str:
    """`shop/web-1 +8.2 cores, shop/cache-0 −1.0 cores, 4 others +0.2 cores`; empty where no pod's use made the
    difference, or the decision does not depend on the use of pods."""
    resource = _resource(decision)
    if then is None or now is None or not resource:
        return ""
    read = _average if decision.strategy in _AVERAGED else _last
    before, after = _by_name(then, read(then), resource), _by_name(now, read(now), resource)
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in (*after, *before)}
    most = sorted(changes, key=lambda name: (-abs(changes[name]), name))
    named = [name for name in most[:NAMED] if abs(changes[name]) >= _LEAST[resource]]
    if not named:
        return ""
    rest = [changes[name] for name in most if name not in named and changes[name]]
    words = [f"{name} {_signed(changes[name], resource)}" for name in named]
    if rest:
        others = "1 other" if len(rest) == 1 else f"{len(rest)} others"
        words.append(f"{others} {_signed(sum(rest), resource)}")
    return ", ".join(words)


def _resource(decision: Decision) -> str:
    if decision.strategy == "cpuSuppress":
        return "cpu"
    if decision.strategy in _AVERAGED and decision.subject.endswith(("-cpu", "-memory")):
        return decision.subject.rpartition("-")[2]
    return ""


def _average(seen: Snapshot) -> Usage:
    return seen.average


def _last(seen: Snapshot) -> Usage:
    return seen.usage


def _by_name(seen: Snapshot, usage: Usage, resource: str) -> Mapping[str, int]:
    """Use of all that is not best effort, by the name people know."""
    used = {
        f"{pod.namespace}/{pod.name}": usage.pods[pod.uid]
        for pod in seen.pods
        if pod.uid in usage.pods and not pod.is_best_effort
    }
    used |= {f"host application {name}": use for name, use in usage.host_apps.items()}
    return {name: use.cpu if resource == "cpu" else use.memory for name, use in used.items()}


def _signed(amount: int, resource: str) -> str:
    shown = f"{units.cores(abs(amount))} cores" if resource == "cpu" else units.size(abs(amount))
    return f"{'+' if amount >= 0 else '−'}{shown}"
