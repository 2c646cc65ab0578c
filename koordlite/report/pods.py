"""The pods of the node as rows of a table, made of what a tick saw and decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from koordlite.changes import eviction
from koordlite.model import cpuset, printable
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import gives_way
from koordlite.report.history import DecisionEvent
from koordlite.report.node_figures import Overlay
from koordlite.report.pod_rows import PodRow, ordered
from koordlite.report.sentence import sentence
from koordlite.report.tick import Tick

ALL_BEST_EFFORT = "besteffort"
"""Subject of decisions about all best-effort pods."""
_LONG_AGO = -1.0
"""Time shown for a decision that is not among the recent ones."""


def of(tick: Tick, events: Iterable[DecisionEvent] = ()) -> tuple[PodRow, ...]:
    """The pods that run or wait to run, by CPU use; `events` are recent decisions, the newest last."""
    about = _about(events, tick)
    return ordered((_row(pod, about, tick) for pod in tick.snapshot.pods if pod.active), "cpu")


def _row(pod: Pod, about: Mapping[str, DecisionEvent], tick: Tick) -> PodRow:
    snapshot = tick.snapshot
    use, place = snapshot.usage.pods.get(pod.uid), snapshot.places.get(pod.uid)
    waits = snapshot.pressure.get(place.group, {}) if place else {}
    most = max(waits, key=lambda name: waits[name].some.avg10, default="")
    # A decision whose news has been forgotten still holds.
    names = (pod.key, ALL_BEST_EFFORT) if gives_way(snapshot, pod) else (pod.key,)
    event = max((about[name] for name in names if name in about), key=lambda each: each.time, default=None)
    return PodRow(
        name=printable.one_line(pod.key),
        qos=pod.qos_class.value or "none",
        cpu=use.cpu if use else None,
        cpu_limit=_quota(tick.after, place) if place else None,
        memory=use.memory if use else None,
        cpus=str(cpuset.union(_cpus(tick, place))) if place else "",
        pressure=waits[most].some.avg10 if most else None,
        waits_for=most,
        decided=_words(event.decision, tick) if event else "" if pod.phase == "Running" else pod.phase,
        decided_at=event.wall or None if event else None,
    )


def _words(decision: Decision, tick: Tick) -> str:
    would = "would " if tick.modes.get(decision.strategy) == "observe" and decision.changes else ""
    whose = "all BE: " if decision.kind == ALL_BEST_EFFORT else ""
    return printable.one_line(f"{whose}{would}{decision.verdict}, {decision.reason}: {sentence(decision)}")


def _about(events: Iterable[DecisionEvent], tick: Tick) -> dict[str, DecisionEvent]:
    """The newest event by pod, and of best effort as a whole."""
    now = (DecisionEvent(_LONG_AGO, 0.0, decision) for decision in tick.decisions)
    newest: dict[str, DecisionEvent] = {}
    for event in (*now, *events):
        for name in _pods(event.decision):
            newest[name] = event
    return newest


def _pods(decision: Decision) -> Iterator[str]:
    if decision.kind == "pod":
        yield decision.name
    elif decision.kind == ALL_BEST_EFFORT and (decision.changes or not decision.name):
        yield ALL_BEST_EFFORT
    for change in decision.changes:
        if change.place.kind in (eviction.PLACE, eviction.KILL):
            yield "/".join(change.place.parts[:2])


def _quota(after: Overlay, place: PodGroups) -> int | None:
    """Millicores by the pod's quota, or by those of its containers where each has one; the smaller one."""
    whole = after.quota_milli(place.group)
    parts = [after.quota_milli(group) for group in place.containers.values()]
    quotas = [part for part in parts if part is not None]
    limits = [*([whole] if whole is not None else []), *([sum(quotas)] if quotas and len(quotas) == len(parts) else [])]
    return min(limits, default=None)


def _cpus(tick: Tick, place: PodGroups) -> Iterator[CPUSet]:
    """CPUs of each container: what it was configured with, within the groups above it."""
    for group in place.containers.values():
        parts, cpus = group.split("/"), tick.snapshot.topology.cpuset
        for depth in range(1, len(parts) + 1):
            own = tick.after.cpuset("/".join(parts[:depth]))
            cpus = cpus & own if own else cpus
        yield cpus
