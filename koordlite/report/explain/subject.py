"""`koordlite explain SUBJECT`, for the command line and the HTTP server, as text or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordlite.model import printable
from koordlite.report import units
from koordlite.report.explain import allocatable, cpus, decided, file, numa, pod, settings
from koordlite.report.history import NOTHING, DecisionEvent, Remembered
from koordlite.report.json import run_report
from koordlite.report.tick import Tick

_MOVES = 10
"""Budget changes that are listed with their causes."""
_NOT_KNOWN = "  none is remembered: it did not move, or not by the use of pods"
TextAnswer = Callable[[str, Tick, Remembered], str]
JsonAnswer = Callable[[str, Tick, Remembered], dict[str, Any]]


def explain(subject: str, tick: Tick, past: Remembered = NOTHING, *, output: str = "text", who: bool = False) -> str:
    """Explain what holds for `subject` and why. ValueError says what can be asked when there is nothing of that name.

    `node` is everything in sentences, `pod NAME` all that concerns one pod, `numa NAMESPACE/POD` whether a pod is
    aligned and what keeps it from that, `cpu N` whose a CPU is, `cpus` the owners of all of them, `file PATH` who
    writes a file, `allocatable` every term of what the node promises, `config` and `config.KEY` the settings of the
    ConfigMap, `resctrl` cache and bandwidth, everything else the decisions (`decided`).
    `output` is text or json. `who` adds whose use moved the budgets that `subject` means.
    """
    asked = " ".join(subject.split())
    name, (say, document) = _answers(asked)
    if output != "json":
        return printable.lines(say(name, tick, past) + (_who_text(asked, past) if who else ""))
    moved = {"moved": _who(asked, past)} if who else {}
    return run_report.encode(
        {"version": 1, "node": tick.node, "subject": asked, **document(name, tick, past), **moved}
    ).decode()


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


def _answers(subject: str) -> tuple[str, tuple[TextAnswer, JsonAnswer]]:
    """The name asked about, for questions about one thing, else the whole subject; and what answers."""
    if subject.split(".", 1)[0] == settings.SUBJECT:
        return subject, (lambda s, t, p: settings.text(t, s), lambda s, t, p: settings.document(t, s))
    for beginning, answers in _OF_ONE.items():
        if f"{subject} ".startswith(beginning):
            return subject[len(beginning) :].strip(), answers
    return subject, _WHOLE.get(subject, _DECIDED)


def _pod(name: str, tick: Tick, past: Remembered) -> dict[str, Any]:
    parts = {
        part: [run_report.decided(d) for d in decisions] for part, decisions in pod.document(name, tick, past).items()
    }
    return {"kind": "koordlite-pod", "subject": name, **parts, "files": pod.files(name, tick, past)}


def _promised_text(subject: str, tick: Tick, _past: Remembered) -> str:
    found = allocatable.tables(tick.decisions)
    return allocatable.text(found) if found else decided.text(subject, tick)


def _promised(subject: str, tick: Tick, _past: Remembered) -> dict[str, Any]:
    found = allocatable.tables(tick.decisions)
    rest = {} if found else decided.document(subject, tick)
    return {"kind": "koordlite-allocatable", "tables": allocatable.document(found), **rest}


_DECIDED: tuple[TextAnswer, JsonAnswer] = (
    decided.text,
    lambda subject, tick, _: {"kind": "koordlite-explain", **decided.document(subject, tick)},
)
_OF_ONE: Mapping[str, tuple[TextAnswer, JsonAnswer]] = {
    pod.SUBJECT: (pod.text, _pod),
    cpus.OF_ONE: (
        cpus.text_of_one,
        lambda name, tick, past: {"kind": "koordlite-cpu", **cpus.document_of_one(name, tick, past)},
    ),
    file.SUBJECT: (
        file.text,
        lambda path, tick, past: {"kind": "koordlite-file", "files": file.document(path, tick, past)},
    ),
    numa.SUBJECT: (
        lambda name, tick, _: numa.text(name, tick),
        lambda name, tick, _: {"kind": "koordlite-numa", **numa.document(name, tick)},
    ),
}
"""By how the question begins."""
_WHOLE: Mapping[str, tuple[TextAnswer, JsonAnswer]] = {
    allocatable.SUBJECT: (_promised_text, _promised),
    decided.NODE: (
        lambda _, tick, past: decided.node_text(tick, past),
        lambda _, tick, past: {"kind": "koordlite-node", **decided.node_document(tick, past)},
    ),
    cpus.SUBJECT: (
        lambda _, tick, past: cpus.text(tick),
        lambda _, tick, past: {"kind": "koordlite-cpus", **cpus.document(tick)},
    ),
    decided.RESCTRL: (
        lambda _, tick, past: decided.resctrl_text(tick, past),
        lambda _, tick, past: {"kind": "koordlite-resctrl-decisions", **decided.resctrl_document(tick, past)},
    ),
}
