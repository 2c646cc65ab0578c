"""`koordlite explain SUBJECT`, for the command line and the HTTP server alike, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.model.decision import Decision
from koordlite.report import json, pod, promises, settings, text
from koordlite.report.history import DecisionEvent
from koordlite.report.tick import Tick


def explain(subject: str, tick: Tick, events: Iterable[DecisionEvent] = (), *, output: str = "text") -> str:
    """What holds for `subject` and why. ValueError says what can be asked when there is nothing of that name.

    `config` and `config.KEY` mean the settings of the ConfigMap, `allocatable` every term of what the node promises,
    `pod NAME` all that concerns one pod, everything else the decisions (`text.explain`).
    `output` is text or json.
    """
    if subject.split(".", 1)[0] == settings.SUBJECT:
        return (
            json.encode(settings.document(tick, subject)).decode() if output == "json" else settings.text(tick, subject)
        )
    if subject.startswith(pod.SUBJECT):
        return _pod(subject.removeprefix(pod.SUBJECT).strip(), tick, events, output)
    if subject == promises.SUBJECT:
        return _promises(tick, output)
    if output == "json":
        return _decisions(subject, text.chosen(subject, tick.decisions))
    return text.explain(subject, tick.decisions, events)


def _pod(name: str, tick: Tick, events: Iterable[DecisionEvent], output: str) -> str:
    if output != "json":
        return pod.text(name, tick, events)
    found = {part: [json.decided(d) for d in decisions] for part, decisions in pod.document(name, tick).items()}
    return json.encode({"version": 1, "kind": "koordlite-pod", "subject": name, **found}).decode()


def _promises(tick: Tick, output: str) -> str:
    found = promises.tables(tick.decisions)
    if output != "json":
        return promises.text(found)
    tables = promises.document(found)
    return json.encode({"version": 1, "kind": "koordlite-allocatable", "node": tick.node, "tables": tables}).decode()


def _decisions(subject: str, chosen: Iterable[Decision]) -> str:
    found = [json.decided(decision) for decision in chosen]
    return json.encode({"version": 1, "kind": "koordlite-explain", "subject": subject, "decisions": found}).decode()
