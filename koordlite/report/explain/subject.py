"""`koordlite explain SUBJECT`, for the command line and the HTTP server, as text or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from koordlite.model import printable
from koordlite.report import units
from koordlite.report.explain import allocatable, cpus, decided, file, numa, pod, settings
from koordlite.report.history import NOTHING, DecisionEvent, Remembered
from koordlite.report.json import run_report
from koordlite.report.tick import Tick

_MOVES = 10
"""Budget changes that are listed with their causes."""
_NOT_KNOWN = "  none is remembered: it did not move, or not by the use of pods"


class Explanation(NamedTuple):
    """Answer to one sort of question, given its subject: as text, and as plain values of this `kind`."""

    kind: str
    text: Callable[[str, Tick, Remembered], str]
    document: Callable[[str, Tick, Remembered], dict[str, Any]]


def explain(subject: str, tick: Tick, past: Remembered = NOTHING, *, output: str = "text", who: bool = False) -> str:
    """Explain what holds for `subject` and why. ValueError says what can be asked when there is nothing of that name.

    `node` is everything in sentences, `pod NAME` all that concerns one pod, `numa NAMESPACE/POD` whether a pod is
    aligned and what keeps it from that, `cpu N` whose a CPU is, `cpus` the owners of all of them, `file PATH` who
    writes a file, `allocatable` every term of what the node promises, `config` and `config.KEY` the settings of the
    ConfigMap, `resctrl` cache and bandwidth, everything else the decisions (`decided`).
    `output` is text or json. `who` adds whose use moved the budgets that `subject` means.
    """
    asked = " ".join(subject.split())
    name, answer = _answer(asked)
    if output != "json":
        return printable.lines(answer.text(name, tick, past) + (_who_text(asked, past) if who else ""))
    moved = {"moved": _who(asked, past)} if who else {}
    head = {"version": 1, "kind": answer.kind, "node": tick.node, "subject": asked}
    return run_report.encode({**head, **answer.document(name, tick, past), **moved}).decode()


def _who_text(subject: str, past: Remembered) -> str:
    lines = [f"  {units.when(event.time, event.wall)}  {event.because}" for event in _moved(subject, past)]
    return "".join(f"{line}\n" for line in ("whose use moved it:", *(lines or [_NOT_KNOWN])))


def _who(subject: str, past: Remembered) -> list[dict[str, Any]]:
    found = _moved(subject, past)
    return [{"time": e.time, "wall": e.wall, "subject": e.decision.subject, "because": e.because} for e in found]


def _moved(subject: str, past: Remembered) -> list[DecisionEvent]:
    """The newest events with a cause. What is asked as a whole (`node`, `allocatable`) means every budget."""
    every = subject in _WHOLE
    found = [e for e in past.events if e.because and (every or decided.concerns(subject, e.decision))]
    return found[-_MOVES:]


def _answer(subject: str) -> tuple[str, Explanation]:
    """The name asked about, for questions about one thing, else the whole subject; and what answers."""
    if subject.split(".", 1)[0] == settings.SUBJECT:
        return subject, Explanation("koordlite-config", settings.text, settings.document)
    for beginning, answer in _OF_ONE.items():
        if f"{subject} ".startswith(beginning):
            return subject[len(beginning) :].strip(), answer
    return subject, _WHOLE.get(subject, Explanation("koordlite-explain", decided.text, decided.document))


def _promised_text(subject: str, tick: Tick, _past: Remembered) -> str:
    found = allocatable.tables(tick.decisions)
    return allocatable.text(found) if found else decided.text(subject, tick)


def _promised(subject: str, tick: Tick, _past: Remembered) -> dict[str, Any]:
    found = allocatable.tables(tick.decisions)
    rest = {} if found else decided.document(subject, tick)
    return {"tables": [msgspec.to_builtins(table) for table in found], **rest}


_OF_ONE: Mapping[str, Explanation] = {
    pod.SUBJECT: Explanation("koordlite-pod", pod.text, pod.document),
    cpus.OF_ONE: Explanation("koordlite-cpu", cpus.text_of_one, cpus.document_of_one),
    file.SUBJECT: Explanation("koordlite-file", file.text, file.document),
    numa.SUBJECT: Explanation("koordlite-numa", numa.text, numa.document),
}
"""By how the question begins."""
_WHOLE: Mapping[str, Explanation] = {
    allocatable.SUBJECT: Explanation("koordlite-allocatable", _promised_text, _promised),
    decided.NODE: Explanation("koordlite-node", decided.node_text, decided.node_document),
    cpus.SUBJECT: Explanation("koordlite-cpus", cpus.text, cpus.document),
    decided.RESCTRL: Explanation("koordlite-resctrl-decisions", decided.resctrl_text, decided.resctrl_document),
}
