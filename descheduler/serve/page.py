"""The front page of a running descheduler: the cluster by NUMA zone, misplaced pods, the last cycles."""

from __future__ import annotations

import urllib.parse
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from descheduler.plan import EvictionPlan, Outcome
from descheduler.report import html, numa_map
from descheduler.report import text as text_report
from descheduler.serve.loop import CycleResult
from koordlite.report import units
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, Strict, el

REFRESH_SECONDS = 30
MAX_OUTCOMES = 100
LINKS = ("/report", "/report.json", "/report.txt", "/metrics", "/healthz", "/readyz")


class Cycle(msgspec.Struct, frozen=True):
    """A round in the list of the last ones: its result without the plan, which is large, and the plan's numbers."""

    result: CycleResult
    pods: tuple[int, int, int, int]
    """Numbers of pods with findings, to evict, kept, and evicted or on their way."""

    @classmethod
    def of(cls, result: CycleResult) -> Cycle:
        """Take what the list shows of a round."""
        plan, leaving = result.plan, sum(attempt.goes for attempt in result.attempts)
        pods = (len(plan.outcomes), len(plan.evict), len(plan.kept), leaving) if plan else (0, 0, 0, leaving)
        return cls(msgspec.structs.replace(result, plan=None, attempts=()), pods)


def strict(result: CycleResult, past: Sequence[Cycle], text: str = "", *, refresh: bool = True) -> Strict:
    """The page with the content security policy it is served under."""
    return page.strict(document(result, past, text, refresh=refresh), forms=True)


def document(result: CycleResult, past: Sequence[Cycle], text: str = "", *, refresh: bool = True) -> str:
    """The page for `result`, the last round that has a plan; `past` are the last rounds, the newest last.

    Of many nodes and pods the worst are listed; `text` asks for those with it in their names. With `refresh` it changes
    by itself.
    """
    assert result.plan is not None, "only a round with a plan has a page"
    wrong: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in result.plan.outcomes:
        wrong[outcome.pod.node].append(outcome)
    nodes = numa_map.matching_nodes(result.plan, wrong, text)
    return page.page(
        "Descheduler",
        _tiles(result, result.plan),
        html.warnings(result.plan),
        _search(text, refresh),
        numa_map.section(nodes, wrong),
        _violations([o for o in result.plan.outcomes if text in o.pod.key or text in o.pod.node]),
        numa_map.details(nodes, wrong),
        _cycles(past),
        _problems(result),
        page.section("More", el("ul", [el("li", el("a", path, href=f".{path}")) for path in LINKS], class_="legend")),
        lead=_lead(result, text, refresh),
        foot="Made by the descheduler; every number is also in the JSON report.",
        refresh_seconds=REFRESH_SECONDS if refresh else None,
    )


def _lead(result: CycleResult, text: str, refresh: bool) -> list[Child]:
    role = page.badge("leader" if result.leader else "standby", "good" if result.leader else "")
    does = page.badge("dry run" if result.dry_run else "evicting", "" if result.dry_run else "warn")
    cycle = f" cycle {result.number}, {units.moment(result.began)}, took {units.span(result.seconds)} · "
    query = {"node": text, "refresh": "off" if refresh else ""}
    address = "?" + urllib.parse.urlencode({name: value for name, value in query.items() if value})
    return [role, " ", does, cycle, page.refresh_link(address, refresh)]


def _tiles(result: CycleResult, plan: EvictionPlan) -> Markup:
    pods = sum(len(node.pods) for node in plan.view.nodes.values())
    reasons = ", ".join(f"{count} × {why}" for why, count in list(plan.kept_by.items())[:4])
    note = "would go; nothing is evicted" if result.dry_run else f"{sum(a.goes for a in result.attempts)} gone"
    return page.tiles(
        page.tile("Judged", f"{pods} pods", f"on {len(plan.view.nodes)} nodes"),
        html.not_judged(plan),
        page.tile("Misplaced", len(plan.outcomes), tone="warn" if plan.outcomes else "good"),
        page.tile("To evict", len(plan.evict), note, tone="bad" if plan.evict else "good"),
        page.tile("Kept", len(plan.kept), reasons),
    )


def _search(text: str, refresh: bool) -> Markup:
    """Chooses what the page lists; works without scripts."""
    label = "part of the name of a node or pod"
    field = el("input", type="search", name="node", value=text, placeholder="node or pod", aria_label=label)
    hidden = None if refresh else el("input", type="hidden", name="refresh", value="off")
    everything = el("a", "show all", href="?") if text else None
    return el("form", field, hidden, " ", el("button", "show"), " ", everything, method="get", style="margin:0 0 16px")


def _violations(outcomes: Sequence[Outcome]) -> Markup:
    rows = [_violation(outcome) for outcome in outcomes[:MAX_OUTCOMES]]
    heads = ("pod", "node", "what is wrong", "what becomes of it")
    table = page.table(heads, rows, empty="no misplaced pods", stacked=True)
    return page.section("Misplaced pods", table, note=_more(len(outcomes)))


def _more(count: int) -> str | None:
    return f"{count - MAX_OUTCOMES} more are in the report." if count > MAX_OUTCOMES else None


def _violation(outcome: Outcome) -> tuple[Child, ...]:
    main = outcome.main
    promise = f"promised: {main.promise}; fact: " if main.promise else ""
    wrong = [page.badge(main.reason, text_report.TONES[main.severity]), f" {promise}{main.fact}"]
    if outcome.verdict == "evict":
        becomes: list[Child] = [page.badge("evict", "bad"), f" {outcome.target and f'would fit on {outcome.target}'}"]
    else:
        becomes = [[page.badge(r.reason, "warn"), f" {r.text}"] for r in outcome.reasons[:1]]
    return outcome.pod.key, outcome.pod.node, wrong, becomes


def _cycles(past: Sequence[Cycle]) -> Markup:
    rows = []
    for cycle in reversed(past):
        result = cycle.result
        role = f"{'leader' if result.leader else 'standby'}{', dry run' if result.dry_run else ''}"
        failed = page.join(page.badge("failed", "bad"), " ", result.error) if result.error else None
        began = el("span", units.moment(result.began), style="white-space:nowrap")
        took = units.span(result.seconds)
        rows.append((result.number, began, took, role, *cycle.pods, failed or page.badge("ok", "good")))
    heads = ("cycle#", "began", "took", "as", "found#", "to evict#", "kept#", "gone#", "outcome")
    return page.section("Last cycles", page.table(heads, rows, empty="none yet"))


def _problems(result: CycleResult) -> Markup | None:
    assert result.plan is not None
    lines = [*(note.line for note in result.plan.notes), *result.plan.view.notes]
    lines += [str(problem) for problem in (*result.problems, *result.plan.view.problems)]
    items = [el("li", line) for line in lines[:MAX_OUTCOMES]]
    return page.section("Notes and problems", el("ul", items), note=_more(len(lines))) if items else None
