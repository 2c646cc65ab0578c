"""`koordlite explain cpu 7`: whose a CPU is, who may run on it, why, and when best-effort pods last got or lost it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.report import units
from koordlite.report.explain import pieces
from koordlite.report.history import DecisionEvent
from koordlite.report.json import run_report
from koordlite.report.past import Remembered
from koordlite.report.present import CPUCell
from koordlite.report.sentence import headline
from koordlite.report.tick import Tick

SUBJECT = "cpu "
"""Prefix of such a question."""
BEST_EFFORT = "besteffort"
_OWNERS = {
    "reserved": "is reserved for the system",
    "system": "is set apart for SYSTEM pods",
    "LSE": "belongs to an LSE pod alone",
    "LSR": "belongs to an LSR pod, and best-effort pods may share it",
    "LS": "is in the pool that LS pods share",
}
_SETS = ("cpuset", "reservedCPUs", "ls_pool", "be_pool")
"""Evidence that names CPUs."""


def text(number: str, tick: Tick, past: Remembered) -> str:
    """The answer as lines; ValueError when there is no such CPU."""
    cell = _cell(number, tick)
    lines = [
        f"CPU {cell.cpu}: NUMA node {cell.node}, {_OWNERS[cell.owner]}",
        f"  best-effort pods {'may' if cell.best_effort else 'may not'} run on it at present",
        *pieces.section("decisions that name it", about(cell.cpu, tick.decisions), "none"),
        *pieces.section("best effort at present", _best_effort(tick.decisions), "nothing was decided"),
        *_moves(cell.cpu, past.events),
    ]
    return "\n".join(lines) + "\n"


def document(number: str, tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    cell = _cell(number, tick)
    last = last_move(cell.cpu, past.events)
    moved = {"time": last[0].time, "given": last[1], **run_report.decided(last[0].decision)} if last else None
    decisions = [run_report.decided(decision) for decision in about(cell.cpu, tick.decisions)]
    return {**run_report.fields(cell), "decisions": decisions, "lastMove": moved}


def about(cpu: int, found: Iterable[Decision]) -> list[Decision]:
    """Decisions in whose evidence a CPU list has this CPU, those about best effort as a whole left out."""
    return [d for d in found if d.subject != BEST_EFFORT and any(cpu in _cpus(d, name) for name in _SETS)]


def last_move(cpu: int, events: Iterable[DecisionEvent]) -> tuple[DecisionEvent, bool] | None:
    """The last time best-effort pods got (True) or lost (False) the CPU, among the events; None without one."""
    had: bool | None = None
    last = None
    for event in events:
        for given in _given(event.decision):
            has = cpu in given
            last = (event, has) if had is not None and has != had else last
            had = has
    return last


def _given(decision: Decision) -> Iterator[CPUSet]:
    """The set a decision about best effort asks for."""
    if decision.subject == BEST_EFFORT:
        wanted = (c.value for c in decision.changes if isinstance(c, CgroupChange) and isinstance(c.value, CPUSet))
        yield from list(wanted)[-1:]


def _cpus(decision: Decision, name: str) -> CPUSet:
    try:
        return CPUSet.parse(str(decision.evidence.get(name, "")))
    except ValueError:
        return CPUSet()


def _cell(number: str, tick: Tick) -> CPUCell:
    found = next((cell for cell in tick.cpus if str(cell.cpu) == number.strip()), None)
    if found is None:
        ids = str(CPUSet(cell.cpu for cell in tick.cpus))
        raise ValueError(f"there is no CPU {number!r}; this machine has {ids or 'not been read yet'}")
    return found


def _best_effort(found: Iterable[Decision]) -> list[Decision]:
    return [decision for decision in found if decision.subject == BEST_EFFORT]


def _moves(cpu: int, events: Iterable[DecisionEvent]) -> Iterator[str]:
    last = last_move(cpu, events)
    if last:
        event, given = last
        did = "got" if given else "lost"
        moment = units.when(event.time, event.wall)
        yield f"\nlast change: best-effort pods {did} it at {moment}: {headline(event.decision)}"
