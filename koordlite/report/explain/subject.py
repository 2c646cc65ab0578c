"""`koordlite explain SUBJECT`, for the command line and the HTTP server, as text or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordlite.model import printable
from koordlite.report import units
from koordlite.report.explain import allocatable, cpus, decided, file, numa, pod, settings
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.tick import Tick

Explanation = tuple[str, Callable[[str, Tick, Remembered], Answer]]
"""Kind of document, and what answers, given the name asked about."""
_OF_ONE: Mapping[str, Explanation] = {
    "pod ": ("koordlite-pod", pod.answer),
    "cpu ": ("koordlite-cpu", cpus.single),
    "file ": ("koordlite-file", file.answer),
    "numa ": ("koordlite-numa", numa.answer),
}
"""Explanations by the beginning of the question."""
_WHOLE: Mapping[str, Explanation] = {
    "allocatable": ("koordlite-allocatable", allocatable.answer),
    "node": ("koordlite-node", decided.node),
    "cpus": ("koordlite-cpus", cpus.ledger),
    "resctrl": ("koordlite-resctrl-decisions", decided.resctrl),
}
_MOVES = 10
"""Budget changes that are listed with their causes."""


def explain(subject: str, tick: Tick, past: Remembered = NOTHING, *, output: str = "text", who: bool = False) -> str:
    """Explain what holds for `subject` and why. ValueError says what can be asked when there is nothing of that name.

    `node` is everything in sentences, `pod NAME` all that concerns one pod, `numa NAMESPACE/POD` whether a pod is
    aligned and what keeps it from that, `cpu N` whose a CPU is, `cpus` the owners of all of them, `file PATH` who
    writes a file, `allocatable` every term of what the node promises, `config` and `config.KEY` the settings of the
    ConfigMap, `resctrl` cache and bandwidth, everything else the decisions (`decided`).
    `output` is text or json. `who` adds whose use moved the budgets that `subject` means: of every budget for what is
    asked as a whole.
    """
    subject = " ".join(subject.split())
    name, (kind, answer) = subject, _WHOLE.get(subject, ("koordlite-explain", decided.answer))
    if subject.split(".", 1)[0] == settings.SUBJECT:
        kind, answer = "koordlite-config", settings.answer
    for beginning, explanation in _OF_ONE.items():
        if f"{subject} ".startswith(beginning):
            name, (kind, answer) = subject[len(beginning) :].strip(), explanation
    explained = answer(name, tick, past)
    if who:
        every = subject in _WHOLE
        moves = [e for e in past.events if e.because and (every or decided.concerns(subject, e.decision))][-_MOVES:]
        moved = [f"  {units.when(event.time, event.wall)}  {event.because}" for event in moves]
        none = "  none is remembered: it did not move, or not by the use of pods"
        explained.lines += ["whose use moved it:", *(moved or [none])]
        explained.document["moved"] = [
            {"time": e.time, "wall": e.wall, "subject": e.decision.subject, "because": e.because} for e in moves
        ]
    head = {"version": 1, "kind": kind, "node": tick.node, "subject": subject}
    text = Answer(explained.lines, {**head, **explained.document}).show(output)
    return text if output == "json" else printable.lines(text)
