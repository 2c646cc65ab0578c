"""The report of a run as JSON, for programs and for keeping.

Version 1. CPU in millicores, memory in bytes, time in seconds since the run started; null is unknown.

    version      1
    kind         "koordlite-run"
    node         name of the node
    status       enforcing | observing | paused | degraded
    because      why degraded, else empty
    environment  names and values of what the run ran on
    settings     the settings in force
    summary      seconds, ticks, secondsAboveThreshold, secondsWellAboveThreshold (by a CPU or more),
                 secondsLate (of that, with BE above its least), prodSecondsAboveThreshold, beCoreHoursAllowed,
                 beCoreHoursUsed, beLimitMin, beLimitMax, wouldLimitMin, wouldLimitMax (had cpuSuppress been
                 enforced; null unless it observed), writes, writesByKind, refusals, foreignWrites, decisions
                 (by reason, in how many ticks), tickSecondsMean, tickSecondsMax
    ticks        rows over time, at most 2000: of a long run every second, fourth … tick
    decisions    decisions that changed: time, wall (seconds since the epoch), because (whose use moved a budget, else
                 empty), subject, strategy, verdict, reason, sentence, evidence, changes
    writes       time, place, value, ok, error, seconds
    foreign      time, place, ours, found
    problems     time (first seen), object, field, value, why, do
    pods         the pods of the last tick: name, qos, cpu, cpuLimit (its quota; null: none), memory, cpus, pressure
                 (percent of the last ten seconds in which some task waited), waitsFor, decided,
                 decidedAt (seconds since the epoch)
    last         the last tick: beCPUSet, lsPool, bePool, schemata, modes, ages, watches, reaction, nri, faults
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.model.snapshot import Snapshot
from koordlite.report import history, node_figures, pods
from koordlite.report.history import Remembered
from koordlite.report.node_figures import Figures
from koordlite.report.sentence import sentence
from koordlite.report.tick import UNSEEN, Tick

VERSION = 1
Object = dict[str, Any]
_OF_A_TICK = ("node", "status", "ls_pool", "be_pool", "schemata", "cache_use", "cpus", "pressure", "numa_memory")
_NOT_SHOWN = ("snapshot", "applied_before")


def document(run: history.History) -> Object:
    """Everything `run` remembers, as plain values."""
    tick = run.last or Tick(time=0.0)
    nri = tick.nri
    return {
        "version": VERSION,
        "kind": "koordlite-run",
        "node": tick.node,
        "status": tick.status,
        "because": tick.because,
        "environment": dict(run.environment),
        "settings": dict(run.settings),
        "summary": fields(run.summary()),
        "ticks": [_row(row) for row in run.rows],
        "decisions": [event(each) for each in run.decisions],
        "writes": [{"time": time, **fields(step)} for time, step in run.writes],
        "foreign": [{"time": time, **fields(write)} for time, write in run.foreign],
        "problems": [{"time": time, **fields(problem)} for problem, time in run.problems.items()],
        "pods": pods.of(tick, run.decisions),
        "last": {
            "beCPUSet": str(tick.best_effort or ""),
            "lsPool": tick.ls_pool,
            "bePool": tick.be_pool,
            "schemata": dict(tick.schemata),
            "modes": dict(tick.modes),
            "ages": dict(tick.snapshot.ages),
            "watches": [fields(watch) for watch in tick.snapshot.watches],
            "reaction": fields(tick.reaction),
            "nri": {
                "setting": nri.setting,
                "runtime": nri.runtime,
                "why": nri.why,
                "answers": [{"method": m, "outcome": o, "count": count} for (m, o), count in nri.answers.items()],
                "results": dict(nri.results),
            },
            "faults": fields(tick.faults),
        },
    }


def encode(value: Object) -> bytes:
    """`value` as `printable.document`, in UTF-8, ending in a newline."""
    return printable.document(value).encode() + b"\n"


def state(tick: Tick) -> Object:
    """One tick, whole: what `/state` serves. The settings are not in it; `explain config` has them."""
    snapshot, names = tick.snapshot, (*_OF_A_TICK, *(n for n in Tick.__dataclass_fields__ if n not in _NOT_SHOWN))
    return {
        "version": VERSION,
        "kind": "koordlite-state",
        **fields(tick.figures),
        **{_camel(name): getattr(tick, name) for name in names},
        "nodeMemory": snapshot.usage.node.memory if snapshot.usage.node else None,
        "bePolicy": node_figures.be_policy(snapshot),
        "beCpuset": str(tick.best_effort or ""),
        "nodePercentiles": snapshot.node_percentiles,
        "ages": snapshot.ages,
        "watches": [fields(watch) for watch in snapshot.watches],
        "decisions": [decided(decision) for decision in tick.decisions],
    }


def decided(decision: Decision) -> Object:
    """A decision with its sentence; changes by the place they are about."""
    return {
        "subject": decision.subject,
        "strategy": decision.strategy,
        "verdict": decision.verdict,
        "reason": decision.reason,
        "sentence": sentence(decision),
        "evidence": dict(decision.explained),
        "changes": [str(change.place) for change in decision.changes],
    }


def event(event: history.DecisionEvent) -> Object:
    """A decision that changed, with its time and whose use moved it."""
    return {"time": event.time, "because": event.because, **decided(event.decision)}


def fields(value: Any) -> Object:
    """The fields of a Struct or a dataclass under camelCase names."""
    return {_camel(name): getattr(value, name) for name in field_names(value) or ()}


def _row(numbers: Figures) -> Object:
    return {name: value for name, value in fields(numbers).items() if name != "capacityMilli"}


def _camel(name: str) -> str:
    head, *words = name.split("_")
    return head + "".join(word.capitalize() for word in words)


MAX_EVENTS = 50


def recent(past: Remembered) -> Object:
    """The last minutes of a running agent: what `/recent` serves.

    version    1
    kind       "koordlite-recent"
    rows       numbers of the last ticks: time, nodeCpu, prodCpu, beCpu, beLimit, beBudget, batchCpu, batchMemory,
               thresholdMilli; wouldLimit, wouldBatchCpu, wouldBatchMemory while the strategy only observes
    decisions  recent decisions, the newest last: time, wall, because (whose use moved a budget, else empty), and the
               decision as in `/state`
    """
    events = list(past.events)[-MAX_EVENTS:]
    return {
        "version": VERSION,
        "kind": "koordlite-recent",
        "rows": [_row(row) for row in past.rows],
        "decisions": [{"wall": each.wall, **event(each)} for each in events],
    }


def picture(snapshot: Snapshot) -> dict[str, Any] | None:
    """Every part of the picture under its name; None where there was none. Keys of several parts are joined by `/`."""
    if snapshot is UNSEEN:
        return None
    # `explain config` has the settings, with their origins.
    names = (name for name in Snapshot.__dataclass_fields__ if name != "slo")
    return {_camel(name): _plain(getattr(snapshot, name)) for name in names}


def field_names(value: object) -> Iterable[str] | None:
    """The fields of a Struct or a dataclass; None of anything else."""
    names: Iterable[str] | None = getattr(value, "__struct_fields__", None)
    return getattr(value, "__dataclass_fields__", None) if names is None else names


def _plain(value: Any) -> Any:
    """Mappings by text, objects by field, the rest as JSON has it or as it prints itself."""
    if isinstance(value, msgspec.Struct) and value.__struct_encode_fields__ != value.__struct_fields__:
        # Its fields have names of their own in JSON: it is an object of the API server.
        return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    names = field_names(value)
    if names is not None:
        return {_camel(name): _plain(getattr(value, name)) for name in names}
    if hasattr(value, "items"):
        joined = {"/".join(map(str, key)) if isinstance(key, tuple) else str(key): each for key, each in value.items()}
        return {key: _plain(each) for key, each in joined.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return sorted(map(str, value)) if isinstance(value, frozenset | set) else str(value)
