"""`koordlite explain SUBJECT`, for the command line and the HTTP server alike, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.model.decision import Decision
from koordlite.report import json, promises, settings, text
from koordlite.report.history import DecisionEvent
from koordlite.report.tick import Tick


def explain(subject: str, tick: Tick, events: Iterable[DecisionEvent] = (), *, output: str = "text") -> str:
    """What holds for `subject` and why. ValueError says what can be asked when there is nothing of that name.

    `config` and `config.KEY` mean the settings of the ConfigMap, `allocatable` every term of what the node promises,
    everything else the decisions (`text.explain`).
    `output` is text or json.
    """
    if subject.split(".", 1)[0] == settings.SUBJECT:
        return (
            json.encode(settings.document(tick, subject)).decode() if output == "json" else settings.text(tick, subject)
        )
    if subject == promises.SUBJECT:
        return _promises(tick, output)
    if output == "json":
        return _decisions(subject, text.chosen(subject, tick.decisions))
    return text.explain(subject, tick.decisions, events)


def _promises(tick: Tick, output: str) -> str:
    found = promises.tables(tick.decisions)
    if output != "json":
        return promises.text(found)
    tables = promises.document(found)
    return json.encode({"version": 1, "kind": "koordlite-allocatable", "node": tick.node, "tables": tables}).decode()


def _decisions(subject: str, chosen: Iterable[Decision]) -> str:
    found = [json.decided(decision) for decision in chosen]
    return json.encode({"version": 1, "kind": "koordlite-explain", "subject": subject, "decisions": found}).decode()
