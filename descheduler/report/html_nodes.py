"""The nodes of a plan on the page: how full they are before and after, and their CPUs by NUMA node."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator

from descheduler.framework import NodeView
from descheduler.plan import EvictionPlan, Load, NodeChange, Outcome
from descheduler.report import numa_map
from koordlite.report import units
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el

NODES_SHOWN = 100
MAPS_SHOWN = 40
COMING_SHOWN = 10
_WIDTH, _HEIGHT = 150, 9


def bars(plan: EvictionPlan) -> Markup:
    """Every node that changes or has something wrong; of many, those that change most."""
    chosen = _chosen(plan.nodes)
    headings = ("node", "CPUs requested", "memory requested", "pods#", "misplaced#")
    table = page.table(headings, map(_row, chosen), empty="no node changes", stacked=True)
    left = len(plan.nodes) - len(chosen)
    more = el("p", f"and {left} more that change less: plan.json has them all", class_="note") if left else None
    return page.section("Nodes, before → after", _legend() if chosen else None, table, more)


def _chosen(nodes: tuple[NodeChange, ...]) -> list[NodeChange]:
    if len(nodes) <= NODES_SHOWN:
        return list(nodes)
    most = sorted(nodes, key=lambda change: (-abs(change.after.pods - change.before.pods), change.node))
    return sorted(most[:NODES_SHOWN], key=lambda change: change.node)


def _row(change: NodeChange) -> tuple[Child, ...]:
    before, after = change.before, change.after
    cpu = f"{units.cores(before.cpu_milli)} → {units.cores(after.cpu_milli)} of {units.cores(change.cpu_milli)} CPUs"
    memory = f"{units.size(before.memory)} → {units.size(after.memory)} of {units.size(change.memory)}"
    return (
        change.node,
        [_bar("CPUs", before.cpu_milli, after.cpu_milli, change.cpu_milli), el("div", cpu, class_="tile-note")],
        [_bar("memory", before.memory, after.memory, change.memory), el("div", memory, class_="tile-note")],
        f"{before.pods} → {after.pods} pods",
        _wrong(before, after),
    )


def _wrong(before: Load, after: Load) -> str:
    return f"{before.wrong} → {after.wrong} wrong"


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


def maps(plan: EvictionPlan) -> Markup | None:
    """CPUs by NUMA node, of nodes where a pod's place among them is what is wrong, or where one is to come."""
    drawn = list(_drawn(plan))
    note = "Where pods stand as the picture has it, and what is left of that after the plan."
    return page.section("CPUs by NUMA node", numa_map.legend(), drawn, note=note) if drawn else None


def _drawn(plan: EvictionPlan) -> Iterator[Markup]:
    wrong: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in plan.outcomes:
        if outcome.pod.containers:
            wrong[outcome.pod.node].append(outcome)
    targets = {o.target for o in plan.evict if o.pod.containers}
    names = [c.node for c in plan.nodes if c.node in wrong or c.node in targets]
    for name in names[:MAPS_SHOWN]:
        node = plan.view.nodes[name]
        if node.topology.cpus:
            pods = ", ".join(f"{o.pod.key} on CPUs {numa_map.held(o) or 'none'}" for o in wrong[name])
            yield el("h3", name)
            words = f"wrong: {pods}" if pods else "nothing wrong; the plan sends pods here"
            yield el("p", words, class_="note", style="overflow-wrap:anywhere")
            yield numa_map.draw(node, wrong[name])
            yield from _after(node, wrong[name])
            yield from _coming(name, plan)
            yield _zones(next(change for change in plan.nodes if change.node == name))
    if len(names) > MAPS_SHOWN:
        yield el("p", f"and {len(names) - MAPS_SHOWN} more nodes", class_="note")


def _after(node: NodeView, wrong: list[Outcome]) -> Iterator[Markup]:
    """The node without the pods that leave. Which CPUs those get that come, nobody knows yet: the numbers have them."""
    gone = {outcome.pod.uid for outcome in wrong if outcome.verdict == "evict"}
    if gone:
        stays = dataclasses.replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in gone))
        yield el("p", "after the plan:", class_="note")
        yield numa_map.draw(stays, [outcome for outcome in wrong if outcome.verdict == "spare"])


def _coming(name: str, plan: EvictionPlan) -> Iterator[Markup]:
    """The pods that the plan counts on this node for, with the CPUs they ask for."""
    coming = [outcome for outcome in plan.evict if outcome.target == name]
    if coming:
        words = [f"{o.pod.key} ({units.cores(o.pod.pod.request_milli())} CPUs)" for o in coming[:COMING_SHOWN]]
        more = f" and {len(coming) - COMING_SHOWN} more" if len(coming) > COMING_SHOWN else ""
        listed = ", ".join(words)
        text = f"comes with the plan: {listed}{more}. Their CPUs are chosen when they start; the numbers count them."
        yield el("p", text, class_="note", style="overflow-wrap:anywhere")


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
