"""The plan as one self-contained page: summary, what changed, every pod a plugin named, and the nodes drawn."""

from __future__ import annotations

from collections.abc import Sequence

from descheduler.fit.search import Search
from descheduler.framework import Finding
from descheduler.plan import Attempt, EvictionPlan, Outcome
from descheduler.report import diff, document, html_groups, html_nodes
from descheduler.report.diff import Difference
from descheduler.report.html_groups import EVICT, KEPT
from descheduler.report.text import NOTHING, place_words
from koordlite.model import duration
from koordlite.report.html import filter as filters
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el

_TONES = {"hard": "bad", "fixable": "warn", "exposed": ""}
_RESULT_TONES = {"Evicted": "good", "InBackground": "good", "JobCreated": "good", "WouldEvict": ""}
PODS_SHOWN = 200
"""Of each kind of answer; a page of thousands is slow and nobody reads it. The JSON has them all."""
_OPEN = 20
"""Pods shown at length; of more, each opens at a click."""


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
        _plugins(plan),
        _changes(changes),
        html_groups.section(plan, (*plan.evict[:PODS_SHOWN], *plan.spare[:PODS_SHOWN])),
        el("div", _pods("To evict, in this order", plan.evict, "nothing is to be evicted", results), id=EVICT),
        el("div", _pods("Kept, with findings", plan.spare, "no pod with findings is kept", results), id=KEPT),
        *html_nodes.sections(plan),
        _notes(plan),
        lead=f"{failed}{done} The cluster as of {plan.view.time} ({plan.view.time_source}).",
        foot="Made by descheduler. The same cluster and policy give the same plan.",
        script=filters.SCRIPT,
    )


def _tiles(plan: EvictionPlan) -> Markup:
    pods = sum(1 for _ in plan.view.pods())
    problems = len(plan.view.problems)
    unread = f"; unreadable: {problems}" if problems else ""
    left = document.left_by_limits(plan)
    later = ", ".join(f"{count} × {reason}" for reason, count in left.items())
    guarded = ", ".join(f"{n} × {why}" for why, n in plan.spared_by.items() if why not in left)
    return page.tiles(
        page.tile("judged", f"{pods} pods", f"on {len(plan.view.nodes)} nodes{unread}"),
        page.tile("with findings", len(plan.outcomes), tone="warn" if plan.outcomes else "good"),
        page.tile("to evict", len(plan.evict), tone="bad" if plan.evict else "good"),
        page.tile("kept", len(plan.spare) - sum(left.values()), guarded),
        page.tile("left for later by limits", sum(left.values()), later, tone="warn" if left else ""),
    )


def _plugins(plan: EvictionPlan) -> Markup:
    rows = []
    for one in document.by_plugin(plan):
        found = [page.badge(f"{count} × {reason}") for reason, count in one["findings"].items()]
        words: Child = found or el("span", "no findings", class_="note")
        counts = f"{one['evict']} to evict, {one['spare']} kept" if found else ""
        notes = f"{one['notes']} note{'s' if one['notes'] > 1 else ''}" if one["notes"] else ""
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
    return page.section("Since the last report", table, _more(changes.rows, "changes.json"), note=note)


def _pods(title: str, outcomes: Sequence[Outcome], empty: str, results: dict[str, Attempt]) -> Markup:
    few = len(outcomes) <= _OPEN
    blocks = [_pod(outcome, results.get(outcome.pod.key), few=few) for outcome in outcomes[:PODS_SHOWN]]
    field = filters.field("find a pod, owner, namespace or node") if len(blocks) > 1 else None
    return page.section(title, field, blocks or el("p", empty, class_="note"), _more(outcomes, "plan.json"))


def _more(shown: Sequence[object], file: str) -> Markup | None:
    left = len(shown) - PODS_SHOWN
    return el("p", f"and {left} more: {file} has them all", class_="note") if left > 0 else None


def _pod(outcome: Outcome, attempt: Attempt | None, *, few: bool) -> Markup:
    facts, tags = page.facts(_facts(outcome, attempt)), html_groups.tags(outcome)
    if few:
        style = "margin-bottom:22px;overflow-wrap:anywhere"
        return el("article", el("h3", outcome.pod.key), facts, data_item=tags, style=style)
    why = outcome.reasons[0].reason if outcome.reasons else f"to {outcome.target}" if outcome.target else "goes"
    return page.details(f"{outcome.pod.key}: {outcome.main.reason}, {why}", facts, data_item=tags)


def _facts(outcome: Outcome, attempt: Attempt | None) -> list[tuple[str, Child]]:
    pod = outcome.pod
    about = [f"on {pod.node}", str(pod.pod.qos_class), pod.owner or "no owner"]
    about += [] if outcome.age_seconds is None else [f"{duration.age(outcome.age_seconds)} old"]
    pairs: list[tuple[str, Child]] = [("pod", ", ".join(about))]
    for before, finding in zip((None, *outcome.findings), outcome.findings, strict=False):
        pairs += _finding(finding, repeated=before is not None and before.promise == finding.promise)
    pairs += [("cure", cure) for cure in outcome.cures if cure]
    pairs += [("kept because", [page.badge(r.reason, "warn"), " ", r.text]) for r in outcome.reasons]
    if outcome.search:
        pairs.append(("would fit", _places(outcome, outcome.search)))
    if attempt and attempt.result != "WouldEvict":
        tone = _RESULT_TONES.get(attempt.result, "bad")
        pairs.append(("result", [page.badge(attempt.result, tone), " ", attempt.text]))
    return pairs


def _finding(finding: Finding, *, repeated: bool) -> list[tuple[str, Child]]:
    """`repeated`: the finding above was about the same promise."""
    where = "" if finding.container == "*" else f" in container {finding.container}"
    head = [page.badge(finding.reason, _TONES[finding.severity]), f" {finding.severity}, {finding.plugin}{where}"]
    promise: list[tuple[str, Child]] = [("promise", finding.promise)] if finding.promise and not repeated else []
    evidence = ", ".join(f"{name} {value}" for name, value in finding.evidence.items())
    return [
        ("wrong", head),
        *promise,
        ("fact", finding.fact),
        *([("evidence", page.code(evidence))] if evidence else []),
    ]


def _places(outcome: Outcome, search: Search) -> list[Child]:
    words: list[Child] = [", ".join(place_words(place) for place in search.places[:5]) or "nowhere"]
    if len(search.places) > 5:
        words.append(f" and {len(search.places) - 5} more")
    if outcome.target:
        words.append(f"; the plan counts on {outcome.target}")
    if search.groups:
        rows = [(why, str(group.nodes), ", ".join(group.examples)) for why, group in sorted(search.groups.items())]
        table = page.table(("why not", "nodes#", "for example"), rows)
        words.append(page.details(f"not: {search.sentence}", table))
    return words


def _notes(plan: EvictionPlan) -> Markup | None:
    notes = [note.line for note in plan.notes]
    lines = [*notes, *plan.view.notes, *map(str, plan.view.problems)]
    items = [el("li", line) for line in lines[:PODS_SHOWN]]
    listing = el("ul", items, style="font-size:14px;overflow-wrap:anywhere;padding-left:20px")
    return page.section("Notes and problems", listing, _more(lines, "plan.json")) if lines else None
