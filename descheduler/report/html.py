"""The plan as one self-contained page: summary, every pod a plugin named, what changed, groups, and the nodes drawn.

Of many pods the first are listed at length; the others are in the page too, one packed line each, for its search.
"""

from __future__ import annotations

import base64
import itertools
import pathlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from descheduler.framework import NodeView
from descheduler.plan import Attempt, EvictionPlan, NodeChange, Outcome
from descheduler.report import diff, document, numa_map, text
from descheduler.report.diff import Difference
from descheduler.report.text import NOTHING
from koordlite.model import printable
from koordlite.report import units
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el

GROUPS_SHOWN = 40
EVICT, KEPT = "evict", "kept"
"""Ids of the lists of pods."""
_BY: dict[str, Callable[[Outcome], str]] = {
    "namespace": lambda outcome: outcome.pod.key.partition("/")[0],
    "owner": lambda outcome: outcome.pod.owner or "none",
    "node": lambda outcome: outcome.pod.node,
}


def groups(plan: EvictionPlan) -> Markup | None:
    """A table to open for each; None where nothing was found."""
    if not plan.outcomes:
        return None
    tables = []
    for what, of in _BY.items():
        evict, keeping = Counter(map(of, plan.evict)), Counter(map(of, plan.kept))
        names = sorted({*evict, *keeping}, key=lambda name: (-evict[name], -keeping[name], name))
        rows = [
            (page.filter_link(name, f"{what}:{name}", EVICT if evict[name] else KEPT), evict[name], keeping[name])
            for name in names[:GROUPS_SHOWN]
        ]
        unlisted = len(names) - len(rows)
        more = el("p", f"and {unlisted} more with fewer pods", class_="note") if unlisted else None
        table = page.table((what, "to evict#", "kept#"), rows)
        tables.append(page.details(units.count(len(names), what), table, more))
    return page.section("By namespace, owner and node", tables, note="Choose a name to find its pods above.")


NODES_SHOWN = 100
MAPS_SHOWN, CELLS_SHOWN = 40, 1000
"""Nodes that are drawn, and CPUs in all drawings together: a cell takes 250 bytes of the page."""
MOVES_SHOWN = 5
_WIDTH, _HEIGHT = 150, 9


def node_sections(plan: EvictionPlan) -> Iterator[Markup | None]:
    """Use of nodes before and after the plan, with the pods that come and leave; then their CPUs by NUMA node."""
    moves = _Moves(plan)
    # Every node that changes or has something wrong; of many, those that change most.
    most = sorted(plan.nodes, key=lambda change: (-abs(change.after.pods - change.before.pods), change.node))
    changes = sorted(most[:NODES_SHOWN], key=lambda change: change.node)
    headings = ("node", "CPUs requested", "memory requested", "pods", "misplaced", "moves")
    rows = [_row(change, moves) for change in changes]
    table = page.table(headings, rows, empty="no node changes", stacked=True)
    unlisted = len(plan.nodes) - len(changes)
    note = f"and {unlisted} more that change less: the JSON report has them all"
    more = el("p", note, class_="note") if unlisted else None
    section = page.section("Nodes, before → after", _legend() if changes else None, table, more)
    yield el("div", section, id="nodes")
    # CPUs by NUMA node, of nodes where a pod's place among them is what is wrong, or where one is to come.
    drawn = list(_maps(plan, moves))
    note = "Where pods are at present, and what the plan makes of it."
    yield page.section("CPUs by NUMA node", numa_map.legend(coming=True), drawn, note=note) if drawn else None


class _Moves:
    """The pods of a plan by node."""

    def __init__(self, plan: EvictionPlan) -> None:
        self.leave: dict[str, list[Outcome]] = defaultdict(list)
        self.come: dict[str, list[Outcome]] = defaultdict(list)
        self.wrong: dict[str, list[Outcome]] = defaultdict(list)
        """Outcomes with containers whose place is known."""
        for outcome in plan.evict:
            self.leave[outcome.pod.node].append(outcome)
            self.come[outcome.target].append(outcome)
        for outcome in plan.outcomes:
            if outcome.pod.containers:
                self.wrong[outcome.pod.node].append(outcome)


def _row(change: NodeChange, moves: _Moves) -> tuple[Child, ...]:
    before, after = change.before, change.after
    cpu = f"{units.cores(before.cpu_milli)} → {units.cores(after.cpu_milli)} of {units.cores(change.cpu_milli)} CPUs"
    memory = f"{units.size(before.memory)} → {units.size(after.memory)} of {units.size(change.memory)}"
    return (
        change.node,
        [_bar("CPUs", before.cpu_milli, after.cpu_milli, change.cpu_milli), el("div", cpu, class_="tile-note")],
        [_bar("memory", before.memory, after.memory, change.memory), el("div", memory, class_="tile-note")],
        f"{before.pods} → {after.pods} pods",
        f"{before.wrong} → {after.wrong} misplaced",
        [_moving_pods(moves.come[change.node], "come", "from"), _moving_pods(moves.leave[change.node], "leave", "to")],
    )


def _moving_pods(outcomes: Sequence[Outcome], what: str, where: str) -> Markup | None:
    """The pods that come or leave, with their requests."""
    if not outcomes:
        return None
    ends = (one.pod.node if where == "from" else one.target or "nowhere yet" for one in outcomes)
    listed = zip(outcomes[:MOVES_SHOWN], ends, strict=False)
    items = [el("li", _requests(one), f", {where} {other}") for one, other in listed]
    unlisted = len(outcomes) - len(items)
    ellipsis = el("li", f"and {unlisted} more") if unlisted else None
    words = f"{len(outcomes)} {what}{'s' if len(outcomes) == 1 else ''}"
    return page.details(words, el("ul", items, ellipsis, style="margin:0;padding-left:20px"))


def _requests(outcome: Outcome) -> str:
    cpu = units.cores(outcome.pod.pod.request_milli())
    return f"{outcome.pod.key}: {cpu} CPUs"


def _bar(what: str, before: int, after: int, whole: int) -> Markup | None:
    """Bar of what stays, leaves and comes, as parts of what the node has; the ground is what is free."""
    if not whole:
        return None
    stays, leaves, comes = min(before, after), max(0, before - after), max(0, after - before)
    parts, x = [], 0.0
    for amount, colour in ((stays, "var(--node)"), (leaves, "var(--bad)"), (comes, "var(--good)")):
        width = min(_WIDTH - x, _WIDTH * amount / whole)
        if width > 0:
            parts.append(el("rect", x=round(x, 1), y=0, width=round(width, 1), height=_HEIGHT, fill=colour))
            x += width
    label = f"{what}: {before * 100 // whole} % before, {after * 100 // whole} % after"
    ground = el("rect", x=0, y=0, width=_WIDTH, height=_HEIGHT, fill="var(--mark)")
    return el(
        "svg",
        el("title", label),
        ground,
        parts,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=_WIDTH,
        height=_HEIGHT,
        role="img",
        aria_label=label,
        style="display:block",
    )


def _legend() -> Markup:
    items = (("stays", "var(--node)"), ("leaves", "var(--bad)"), ("comes", "var(--good)"), ("free", "var(--mark)"))
    boxes = [el("li", el("span", class_="box", style=f"background:{colour}"), word) for word, colour in items]
    return el("ul", boxes, class_="legend", style="margin:0 0 12px")


def _maps(plan: EvictionPlan, moves: _Moves) -> Iterator[Markup]:
    nodes = plan.view.nodes
    changes = [change for change in plan.nodes if change.zones and nodes[change.node].topology.cpus]
    cells = itertools.accumulate(2 * len(nodes[change.node].topology.cpus) for change in changes)
    drawings = max(1, sum(count <= CELLS_SHOWN for count in itertools.islice(cells, MAPS_SHOWN)))
    for change in changes[:drawings]:
        name, wrong, coming = change.node, moves.wrong[change.node], moves.come[change.node]
        pods = ", ".join(f"{o.pod.key} on CPUs {numa_map.cpus_at_fault(o) or 'none'}" for o in wrong)
        yield el("h3", name)
        words = f"wrong: {pods}" if pods else "nothing wrong; the plan sends pods here"
        yield el("p", words, class_="note", style="overflow-wrap:anywhere")
        yield numa_map.draw(nodes[name], wrong)
        yield from _after(nodes[name], change, wrong, coming)
        yield _zones(change)
    if len(changes) > drawings:
        yield el("p", f"and {len(changes) - drawings} more nodes: the JSON report has them all", class_="note")


def _after(node: NodeView, change: NodeChange, wrong: Sequence[Outcome], coming: Sequence[Outcome]) -> Iterator[Markup]:
    """The node as the plan leaves it: without the pods that leave, with room taken for those that come."""
    leaving = {outcome.pod.uid for outcome in wrong if outcome.verdict == "evict"}
    if coming:
        listed = ", ".join(_requests(outcome) for outcome in coming[:MOVES_SHOWN])
        more = f" and {len(coming) - MOVES_SHOWN} more" if len(coming) > MOVES_SHOWN else ""
        words = f"after the plan, by number: which CPUs pods get is chosen when they start. Comes: {listed}{more}."
        yield el("p", words, class_="note", style="overflow-wrap:anywhere")
        yield numa_map.draw_counts(change, coming)
    elif leaving:
        stays = msgspec.structs.replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in leaving))
        yield el("p", "after the plan:", class_="note")
        yield numa_map.draw(stays, [outcome for outcome in wrong if outcome.verdict == "kept"])


def _zones(change: NodeChange) -> Markup:
    """The same in numbers, before → after."""
    headings = ("NUMA node", "CPUs#", "reserved#", "pods' own#", "shared#", "memory of pods with a promise#")
    rows = [
        (
            str(zone.zone),
            str(zone.cpus),
            str(zone.reserved),
            f"{zone.before.exclusive} → {zone.after.exclusive}",
            f"{zone.before.shared} → {zone.after.shared}",
            f"{units.size(zone.before.memory)} → {units.size(zone.after.memory)}",
        )
        for zone in change.zones
    ]
    return page.table(headings, rows)


_RESULT_TONES = {"Evicted": "good", "InBackground": "good", "Requested": "good", "JobCreated": "good", "WouldEvict": ""}
PODS_SHOWN = 200
"""Number of pods shown for each kind of answer; a page of thousands is slow and nobody reads it. The search finds the
others."""
PACKED_BYTES = 600_000
"""Maximum that one list of packed lines adds to the page: about 30,000 pods."""
_OPEN = 20
"""Pods shown at length; of more, each opens at a click."""
_SEARCH = "\n" + pathlib.Path(__file__).with_name("search.js").read_text(encoding="utf-8")


def render(
    plan: EvictionPlan,
    changes: Difference = NOTHING,
    *,
    attempts: tuple[Attempt, ...] = (),
    dry: bool = True,
    failure: str = "",
) -> str:
    """The whole document. `changes`: since the report before; `attempts`: what became of each eviction; `failure`: why
    a later cycle came to no plan."""
    results = {attempt.pod: attempt for attempt in attempts}
    done = "Dry run: nothing was evicted." if dry else "Evictions were asked for."
    failed = f"The last cycle failed, this is the report of the one before: {failure}. " if failure else ""
    return page.page(
        "Eviction plan",
        _tiles(plan),
        warnings(plan),
        el("div", _pods("To evict, in this order", plan.evict, "nothing is to be evicted", results), id=EVICT),
        el("div", _pods("Kept, with findings", plan.kept, "no pod with findings is kept", results), id=KEPT),
        _plugins(plan),
        _changes(changes),
        groups(plan),
        *node_sections(plan),
        _notes(plan),
        lead=f"{failed}{done} The cluster as of {plan.view.time} ({plan.view.time_source}).",
        foot="Made by descheduler. The same cluster and policy give the same plan.",
        script=page.FILTER_SCRIPT + _SEARCH,
    )


def _tiles(plan: EvictionPlan) -> Markup:
    pods = sum(1 for _ in plan.view.pods())
    problems = len(plan.view.problems)
    unread = f"; unreadable: {problems}" if problems else ""
    by_limit = document.left_by_limits(plan)
    later = ", ".join(f"{count} × {reason}" for reason, count in by_limit.items())
    guarded = ", ".join(f"{n} × {why}" for why, n in plan.kept_by.items() if why not in by_limit)
    return page.tiles(
        page.tile("judged", f"{pods} pods", f"on {len(plan.view.nodes)} nodes{unread}"),
        not_judged(plan),
        page.tile("with findings", len(plan.outcomes), tone="warn" if plan.outcomes else "good"),
        page.tile("to evict", len(plan.evict), tone="bad" if plan.evict else "good"),
        page.tile("kept", len(plan.kept) - sum(by_limit.values()), guarded),
        page.tile("left for later by limits", sum(by_limit.values()), later, tone="warn" if by_limit else ""),
    )


def not_judged(plan: EvictionPlan) -> Markup:
    """The tile of the pods that a plugin could not judge."""
    by = ", ".join(f"{count} by {name}" for name, count in plan.not_judged_by.items())
    return page.tile("not judged", plan.not_judged, by, tone="warn" if plan.not_judged else "good")


def warnings(plan: EvictionPlan) -> Markup | None:
    """Warnings of the plan; None when there are none."""
    lines = [el("p", page.badge("warning", "warn"), " ", warning) for warning in document.warnings(plan)]
    return el("div", lines) if lines else None


def _plugins(plan: EvictionPlan) -> Markup:
    rows = []
    for one in document.by_plugin(plan):
        badges = [page.badge(f"{count} × {reason}") for reason, count in one["findings"].items()]
        words: Child = badges or el("span", "no findings", class_="note")
        counts = f"{one['evict']} to evict, {one['kept']} kept" if badges else ""
        notes = units.count(one["notes"], "note") if one["notes"] else ""
        rows.append((el("b", one["name"]), words, counts, notes))
    headings = ("plugin", "found", "pods", "could not judge")
    return page.section("By plugin", page.table(headings, rows, empty="no plugin is enabled", stacked=True))


def _changes(changes: Difference) -> Markup | None:
    if changes.why_not:
        return page.section("Since the last report", el("p", changes.why_not, class_="note"))
    if not changes.since:
        return None
    rows = [(row.pod, page.badge(diff.WORDS[row.change]), row.text) for row in changes.rows[:PODS_SHOWN]]
    note = f"That one was of {changes.since}. {changes.same} pods have the same answer as then."
    table = page.table(("pod", "change", "now"), rows, empty="nothing changed", stacked=True)
    return page.section("Since the last report", table, _more(changes.rows), note=note)


def _pods(title: str, outcomes: Sequence[Outcome], empty: str, results: dict[str, Attempt]) -> Markup:
    few = len(outcomes) <= _OPEN
    blocks = [_pod(outcome, results.get(outcome.pod.key), few=few) for outcome in outcomes[:PODS_SHOWN]]
    field = page.filter_field("find a pod, owner, namespace or node") if len(blocks) > 1 else None
    return page.section(title, field, blocks or el("p", empty, class_="note"), _pack(outcomes[PODS_SHOWN:]))


def _pack(outcomes: Sequence[Outcome]) -> Markup | None:
    """The pods that are not listed, for the search; as many as there is room for, and what to do about the others."""
    lines = []
    for outcome in outcomes:
        becomes = (
            f"kept by {outcome.reasons[0].reason}" if outcome.reasons else f"to {outcome.target or 'no place yet'}"
        )
        about = f"{', '.join(text.finding_reasons(outcome))}, {becomes}"
        fields = (outcome.pod.key, outcome.pod.node, outcome.pod.owner or "none", about)
        lines.append("\t".join(map(printable.one_line, fields)))
    packed = _deflate(lines)
    while len(packed) > PACKED_BYTES:
        lines = lines[: len(lines) * PACKED_BYTES // (len(packed) + PACKED_BYTES // 20)]
        packed = _deflate(lines)
    if not lines:
        return None
    note = f"and {len(outcomes)} more: the search above finds them, and `descheduler explain POD` tells all of one"
    if len(lines) < len(outcomes):
        note += f"; the last {len(outcomes) - len(lines)} are in the JSON report alone"
    return el("div", el("p", note, class_="note"), el("ul"), data_packed=packed, data_note=note)


def _deflate(lines: Sequence[str]) -> str:
    return base64.b64encode(zlib.compress("\n".join(lines).encode(errors="replace"), 9)).decode()


def _more(entries: Sequence[object]) -> Markup | None:
    unlisted = len(entries) - PODS_SHOWN
    return el("p", f"and {unlisted} more: the JSON report has them all", class_="note") if unlisted > 0 else None


def _pod(outcome: Outcome, attempt: Attempt | None, *, few: bool) -> Markup:
    # Words by which the filter finds the pods of one group and no others: `namespace:shop owner:… node:…`.
    facts, words = page.facts(_facts(outcome, attempt)), " ".join(f"{what}:{of(outcome)}" for what, of in _BY.items())
    if few:
        style = "margin-bottom:22px;overflow-wrap:anywhere"
        return el("article", el("h3", outcome.pod.key), facts, data_item=words, style=style)
    why = outcome.reasons[0].reason if outcome.reasons else f"to {outcome.target}" if outcome.target else "goes"
    return page.details(f"{outcome.pod.key}: {outcome.main.reason}, {why}", facts, data_item=words)


def _facts(outcome: Outcome, attempt: Attempt | None) -> list[tuple[str, Child]]:
    pairs: list[tuple[str, Child]] = [("on", outcome.pod.node)]
    for fact in text.facts(outcome):
        badge = [page.badge(fact.word, fact.tone), fact.text.removeprefix(fact.word)] if fact.word else fact.text
        pairs.append((fact.label, badge))
    evidence = {name: value for finding in outcome.findings for name, value in finding.evidence.items()}
    if evidence:
        pairs.append(("evidence", page.code(", ".join(f"{name} {value}" for name, value in evidence.items()))))
    if outcome.search and outcome.search.groups:
        rows = [
            (why, str(group.nodes), ", ".join(group.examples)) for why, group in sorted(outcome.search.groups.items())
        ]
        pairs.append(("", page.details("why not elsewhere", page.table(("why not", "nodes#", "for example"), rows))))
    if attempt and attempt.result != "WouldEvict":
        tone = _RESULT_TONES.get(attempt.result, "bad")
        pairs.append(("result", [page.badge(attempt.result, tone), " ", attempt.text]))
    return pairs


def _notes(plan: EvictionPlan) -> Markup | None:
    notes = [note.line for note in plan.notes]
    lines = [*notes, *plan.view.notes, *map(str, plan.view.problems)]
    items = [el("li", line) for line in lines[:PODS_SHOWN]]
    listing = el("ul", items, style="font-size:14px;overflow-wrap:anywhere;padding-left:20px")
    return page.section("Notes and problems", listing, _more(lines)) if lines else None
