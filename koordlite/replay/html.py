"""The outcome of a replay, as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.replay import text
from koordlite.replay.compare import Comparison, Point
from koordlite.replay.verify import Verification
from koordlite.report import node_figures, units, view
from koordlite.report.html import chart, node_parts, page
from koordlite.report.html.chart import Line
from koordlite.report.html.page import Markup, el
from koordlite.report.html.run_report import MAX_POINTS, thinned
from koordlite.report.sentence import sentence

MAX_TURNS = 200


def document(
    outcome: Verification | Comparison, problems: Iterable[Problem] = (), *, title: str = "koordlite replay"
) -> str:
    """The page of a check or a comparison."""
    unread = [(p.object, p.field, p.why, p.do) for p in problems]
    heads = ("file", "where", "what is wrong", "what to do")
    not_read = page.section("Not read", page.table(heads, unread, stacked=True)) if unread else None
    if isinstance(outcome, Verification):
        lead = page.badge("as recorded", "good") if outcome.same else page.badge(f"{outcome.wrong} differ", "bad")
        rows = [
            (units.moment(m.wall), f"{m.strategy} {m.subject}", _decision(m.recorded), _decision(m.other))
            for m in outcome.mismatches
        ]
        empty = "every decision is the same as recorded"
        table = page.table(("when", "about", "recorded", "again"), rows, empty=empty, stacked=True)
        tiles = page.tiles(page.tile("Rounds", outcome.rounds), page.tile("Decisions", outcome.decisions))
        return page.page(title, tiles, page.section("Decisions", table), not_read, lead=lead)
    points, words = thinned(outcome.points, MAX_POINTS), "The record is empty."
    if points:
        note = "" if outcome.limits_enforced else f". {text.ONLY_OBSERVED}"
        first, last = points[0].recorded.time, points[-1].recorded.time
        when = f"{outcome.rounds} rounds from {units.moment(first)} to {units.moment(last)}"
        words = f"{when}, judged again with other settings{note}"
    return page.page(
        title,
        _tiles(outcome),
        _timeline(points),
        _difference(points),
        _sides(outcome),
        _turns(outcome),
        not_read,
        lead=words,
        foot="Made by koordlite replay. Use is as recorded; limits are as they would have been.",
    )


def _tiles(outcome: Comparison) -> Markup:
    recorded, other = outcome.recorded, outcome.other
    more = other.be_cpu_seconds_allowed - recorded.be_cpu_seconds_allowed
    lost, gained = outcome.be_cpu_seconds_lost, outcome.be_cpu_seconds_gained
    alone = f"LS alone {units.span(outcome.ls_seconds_above_threshold)}"
    evictions, before = len(other.evictions), len(recorded.evictions)
    tiles = (
        (
            "BE allowed more" if more >= 0 else "BE allowed less",
            text.seconds(abs(more)),
            f"{text.seconds(recorded.be_cpu_seconds_allowed)} as recorded",
            "",
        ),
        ("BE would have gained", text.seconds(gained), "at most, while it was limited", "good" if gained > 0 else ""),
        ("BE would have lost", text.seconds(lost), "not allowed any more", "bad" if lost > 0 else ""),
        ("Above the threshold", text.above(other), f"{text.above(recorded)} as recorded; {alone}", ""),
        ("Writes", other.writes, f"{recorded.writes} as recorded", ""),
        ("Evictions", evictions, f"{before} as recorded", "bad" if evictions > before else ""),
    )
    return page.tiles(*(page.tile(label, value, note, tone=tone) for label, value, note, tone in tiles))


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
    apart = [
        None if p.recorded.be_limit is None or p.other.be_limit is None else p.other.be_limit - p.recorded.be_limit
        for p in points
    ]
    drawing = chart.timeline(
        _times(points),
        [
            Line(f"{name} for BE", colour, [each and max(0, sign * each) for each in apart], step=True, area=True)
            for name, colour, sign in (("more", "var(--good)", 1), ("less", "var(--bad)", -1))
        ],
        label="by how many cores the limit of best effort would have been higher or lower, over time",
        show_time=units.clock,
        show=units.cores,
        height_px=140,
    )
    return page.section("By how much the limit differs", drawing, note="Cores over time.")


def _sides(outcome: Comparison) -> Markup:
    recorded, other = outcome.recorded, outcome.other
    explained = {node_figures.WELL: f"{node_figures.WELL} ({node_figures.WHY})"}
    rows = [(explained.get(name, name), show(recorded), show(other)) for name, show in text.FACTS]
    kinds, evictions = ["writes"], ["evictions"]
    for side in (recorded, other):
        kinds.append(", ".join(f"{kind} {count}" for kind, count in side.writes_by_kind.items()) or "none")
        evictions.append(", ".join(side.evictions) or "none")
    reasons = dict.fromkeys((*recorded.reasons, *other.reasons))
    counts = [(reason, recorded.reasons.get(reason, 0), other.reasons.get(reason, 0)) for reason in reasons]
    differing = [row for row in counts if row[1] != row[2]]
    table = page.table(("reason", "rounds, recorded#", "changed#"), differing, empty="the same reasons as often")
    numbers = page.table(("", "recorded", "changed"), [*rows, kinds, evictions], stacked=True)
    return page.section("Both in numbers", numbers, el("h3", "Reasons"), table)


def _turns(outcome: Comparison) -> Markup:
    rows = [
        (units.moment(t.wall), page.join(t.subject, el("br"), t.strategy), _decision(t.recorded), _decision(t.other))
        for t in outcome.turns[:MAX_TURNS]
    ]
    note = f"When a subject's reason began or ceased to differ: {len(rows)} of {outcome.turns_seen}."
    heads = ("when", "about", "recorded", "changed")
    table = page.table(heads, rows, empty="No subject was decided for a different reason.", stacked=True)
    return page.section("Decisions", table, note=note if rows else None)


def _decision(decision: Decision | None) -> Markup:
    if decision is None:
        return el("span", "nothing")
    verdict = page.badge(decision.verdict, view.VERDICT_TONES.get(decision.verdict, ""))
    return page.join(verdict, f" {decision.reason}: {sentence(decision)}", node_parts.numbers(decision))


def _times(points: Sequence[Point]) -> list[float]:
    return [point.recorded.time - points[0].recorded.time for point in points]
