"""`koordlite explain SUBJECT --since 24h`: the same decision at two moments, and which terms made the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from koordlite import strategies
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.report import paragraph, units
from koordlite.report.explain import decided, pieces, pod, who_changed
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.json import run_report
from koordlite.report.sentence import sentence, term
from koordlite.report.tick import Tick


def answer(subject: str, then: Tick, now: Tick, past: Remembered = NOTHING) -> Answer:
    """Decisions then and now about `subject`, and the terms that differ, the largest difference first; in lines about a
    pod also what `past` remembers of the time in between. ValueError when neither moment has a decision, and nothing is
    remembered."""
    is_pod, name = subject.startswith("pod "), subject.removeprefix("pod ")
    before, after = _keyed(subject, then), _keyed(subject, now)
    between = [event for event in past.events if then.wall <= event.wall <= now.wall]
    earlier = pod.events(name, between) if is_pod else []
    if is_pod and not before and not after and not earlier:
        raise ValueError(f"nothing was decided about {subject}, neither then nor now")
    if not is_pod and not before and not after:
        decided.chosen(subject, now.decisions)
    lines = [f"then: {units.moment(then.wall)}", f"now:  {units.moment(now.wall)}", ""]
    documents = []
    for key in dict.fromkeys((*after, *before)):
        old, new = before.get(key), after.get(key)
        names = _different(old.explained if old else {}, new.explained if new else {})
        pods = who_changed.line(new, then.snapshot, now.snapshot) if old and new else ""
        if after or not earlier:
            lines.append(f"{key[1]}  ({key[0]})")
            for word, decision in (("then", old), ("now", new)):
                line = f"{decision.verdict}, {decision.reason}: {sentence(decision)}" if decision else None
                lines.append(f"  {word:<4}  {line or 'nothing was decided'}")
            if old and new:
                rows = paragraph.columns([(units.label(name), _change(name, old, new)) for name in names], "<")
                lines += [f"    {row}" for row in rows] or ["    no number differs"]
            lines += [f"    use that changed most: {pods}", ""] if pods else [""]
        documents.append(
            {
                "then": old and run_report.decided(old),
                "now": new and run_report.decided(new),
                "different": sorted(names),
                "pods": pods,
            }
        )
    lines += [*pieces.changed("earlier:", earlier), ""] if is_pod else []
    document = {"kind": "koordlite-since", "then": then.wall, "now": now.wall, "decisions": documents}
    return Answer(lines, document)


def _keyed(subject: str, tick: Tick) -> dict[tuple[str, str], Decision]:
    """Decisions by strategy and subject."""
    if subject.startswith("pod "):
        decisions = pod.decisions(subject.removeprefix("pod "), tick.decisions)
    elif subject == "allocatable":
        publishing = strategies.publishing(*keys.PROMISED_RESOURCES)
        decisions = [decision for decision in tick.decisions if decision.strategy in publishing]
    else:
        decisions = [decision for decision in tick.decisions if decided.concerns(subject, decision)]
    return {(decision.strategy, decision.subject): decision for decision in decisions}


def _different(before: Mapping[str, Any], after: Mapping[str, Any]) -> Sequence[str]:
    """Names of terms that differ, the largest difference first, words last."""
    names = [name for name in dict.fromkeys((*after, *before)) if before.get(name) != after.get(name)]
    return sorted(names, key=lambda name: -abs(_growth(name, before, after) or 0))


def _growth(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Growth of a number; None where one side is no number."""
    old, new = before.get(name), after.get(name)
    return new - old if isinstance(old, int | float) and isinstance(new, int | float) else None


def _change(name: str, before: Decision, after: Decision) -> str:
    old, new = (
        term(name, decision.explained[name], decision) if name in decision.explained else "–"
        for decision in (before, after)
    )
    growth = _growth(name, before.explained, after.explained)
    by = "" if growth is None else f"  ({'+' if growth > 0 else '−'}{term(name, abs(growth), after)})"
    return f"{old} → {new}{by}"
