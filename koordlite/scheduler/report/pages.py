"""The pages of a running extender: what is refused and why as bars, and the free CPUs of NUMA nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koordlite.report import make_room, units
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, Strict, el, facts, section, table, tile, tiles
from koordlite.scheduler.report import texts

REFRESH_SECONDS = 10
MOST_NODES = 60
"""Nodes that are drawn; all that are kept are in the words below."""


def front(state: Mapping[str, Any]) -> Strict:
    """Numbers, dirty nodes, and where to look up pods and nodes."""
    ended = ", ".join(f"{count} {why}" for why, count in state["reservationsEnded"].items()) or "none"
    numbers = tiles(
        tile("nodes", state["nodes"], f"{state['reports']} with a report"),
        tile("dirty nodes", state["dirtyNodes"], "reports that do not count all pods"),
        tile("reservations", state["reservations"], f"ended: {ended}"),
        tile("predicted wrong", state["predictedWrong"], "refused by kubelet after the binding"),
    )
    dirty = [(el("a", each["node"], href=f"/state/{each['node']}"), each["why"]) for each in state["dirty"]]
    watches = []
    for each in state["watches"]:
        age = "never read" if each["ageSeconds"] is None else f"{each['ageSeconds']:.0f} s ago"
        error = each["error"] or ("not served" if each["absent"] else "–")
        watches.append((each["name"], each["objects"], age, error))
    body = [
        numbers,
        section("Refusals", _reasons(state["refusals"], "nodes refused since the start")),
        section("Dirty nodes", table(("node", "why"), dirty, stacked=True)),
        section("Watches", table(("of", "objects#", "confirmed#", "error"), watches)),
        section("Settings", facts((name, str(value)) for name, value in state["settings"].items())),
        page.details("All of it, as JSON", el("p", json.dumps(state, indent=2), class_="words")),
    ]
    return page.strict(page.page("koordlite scheduler-extender", *body, refresh_seconds=REFRESH_SECONDS))


def pod(document: Mapping[str, Any]) -> Strict:
    """A pod: bars of nodes by what is against them, its CPUs beside those free on each NUMA node, and room for it."""
    body: list[Child] = []
    waiting, nodes = document.get("waiting"), document.get("nodes", [])
    if "attempts" in document:
        passed = document["passed"]
        total = passed + sum(document["refused"].values())
        body += [
            tiles(
                tile(
                    "nodes that pass", f"{document['passed']} of {total}", tone="good" if document["passed"] else "bad"
                ),
                tile("CPUs it asks", units.cores(round(1000 * document["cpu"])), document["asks"]["class"]),
                tile("attempts alike", document["attempts"], f"the last at {document['at']}"),
                tile("bound to", document["chosen"] or "–", document["phase"]),
            ),
            section("Nodes that refuse it", _reasons(document["refused"], "nodes")) if document["refused"] else None,
            section(
                "Free CPUs by NUMA node",
                _zones(nodes[:MOST_NODES], document["cpu"]),
                note=f"When it was asked about. The line in a bar is what the pod asks: {document['cpu']:g} CPUs."
                + (f" {len(nodes) - MOST_NODES} more nodes are in the words below." if len(nodes) > MOST_NODES else ""),
            ),
        ]
    if waiting:
        body.append(_room(waiting))
    elif not document.get("chosen"):
        address = f"/explain/{document['pod']}?make-room=1"
        link = el("a", "look for the fewest moves by which it would fit", href=address)
        body.append(section("Make room", el("p", link)))
    body.append(page.details("In words", el("p", "\n".join(texts.pod(document, every=True)), class_="words")))
    # A page with a search is not asked for again and again.
    return _page(f"pod {document['pod']}", body, None if waiting else REFRESH_SECONDS)


def node(document: Mapping[str, Any]) -> Strict:
    """A node: what is judged to be left of each NUMA node, and all that is known of it in words."""
    first, *lines = texts.node(document)
    body: list[Child] = [el("p", first)]
    if document["cpus"]:
        one = {"node": document["node"], "refusal": "", "why": "", "cpus": document["cpus"]}
        note = "As judged: with what is reserved on top of the report."
        body.append(section("Free CPUs by NUMA node", _zones([one], 0.0), note=note))
    body.append(section("In words", el("p", "\n".join(lines), class_="words")))
    return _page(f"node {document['node']}", body, REFRESH_SECONDS)


def _page(title: str, body: Sequence[Child], refresh_seconds: int | None) -> Strict:
    lead = el("a", "koordlite scheduler-extender", href="/")
    return page.strict(page.page(title, *body, lead=lead, refresh_seconds=refresh_seconds))


def _reasons(counts: Mapping[str, int], what: str) -> Markup:
    """A bar for each reason, as long as its part of the longest."""
    most = max(counts.values(), default=0)
    rows = [
        (el("div", reason, page.bar(count / most, "var(--bad)")), count)
        for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    return table(("reason", f"{what}#"), rows)


def _zones(nodes: Iterable[Mapping[str, Any]], request: float) -> Markup:
    """A card for each node: its verdict, and a bar for each NUMA node with a line at what is asked."""
    cards = []
    for each in nodes:
        word = page.badge("no", "bad") if each["refusal"] else page.badge("yes", "good") if request else None
        bars = [
            el(
                "div",
                el("span", f"NUMA {z['numaNode']}: {z['left']:g} of {z['of']:g} CPUs free", class_="tile-note"),
                page.bar(
                    min(1.0, z["left"] / z["of"]) if z["of"] else 0.0,
                    "var(--good)" if z["left"] >= request else "var(--bad)",
                    mark=request / z["of"] if z["of"] else None,
                ),
            )
            for z in each["cpus"]
        ]
        head = el("h3", el("a", each["node"], href=f"/state/{each['node']}"), " ", word, style="margin-top:0")
        why = el("p", each["refusal"], class_="note") if each["refusal"] else None
        unknown = None if bars else el("p", "its NUMA nodes are not reported", class_="note")
        cards.append(el("div", head, why, bars, unknown, style=_CARD))
    return el("div", cards, style=_GRID) if cards else el("p", "none", class_="note")


_CARD = "border:1px solid var(--line);border-radius:8px;padding:10px 12px;min-width:0;overflow-wrap:anywhere"
_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,220px),1fr));gap:12px"


def _room(waiting: Mapping[str, Any]) -> Markup:
    groups = [
        ([group["why"], el("p", group["nearest"], class_="note") if group["nearest"] else None], group["nodes"])
        for group in waiting["groups"]
    ]
    body: list[Child] = [table(("what is against them", "nodes#"), groups)]
    if waiting["fits"]:
        body.append(el("p", f"It fits now, without a move: {', '.join(waiting['fits'])}"))
    else:
        answer = waiting["makeRoom"]
        body.append(
            table(("", "what would make room"), ((head.strip(), text) for head, text in make_room.lines(answer)))
        )
        body.append(el("p", f"Not seen here: {answer['notSeen']}", class_="note"))
    return section("Make room", *body)
