"""The outcome of a replay, as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.replay import text
from koordlite.replay.compare import Comparison, Point, Side
from koordlite.replay.verify import Verification
from koordlite.report import present, units, view
from koordlite.report.html import chart, node_parts, page
from koordlite.report.html.chart import Line
from koordlite.report.html.page import Markup, el
from koordlite.report.html.run_report import MAX_POINTS, thinned
from koordlite.report.sentence import sentence

MAX_TURNS = 200


def comparison(found: Comparison, problems: Iterable[Problem] = (), *, title: str = "koordlite replay") -> str:
    """The page of a comparison."""
    points = thinned(found.points, MAX_POINTS)
    return page.page(
        title,
        _tiles(found),
        _timeline(points),
        _difference(points),
        _sides(found),
        _turns(found),
        _unread(problems),
        lead=_lead(found),
        foot="Made by koordlite replay. Use is as recorded; limits are as they would have been.",
    )


def check(found: Verification, problems: Iterable[Problem] = (), *, title: str = "koordlite replay") -> str:
    """The page of a check."""
    lead = page.badge("as recorded", "good") if found.same else page.badge(f"{found.wrong} differ", "bad")
    rows = [
        (units.moment(m.wall), f"{m.strategy} {m.subject}", _decision(m.recorded), _decision(m.again))
        for m in found.mismatches
    ]
    heads = ("when", "about", "recorded", "again")
    table = page.table(heads, rows, empty="every decision is the same as recorded", stacked=True)
    tiles = page.tiles(page.tile("Rounds", found.rounds), page.tile("Decisions", found.decisions))
    return page.page(title, tiles, page.section("Decisions", table), _unread(problems), lead=lead)


def _lead(found: Comparison) -> str:
    if not found.points:
        return "The record is empty."
    first, last = found.points[0].recorded.time, found.points[-1].recorded.time
    note = "" if found.limits_enforced else f". {text.ONLY_OBSERVED}"
    when = f"{found.rounds} rounds from {units.moment(first)} to {units.moment(last)}"
    return f"{when}, judged again with other settings{note}"


def _tiles(found: Comparison) -> Markup:
    recorded, other = found.recorded, found.other
    more = other.be_cpu_seconds_allowed - recorded.be_cpu_seconds_allowed
    allowed = f"{text.seconds(recorded.be_cpu_seconds_allowed)} as recorded"
    lost, gained = found.be_cpu_seconds_lost, found.be_cpu_seconds_gained
    alone = f"LS alone {units.span(found.ls_seconds_above_threshold)}"
    evictions, recorded_evictions = len(other.evictions), len(recorded.evictions)
    was_above = f"{text.above(recorded)} as recorded; {alone}"
    return page.tiles(
        page.tile("BE allowed more" if more >= 0 else "BE allowed less", text.seconds(abs(more)), allowed),
        page.tile(
            "BE would have gained",
            text.seconds(gained),
            "at most, while it was limited",
            tone="good" if gained > 0 else "",
        ),
        page.tile("BE would have lost", text.seconds(lost), "not allowed any more", tone="bad" if lost > 0 else ""),
        page.tile("Above the threshold", text.above(other), was_above),
        page.tile("Writes", other.writes, f"{recorded.writes} as recorded"),
        page.tile(
            "Evictions",
            evictions,
            f"{recorded_evictions} as recorded",
            tone="bad" if evictions > recorded_evictions else "",
        ),
    )


def _timeline(points: Sequence[Point]) -> Markup:
    lines = [
        Line("best effort (BE) used", "var(--be)", [p.recorded.be_cpu for p in points], area=True),
        Line("limit of BE, recorded", "var(--limit)", [p.recorded.be_limit for p in points], step=True, dashed=True),
        Line("limit of BE, changed", "var(--good)", [p.other.be_limit for p in points], step=True),
        Line("latency-sensitive (LS)", "var(--prod)", [p.recorded.prod_cpu for p in points]),
        Line(
            "threshold, recorded", "var(--above)", [p.recorded.threshold_milli for p in points], step=True, dashed=True
        ),
        Line("threshold, changed", "var(--above)", [p.other.threshold_milli for p in points], step=True),
    ]
    drawing = chart.timeline(
        _times(points),
        lines,
        label="CPU use and the limit of best effort as recorded and as it would have been, over time",
        show_time=units.clock,
        show=units.cores,
        height_px=320,
    )
    return page.section("CPU", drawing, note="Cores over time. Point at the drawing for the numbers of a moment.")


def _difference(points: Sequence[Point]) -> Markup:
    gained = [_apart(point, 1) for point in points]
    lost = [_apart(point, -1) for point in points]
    drawing = chart.timeline(
        _times(points),
        [
            Line("more for BE", "var(--good)", gained, step=True, area=True),
            Line("less for BE", "var(--bad)", lost, step=True, area=True),
        ],
        label="by how many cores the limit of best effort would have been higher or lower, over time",
        show_time=units.clock,
        show=units.cores,
        height_px=140,
    )
    return page.section("By how much the limit differs", drawing, note="Cores over time.")


def _apart(point: Point, sign: int) -> int | None:
    was, would = point.recorded.be_limit, point.other.be_limit
    return None if was is None or would is None else max(0, sign * (would - was))


def _sides(found: Comparison) -> Markup:
    explained = {present.WELL: f"{present.WELL} ({present.WHY})"}
    rows = [(explained.get(name, name), show(found.recorded), show(found.other)) for name, show in text.FACTS]
    rows.append(("writes", _kinds(found.recorded), _kinds(found.other)))
    mine, theirs = (", ".join(side.evictions) or "none" for side in (found.recorded, found.other))
    rows.append(("evictions", mine, theirs))
    reasons = dict.fromkeys((*found.recorded.reasons, *found.other.reasons))
    counts = [(reason, found.recorded.reasons.get(reason, 0), found.other.reasons.get(reason, 0)) for reason in reasons]
    differing = [row for row in counts if row[1] != row[2]]
    table = page.table(("reason", "rounds, recorded#", "changed#"), differing, empty="the same reasons as often")
    numbers = page.table(("", "recorded", "changed"), rows, stacked=True)
    return page.section("Both in numbers", numbers, el("h3", "Reasons"), table)


def _turns(found: Comparison) -> Markup:
    shown = found.turns[:MAX_TURNS]
    rows = [
        (units.moment(t.wall), page.join(t.subject, el("br"), t.strategy), _decision(t.recorded), _decision(t.other))
        for t in shown
    ]
    note = f"When a subject's reason began or ceased to differ: {len(shown)} of {found.turns_seen}."
    heads = ("when", "about", "recorded", "changed")
    table = page.table(heads, rows, empty="No subject was decided for a different reason.", stacked=True)
    return page.section("Decisions", table, note=note if rows else None)


def _decision(decision: Decision | None) -> Markup:
    if decision is None:
        return el("span", "nothing")
    verdict = page.badge(decision.verdict, view.VERDICT_TONES.get(decision.verdict, ""))
    return page.join(verdict, f" {decision.reason}: {sentence(decision)}", node_parts.numbers(decision))


def _unread(problems: Iterable[Problem]) -> Markup | None:
    rows = [(p.object, p.field, p.why, p.do) for p in problems]
    if not rows:
        return None
    return page.section("Not read", page.table(("file", "where", "what is wrong", "what to do"), rows, stacked=True))


def _kinds(side: Side) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in side.writes_by_kind.items()) or "none"


def _times(points: Sequence[Point]) -> list[float]:
    return [point.recorded.time - points[0].recorded.time for point in points]
