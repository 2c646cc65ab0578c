"""The nodes of a plan on the page: how full they are before and after, and their CPUs by NUMA node."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from descheduler.framework import NodeView
from descheduler.plan import EvictionPlan, NodeChange, Outcome
from descheduler.report import numa_map
from koordlite.report import units
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el

NODES_SHOWN = 100
MAPS_SHOWN, CELLS_SHOWN = 40, 1000
"""Nodes that are drawn, and CPUs in all drawings together: a cell takes 250 bytes of the page."""
MOVES_SHOWN = 5
_WIDTH, _HEIGHT = 150, 9


def sections(plan: EvictionPlan) -> Iterator[Markup | None]:
    """How full nodes are before and after the plan, who comes and who leaves; then their CPUs by NUMA node."""
    moves = _Moves(plan)
    # Every node that changes or has something wrong; of many, those that change most.
    chosen = _chosen(plan.nodes)
    headings = ("node", "CPUs requested", "memory requested", "pods", "misplaced", "moves")
    rows = [_row(change, moves) for change in chosen]
    table = page.table(headings, rows, empty="no node changes", stacked=True)
    left = len(plan.nodes) - len(chosen)
    more = el("p", f"and {left} more that change less: plan.json has them all", class_="note") if left else None
    shown = page.section("Nodes, before → after", _legend() if chosen else None, table, more)
    yield el("div", shown, id="nodes")
    # CPUs by NUMA node, of nodes where a pod's place among them is what is wrong, or where one is to come.
    drawn = list(_drawn(plan, moves))
    note = "Where pods are at present, and what the plan makes of it."
    yield page.section("CPUs by NUMA node", numa_map.legend(coming=True), drawn, note=note) if drawn else None


class _Moves:
    """The pods of a plan by node."""

    def __init__(self, plan: EvictionPlan) -> None:
        self.leave: dict[str, list[Outcome]] = defaultdict(list)
        self.come: dict[str, list[Outcome]] = defaultdict(list)
        self.wrong: dict[str, list[Outcome]] = defaultdict(list)
        """With containers whose place is known."""
        for outcome in plan.evict:
            self.leave[outcome.pod.node].append(outcome)
            self.come[outcome.target].append(outcome)
        for outcome in plan.outcomes:
            if outcome.pod.containers:
                self.wrong[outcome.pod.node].append(outcome)


def _chosen(nodes: tuple[NodeChange, ...]) -> list[NodeChange]:
    if len(nodes) <= NODES_SHOWN:
        return list(nodes)
    most = sorted(nodes, key=lambda change: (-abs(change.after.pods - change.before.pods), change.node))
    return sorted(most[:NODES_SHOWN], key=lambda change: change.node)


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
        [_moved(moves.come[change.node], "come", "from"), _moved(moves.leave[change.node], "leave", "to")],
    )


def _moved(outcomes: Sequence[Outcome], what: str, where: str) -> Markup | None:
    """Who, with what they ask for."""
    if not outcomes:
        return None
    items = [el("li", _asks(one), f", {where} {_other(one, where)}") for one in outcomes[:MOVES_SHOWN]]
    left = len(outcomes) - len(items)
    rest = el("li", f"and {left} more") if left else None
    words = f"{len(outcomes)} {what}{'s' if len(outcomes) == 1 else ''}"
    return page.details(words, el("ul", items, rest, style="margin:0;padding-left:20px"))


def _other(outcome: Outcome, where: str) -> str:
    return outcome.pod.node if where == "from" else outcome.target or "nowhere yet"


def _asks(outcome: Outcome) -> str:
    cpu = units.cores(outcome.pod.pod.request_milli())
    return f"{outcome.pod.key}: {cpu} CPUs"


def _bar(what: str, before: int, after: int, whole: int) -> Markup | None:
    """What stays, what leaves and what comes, as parts of what the node has; the ground is what is free."""
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


def _drawn(plan: EvictionPlan, moves: _Moves) -> Iterator[Markup]:
    nodes = plan.view.nodes
    changes = [change for change in plan.nodes if change.zones and nodes[change.node].topology.cpus]
    cells = itertools.accumulate(2 * len(nodes[change.node].topology.cpus) for change in changes)
    shown = max(1, sum(count <= CELLS_SHOWN for count in itertools.islice(cells, MAPS_SHOWN)))
    for change in changes[:shown]:
        name, wrong, coming = change.node, moves.wrong[change.node], moves.come[change.node]
        pods = ", ".join(f"{o.pod.key} on CPUs {numa_map.held(o) or 'none'}" for o in wrong)
        yield el("h3", name)
        words = f"wrong: {pods}" if pods else "nothing wrong; the plan sends pods here"
        yield el("p", words, class_="note", style="overflow-wrap:anywhere")
        yield numa_map.draw(nodes[name], wrong)
        yield from _after(nodes[name], change, wrong, coming)
        yield _zones(change)
    if len(changes) > shown:
        yield el("p", f"and {len(changes) - shown} more nodes: plan.json has them all", class_="note")


def _after(node: NodeView, change: NodeChange, wrong: Sequence[Outcome], coming: Sequence[Outcome]) -> Iterator[Markup]:
    """The node as the plan leaves it: without the pods that leave, with room taken for those that come."""
    gone = {outcome.pod.uid for outcome in wrong if outcome.verdict == "evict"}
    if coming:
        listed = ", ".join(_asks(outcome) for outcome in coming[:MOVES_SHOWN])
        more = f" and {len(coming) - MOVES_SHOWN} more" if len(coming) > MOVES_SHOWN else ""
        words = f"after the plan, by number: which CPUs pods get is chosen when they start. Comes: {listed}{more}."
        yield el("p", words, class_="note", style="overflow-wrap:anywhere")
        yield numa_map.counted(change, coming)
    elif gone:
        stays = msgspec.structs.replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in gone))
        yield el("p", "after the plan:", class_="note")
        yield numa_map.draw(stays, [outcome for outcome in wrong if outcome.verdict == "spare"])


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
