"""The page of a running extender: its state, one node, or one pod, in the words of the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from koordlite.report.html.page import Strict, el, page, section, strict, tile, tiles


def front(state: Mapping[str, Any]) -> Strict:
    """Numbers, dirty nodes, and where to look up pods and nodes."""
    ended = ", ".join(f"{count} {why}" for why, count in state["reservationsEnded"].items()) or "none"
    numbers = tiles(
        tile("nodes", state["nodes"], f"{state['reports']} with a report"),
        tile("dirty nodes", state["dirtyNodes"], "reports that do not count all pods"),
        tile("reservations", state["reservations"], f"ended: {ended}"),
        tile("predicted wrong", state["predictedWrong"], "refused by kubelet after the binding"),
    )
    dirty = el("ul", [el("li", _link("state", each["node"]), f": {each['why']}") for each in state["dirty"]])
    refused = el("ul", [el("li", f"{count} × {reason}") for reason, count in state["refusals"].items()])
    body = [
        numbers,
        section("Dirty nodes", dirty),
        section("Refusals", refused),
        section("All of it", el("pre", json.dumps(state, indent=2))),
    ]
    return strict(page("koordlite scheduler-extender", *body, refresh_seconds=10))


def lines(title: str, text: Iterable[str]) -> Strict:
    """One pod or one node."""
    return strict(page(title, el("pre", "\n".join(text)), refresh_seconds=10))


def _link(what: str, name: str) -> str:
    return el("a", name, href=f"/{what}/{name}")
