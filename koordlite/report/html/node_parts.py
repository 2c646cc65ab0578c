"""Pieces that the pages about a node share: CPU over time, the map of its CPUs, decisions, its status."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

from koordlite.model.decision import Decision
from koordlite.report import pod_rows, units, view
from koordlite.report.history import DecisionEvent, History
from koordlite.report.html import page
from koordlite.report.html.chart import Line, Mark
from koordlite.report.html.page import Child, Markup, el
from koordlite.report.node_figures import CPUCell, Figures
from koordlite.report.pod_rows import PodRow
from koordlite.report.sentence import headline, sentence, terms
from koordlite.report.tick import Tick

DECISION_HEADS = ("when (UTC)", "about", "what", "why")
PROBLEM_HEADS = ("object", "field", "what is wrong", "what to do")
USE_LABEL = "CPU use of node, latency-sensitive and best-effort work against the limit of best-effort, over time"
USE_NOTE = "Cores over time. Point at the drawing for the numbers of a moment."
_COLORS = {"reserved": "--reserved", "system": "--system", "LSE": "--lse", "LSR": "--lsr", "LS": "--ls"}


def use_lines(rows: Sequence[Figures]) -> list[Line]:
    """Use against the limit of best effort, the limit it would have where that is only observed, and the threshold
    where there is one."""
    lines = [
        Line("best-effort (BE)", "var(--be)", [row.be_cpu for row in rows], area=True),
        Line("limit of BE", "var(--limit)", [row.be_limit for row in rows], step=True),
        Line("latency-sensitive (LS)", "var(--prod)", [row.prod_cpu for row in rows]),
        Line("node", "var(--node)", [row.node_cpu for row in rows]),
    ]
    if any(row.would_limit is not None for row in rows):
        would = [row.would_limit for row in rows]
        lines.insert(2, Line("would limit BE to", "var(--limit)", would, step=True, dashed=True))
    if any(row.threshold_milli is not None for row in rows):
        lines.append(Line("BE is limited above", "var(--above)", [row.threshold_milli for row in rows], step=True))
    return lines


def measured(rows: Sequence[Figures]) -> Sequence[Figures]:
    """Rows from the first on in which the use of the node was known: before it nothing could be limited, and what held
    was left by others. All of them where it never was."""
    first = next((number for number, row in enumerate(rows) if row.node_cpu is not None), 0)
    return rows[first:]


def offer_tile(tick: Tick) -> Markup:
    """The offer to best effort; where it is only observed and nothing is offered, what would be."""
    figures = tick.figures
    if figures.batch_cpu is None and figures.would_batch_cpu is not None:
        note = f"{units.size(figures.would_batch_memory)}; nothing is offered yet"
        return page.tile("Would offer to BE, cores", units.cores(figures.would_batch_cpu), note)
    if figures.batch_cpu is None and figures.batch_memory is None:
        return page.tile("BE may request", "nothing", "no batch-cpu or batch-memory is on the Node")
    return page.tile("BE may request, cores", units.cores(figures.batch_cpu), units.size(figures.batch_memory))


def status_badge(tick: Tick) -> Markup:
    """The agent's one word with its colour."""
    return page.badge(tick.status, view.STATUS_TONES.get(tick.status, ""))


def facts(listed: Iterable[view.Fact]) -> Markup:
    """Labels with their values."""
    return page.facts((fact.name, page.code(fact.value) if fact.is_code else fact.value) for fact in listed)


def cpu_map(cells: Iterable[CPUCell], *, link: str = "") -> Iterator[Markup]:
    """A box for each CPU by NUMA node, then what the colours mean. With `link` each leads to that path and its id."""
    placed = sorted(cells, key=lambda cell: (cell.node, cell.cpu))
    for node, group in itertools.groupby(placed, key=lambda cell: cell.node):
        boxes = []
        for cell in group:
            plain = "color:inherit;text-decoration:none"
            number: Child = el("a", cell.cpu, href=f"{link}{cell.cpu}", style=plain) if link else cell.cpu
            boxes.append(el("li", number, style=_ground(cell), title=f"CPU {cell.cpu}: {view.cpu(cell)}"))
        yield el("h3", f"NUMA node {node}")
        yield el("ul", boxes, class_="cpus")
    kinds = {(cell.owner, cell.best_effort): cell for cell in placed}
    samples = [
        el("li", el("span", class_="box", style=_ground(cell)), view.cpu(cell)) for _, cell in sorted(kinds.items())
    ]
    if samples:
        yield el("ul", samples, class_="legend", style="margin-bottom:16px")


def decision_row(event: DecisionEvent) -> tuple[Child, ...]:
    """Row of a decision for a table with `DECISION_HEADS`."""
    decision = event.decision
    verdict = page.badge(decision.verdict, view.VERDICT_TONES.get(decision.verdict, ""))
    cause = el("div", event.because, class_="note") if event.because else None
    why = [sentence(decision), cause, numbers(decision)]
    return (
        units.stamp(event.time, event.wall),
        decision.subject,
        page.join(verdict, el("span", decision.reason, class_="word")),
        why,
    )


def numbers(decision: Decision) -> Markup | None:
    """The evidence, to open; nothing where there is none."""
    return page.details("numbers", page.facts(terms(decision))) if decision.evidence else None


def _ground(cell: CPUCell) -> str:
    """The owner's colour; with a broad edge in best effort's where it may run there as well."""
    ground = f"background:var({_COLORS[cell.owner]})"
    if not cell.best_effort:
        return ground
    return "background:var(--both)" if cell.owner == "LS" else f"{ground};box-shadow:inset 0 -4px var(--both)"


PODS_SHOWN = 12
"""Pods of the table that is open."""
DECISION_LONGEST = 140
"""Characters of a decision: the whole is in the decisions, or behind the link of its pod."""


def pods_section(
    rows: Sequence[PodRow], *, link: str = "", first_rows: int = PODS_SHOWN, longest: int = DECISION_LONGEST
) -> Markup:
    """`rows` as `pods.of` gives them. With `link` each name leads to that path and the name. The first
    `first_rows` are open; of a decision `longest` characters are there."""
    heads = [f"{column.title}{'#' if column.is_number else ''}" for column in pod_rows.COLUMNS]
    cells = []
    for row in rows:
        values: dict[str, Child] = {column.key: column.show(row) for column in pod_rows.COLUMNS}
        if link:
            values["name"] = el("a", row.name, href=f"{link}{row.name}")
        values["decided"] = textwrap.shorten(pod_rows.decided(row), longest, placeholder=" …")
        cells.append([*values.values()])
    first, more = (
        page.table(heads, part, empty="no pod runs here", stacked=True, labelled=True)
        for part in (cells[:first_rows], cells[first_rows:])
    )
    count = len(rows) - first_rows
    folded = page.details(units.count(count, "more pod"), more) if count > 0 else None
    note = "The busiest first. Pressure: the part of the last ten seconds in which some task of the pod waited."
    return page.section("Pods", first, folded, note=note if rows else None)


OF_ONE = 30
"""The newest of one subject that are listed."""
AT_ONCE = 6
"""Groups that are seen before something is opened."""
MAX_GROUPS = 150
_LONGEST = 160
_HEADS = ("when (UTC)", "what", "why")


def marks(events: Iterable[DecisionEvent], concerns: Callable[[Decision], bool]) -> list[Mark]:
    """The decisions that are drawn on a chart."""
    drawn = ((event.time, headline(event.decision)) for event in events if concerns(event.decision))
    return [Mark(time, words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…") for time, words in drawn]


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
    """A filter, and a group to open for each subject, those first that changed most often. Needs `FILTER_SCRIPT`."""
    subjects: dict[str, list[DecisionEvent]] = {}
    for event in events:
        subjects.setdefault(event.decision.subject, []).append(event)
    groups = []
    for subject, changes in sorted(subjects.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_GROUPS]:
        newest = changes[-OF_ONE:][::-1]
        last = newest[0]
        count = f"{len(changes)} changes, the last" if len(changes) > 1 else "once,"
        listed = f"; the newest {len(newest)} are listed" if len(changes) > len(newest) else ""
        note = f"{count} at {units.when(last.time, last.wall)}: {last.decision.verdict}, {last.decision.reason}{listed}"
        rows = [(when, what, why) for when, _, what, why in map(decision_row, newest)]
        groups.append(page.filter_group(subject, page.table(_HEADS, rows, stacked=True), note=note))
    yield page.filter_field("find in decisions")
    yield from groups[:AT_ONCE]
    more = groups[AT_ONCE:]
    yield page.filter_group(f"{len(more)} more subjects", *more, note="that changed less often") if more else None
