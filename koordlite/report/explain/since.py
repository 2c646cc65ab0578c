"""`koordlite explain SUBJECT --since 24h`: the same decision at two moments, and which terms made the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from koordlite import strategies
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.report import units
from koordlite.report.explain import decided, pod, who_changed
from koordlite.report.explain.allocatable import SUBJECT as PROMISES
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.json import run_report
from koordlite.report.sentence import sentence, term
from koordlite.report.tick import Tick


def render(subject: str, then: Tick, now: Tick, past: Remembered = NOTHING) -> str:
    """Decisions then and now about `subject`, and the terms that differ, the largest difference first; of a pod also
    what `past` remembers of the time in between."""
    between = [event for event in past.events if then.wall <= event.wall <= now.wall]
    name = subject.removeprefix(pod.SUBJECT) if subject.startswith(pod.SUBJECT) else ""
    earlier = [*pod.earlier(name, between), ""] if name else []
    lines = [f"then: {units.moment(then.wall)}", f"now:  {units.moment(now.wall)}", ""]
    for before, after in pairs(subject, then, now) if not any(earlier) or _keyed(subject, now) else ():
        lines += [*_compared(before, after), *_pods(before, after, then, now), ""]
    return "\n".join([*lines, *earlier])


def document(subject: str, then: Tick, now: Tick) -> dict[str, Any]:
    """The same as plain values."""
    found = [
        {
            "then": before and run_report.decided(before),
            "now": after and run_report.decided(after),
            "different": sorted(_different(_terms(before), _terms(after))),
            "pods": _changed_most(before, after, then, now),
        }
        for before, after in pairs(subject, then, now)
    ]
    return {"kind": "koordlite-since", "then": then.wall, "now": now.wall, "decisions": found}


def pairs(subject: str, then: Tick, now: Tick) -> list[tuple[Decision | None, Decision | None]]:
    """The decisions about `subject` of both moments, side by side. ValueError when neither has one."""
    before, after = _keyed(subject, then), _keyed(subject, now)
    if not before and not after and subject.startswith(pod.SUBJECT):
        raise ValueError(f"nothing was decided about {subject}, neither then nor now")
    if not before and not after:
        return [(None, decision) for decision in decided.chosen(subject, now.decisions)]
    return [(before.get(key), after.get(key)) for key in dict.fromkeys((*after, *before))]


def _keyed(subject: str, tick: Tick) -> dict[tuple[str, str], Decision]:
    if subject.startswith(pod.SUBJECT):
        found = pod.decisions(subject.removeprefix(pod.SUBJECT), tick.decisions)
    else:
        found = [decision for decision in tick.decisions if _concerns(subject, decision)]
    return {(decision.strategy, decision.subject): decision for decision in found}


def _concerns(subject: str, decision: Decision) -> bool:
    return (
        decision.strategy in strategies.publishing(*keys.PROMISED_RESOURCES)
        if subject == PROMISES
        else decided.concerns(subject, decision)
    )


def _compared(before: Decision | None, after: Decision | None) -> Iterator[str]:
    known = after or before
    assert known is not None, "a pair has at least one side"
    yield f"{known.subject}  ({known.strategy})"
    for word, decision in (("then", before), ("now", after)):
        line = f"{decision.verdict}, {decision.reason}: {sentence(decision)}" if decision else "nothing was decided"
        yield f"  {word:<4}  {line}"
    if before and after:
        yield from _rows(before, after)


def _pods(before: Decision | None, after: Decision | None, then: Tick, now: Tick) -> Iterator[str]:
    found = _changed_most(before, after, then, now)
    if found:
        yield f"    use that changed most: {found}"


def _changed_most(before: Decision | None, after: Decision | None, then: Tick, now: Tick) -> str:
    return who_changed.line(after, then.snapshot, now.snapshot) if before and after else ""


def _rows(before: Decision, after: Decision) -> Iterator[str]:
    names = _different(before.explained, after.explained)
    wide = max((len(units.label(name)) for name in names), default=0)
    if not names:
        yield "    no number differs"
    for name in names:
        old, new = _shown(name, before), _shown(name, after)
        yield f"    {units.label(name):<{wide}}  {old} → {new}{_change(name, before, after)}"


def _different(before: Mapping[str, Any], after: Mapping[str, Any]) -> Sequence[str]:
    """Names of terms that differ, the largest difference first, words last."""
    names = [name for name in dict.fromkeys((*after, *before)) if before.get(name) != after.get(name)]
    return sorted(names, key=lambda name: -abs(_by(name, before, after) or 0))


def _by(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Growth of a number; None where one side is no number."""
    old, new = before.get(name), after.get(name)
    return new - old if isinstance(old, int | float) and isinstance(new, int | float) else None


def _terms(decision: Decision | None) -> Mapping[str, Any]:
    return decision.explained if decision else {}


def _shown(name: str, decision: Decision) -> str:
    return term(name, decision.explained[name], decision) if name in decision.explained else "–"


def _change(name: str, before: Decision, after: Decision) -> str:
    by = _by(name, before.explained, after.explained)
    if by is None:
        return ""
    return f"  ({'+' if by > 0 else '−'}{term(name, abs(by), after)})"
