"""Decisions of a run: marks for a chart, and a list by subject to open and to filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from koordlite.model.decision import Decision
from koordlite.report import units
from koordlite.report.history import DecisionEvent, History
from koordlite.report.html import filter as filters
from koordlite.report.html import node_parts, page
from koordlite.report.html.chart import Mark
from koordlite.report.html.page import Markup
from koordlite.report.sentence import headline

OF_ONE = 30
"""The newest of one subject that are listed."""
AT_ONCE = 6
"""Groups that are seen before something is opened."""
MAX_GROUPS = 150
_LONGEST = 160
_HEADS = ("when", "what", "why")


def about_limit(decision: Decision) -> bool:
    """Tell whether it limits best effort: the effect is in the chart of CPU use."""
    return decision.subject == "besteffort" or decision.verdict == "evict"


def marks(events: Iterable[DecisionEvent], concerns: Callable[[Decision], bool]) -> list[Mark]:
    """The decisions that are drawn on a chart."""
    shown = (event for event in events if concerns(event.decision))
    return [Mark(event.time, _shortened(headline(event.decision))) for event in shown]


def _shortened(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def section(history: History) -> Markup:
    """The decisions of a run by subject."""
    subjects = {event.decision.subject for event in history.decisions}
    if not subjects:
        return page.section("Decisions", note="nothing was decided")
    note = f"Changes: {history.decisions_seen}, subjects: {len(subjects)}; open one, or look for words in all."
    if history.decisions_seen > len(history.decisions):
        note += f" The newest {len(history.decisions)} are here."
    return page.section("Decisions", *by_subject(history.decisions), note=note)


def by_subject(events: Iterable[DecisionEvent]) -> Iterator[Markup | None]:
    """A filter, and a group to open for each subject, those first that changed most often. Needs `filter.SCRIPT`."""
    found: dict[str, list[DecisionEvent]] = {}
    for event in events:
        found.setdefault(event.decision.subject, []).append(event)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    groups = [_group(subject, those) for subject, those in ordered[:MAX_GROUPS]]
    yield filters.field("find in decisions")
    yield from groups[:AT_ONCE]
    yield _others(groups)


def _others(groups: Sequence[Markup]) -> Markup | None:
    rest = groups[AT_ONCE:]
    return filters.group(f"{len(rest)} more subjects", *rest, note="that changed less often") if rest else None


def _group(subject: str, events: Sequence[DecisionEvent]) -> Markup:
    shown = events[-OF_ONE:][::-1]
    last = shown[0]
    count = f"{len(events)} changes, the last" if len(events) > 1 else "once,"
    left = f"; the newest {len(shown)} are listed" if len(events) > len(shown) else ""
    words = f"{count} at {units.clock(last.time)}: {last.decision.verdict}, {last.decision.reason}{left}"
    rows = [_row(event) for event in shown]
    return filters.group(subject, page.table(_HEADS, rows, stacked=True), note=words)


def _row(event: DecisionEvent) -> tuple[page.Child, ...]:
    when, _, what, why = node_parts.decision_row(event)
    return when, what, why
