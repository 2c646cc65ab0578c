"""The plan as one self-contained page: summary, every pod a plugin named, and the nodes drawn by NUMA node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from descheduler import durations
from descheduler.fit import Search
from descheduler.framework import Finding
from descheduler.outcome import EvictionPlan, NodeChange, Outcome
from descheduler.report import numa_map
from descheduler.report.text import place_words
from koordlite.report import page, units
from koordlite.report.page import Child, Markup, el

_TONES = {"hard": "bad", "fixable": "warn", "exposed": ""}


def render(plan: EvictionPlan) -> str:
    """The whole document."""
    return page.page(
        "Eviction plan",
        _tiles(plan),
        _pods("To evict, in this order", plan.evict, "nothing is to be evicted"),
        _pods("Spared, with something wrong", plan.spare, "no pod was spared"),
        _nodes(plan),
        _maps(plan),
        _notes(plan),
        lead=f"Dry run: nothing was evicted. The cluster as of {plan.view.time} ({plan.view.time_source}).",
        foot=f"Judged by {', '.join(plan.plugins)}.",
    )


def _tiles(plan: EvictionPlan) -> Markup:
    pods = sum(1 for _ in plan.view.pods())
    problems = len(plan.view.problems)
    unread = f"; unreadable: {problems}" if problems else ""
    return page.tiles(
        page.tile("judged", f"{pods} pods", f"on {len(plan.view.nodes)} nodes{unread}"),
        page.tile("with something wrong", len(plan.outcomes), tone="warn" if plan.outcomes else "good"),
        page.tile("to evict", len(plan.evict), tone="bad" if plan.evict else "good"),
        page.tile("spared", len(plan.spare), ", ".join(f"{n} × {why}" for why, n in plan.spared_by.items())),
    )


def _pods(title: str, outcomes: Iterable[Outcome], empty: str) -> Markup:
    blocks = [_pod(outcome) for outcome in outcomes]
    return page.section(title, blocks or el("p", empty, class_="note"))


def _pod(outcome: Outcome) -> Markup:
    pod = outcome.pod
    about = [f"on {pod.node}", str(pod.pod.qos_class), pod.owner or "no owner"]
    about += [] if pod.age_seconds is None else [f"{durations.show(pod.age_seconds)} old"]
    pairs: list[tuple[str, Child]] = [("pod", ", ".join(about))]
    for before, finding in zip((None, *outcome.findings), outcome.findings, strict=False):
        pairs += _finding(finding, told=before is not None and before.promise == finding.promise)
    pairs += [("cure", cure) for cure in outcome.cures]
    pairs += [("spared", [page.badge(r.reason, "warn"), " ", r.text]) for r in outcome.reasons]
    if outcome.search:
        pairs.append(("would fit", _places(outcome, outcome.search)))
    return el("article", el("h3", pod.key), page.facts(pairs), style="margin-bottom:22px")


def _finding(finding: Finding, *, told: bool) -> list[tuple[str, Child]]:
    """`told`: the finding above was about the same promise."""
    where = "" if finding.container == "*" else f" in container {finding.container}"
    head = [page.badge(finding.reason, _TONES[finding.severity]), f" {finding.severity}, {finding.plugin}{where}"]
    promise: list[tuple[str, Child]] = [] if told else [("promise", finding.promise)]
    return [("wrong", head), *promise, ("fact", finding.fact)]


def _places(outcome: Outcome, search: Search) -> list[Child]:
    words: list[Child] = [", ".join(place_words(place) for place in search.places[:5]) or "nowhere"]
    if len(search.places) > 5:
        words.append(f" and {len(search.places) - 5} more")
    if outcome.target:
        words.append(f"; the plan counts on {outcome.target}")
    if search.by_node:
        rows = [(node, why) for node, why in sorted(search.by_node.items())]
        words.append(page.details(f"not: {search.sentence}", page.table(("node", "why not"), rows)))
    return words


def _nodes(plan: EvictionPlan) -> Markup:
    headings = ("node", "pods#", "CPUs requested#", "of#", "memory requested#", "pods standing wrong#")
    rows = [_node(change) for change in plan.nodes]
    return page.section("Nodes, before → after", page.table(headings, rows, empty="no node changes"))


def _node(change: NodeChange) -> tuple[Child, ...]:
    before, after = change.before, change.after
    return (
        change.node,
        f"{before.pods} → {after.pods}",
        f"{units.cores(before.cpu_milli)} → {units.cores(after.cpu_milli)}",
        units.cores(change.cpu_milli),
        f"{units.size(before.memory)} → {units.size(after.memory)}",
        f"{before.wrong} → {after.wrong}",
    )


def _maps(plan: EvictionPlan) -> Markup | None:
    drawn = list(_drawn(plan))
    note = "Where pods stand as the picture has it, before the plan."
    return page.section("CPUs by NUMA node", numa_map.legend(), drawn, note=note) if drawn else None


def _drawn(plan: EvictionPlan) -> Iterator[Markup]:
    wrong: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in plan.outcomes:
        wrong[outcome.pod.node].append(outcome)
    for change in plan.nodes:
        node = plan.view.nodes[change.node]
        if node.topology.cpus:
            pods = ", ".join(f"{o.pod.key} on CPUs {numa_map.held(o) or 'none'}" for o in wrong[node.name])
            yield el("h3", node.name)
            yield el("p", f"wrong: {pods}" if pods else "nothing wrong; the plan sends pods here", class_="note")
            yield numa_map.draw(node, wrong[node.name])


def _notes(plan: EvictionPlan) -> Markup | None:
    said = [note.line for note in plan.notes]
    lines = [*said, *plan.view.notes, *map(str, plan.view.problems)]
    return (
        page.section("Notes and problems", el("ul", [el("li", line) for line in lines], style="font-size:14px"))
        if lines
        else None
    )
