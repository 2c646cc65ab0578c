"""The last night of every node in one row, asked of the agents where the NUMA exporter is part of them."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.model.errors import UNREADABLE
from koordlite.report import units, view
from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el
from koordlite.report.night import HOURS, Night
from koordlite.scheduler.numa_api import overview_page
from koordlite.scheduler.numa_api.charts import Agents
from koordlite.scheduler.numa_api.overview_page import Selection

ASK_SECONDS, AT_ONCE, PATIENCE_SECONDS = 60.0, 32, 10.0
"""An answer serves for so long; so many agents are asked at once; what has not come by then is not waited for."""
REFRESH_SECONDS = 60
MOST_ROWS = 100
SHOW = {"all": "all nodes", "limited": "held back", "silent": "no answer"}
SORT = {
    "limited": "held back longest",
    "lost": "most lost",
    "deepest": "lowest limit",
    "used": "most used",
    "waits": "services waited most",
    "evictions": "most evictions",
    "restores": "most restores",
    "name": "name",
}


class NodeNight(msgspec.Struct, frozen=True):
    """One row. `why`: what keeps the night from being shown."""

    node: str
    night: Night | None = None
    why: str = ""


class Nights:
    """The nights of all nodes, asked for when somebody looks. May be used from many threads."""

    def __init__(self, agents: Agents, *, monotonic: Callable[[], float]) -> None:
        self._agents, self._monotonic, self._lock = agents, monotonic, threading.Lock()
        self._next, self._rows = float("-inf"), tuple[NodeNight, ...]()
        self._pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE, thread_name_prefix="night")

    def rows(self, nodes: Collection[str]) -> tuple[NodeNight, ...]:
        """A row for each node, at most a minute old. One caller asks; others wait for the same answer."""
        with self._lock:
            if self._monotonic() >= self._next:
                self._rows = tuple(self._ask_all(sorted(nodes)))
                self._next = self._monotonic() + ASK_SECONDS
            return self._rows

    def _ask_all(self, nodes: Sequence[str]) -> list[NodeNight]:
        try:
            addresses = self._agents.addresses()
        except (ApiError, ApiUnreachable) as error:
            return [NodeNight(node, why=f"the agents' pods cannot be listed: {error}") for node in nodes]
        answers = {node: self._pool.submit(self._of, node, addresses.get(node, ())) for node in nodes}
        concurrent.futures.wait(answers.values(), PATIENCE_SECONDS)
        rows = []
        for node, answer in answers.items():
            # What has not begun never does; what is under way ends by its own timeouts.
            if answer.cancel() or not answer.done():
                rows.append(NodeNight(node, why=f"no answer within {PATIENCE_SECONDS:g} s"))
            else:
                rows.append(answer.result())
        return rows

    def _of(self, node: str, addresses: Sequence[str]) -> NodeNight:
        why = "no agent runs there, or its numaExporter.listen is not set"
        for address in addresses:
            try:
                return NodeNight(node, read(self._agents.ask(address, "/night")))
            except (OSError, ValueError) as error:
                why = f"the agent at {address} cannot be asked: {error}"
        return NodeNight(node, why=why)


def read(body: bytes) -> Night:
    """An agent's answer; ValueError when it is none."""
    try:
        night = msgspec.json.decode(body, type=Night)
    except UNREADABLE as error:
        raise ValueError(f"it is no night: {error}") from error
    numbers = [value for value in msgspec.structs.astuple(night) if isinstance(value, int | float)]
    if not all(0 <= value < 1e12 for value in numbers) or len(night.status) > 20:
        raise ValueError("it has a number that no night has")
    return night


def plain(row: NodeNight) -> dict[str, Any]:
    """One row for programs."""
    return {"node": row.node, "why": row.why, "night": row.night and msgspec.to_builtins(row.night)}


def document(rows: Sequence[NodeNight], selection: Selection, *, problem: str = "") -> str:
    """The page. `problem`: why the list of nodes may be out of date."""
    selected = select(rows, selection)
    part, where = overview_page.part(selected, selection, MOST_ROWS)
    amounts = ("held back", "of", "lowest limit", "BE lost", "BE used", "services waited", "at most")
    heads = ("node", "agent", *(f"{head}#" for head in (*amounts, "evictions", "restores")))
    table = page.table(heads, [_row(row) for row in part], empty="no node matches")
    note = (
        f"{len(selected)} nodes, {HOURS} hours at most. Held back: BE used 95 % of its limit or more; lost: against "
        "the limit of quiet times; services waited: for a CPU, the one that did so most, on average and in the worst "
        "minute"
    )
    ask = "kubectl koordlite explain NODE besteffort --since 12h"
    json = el("a", "nights (JSON)", href="../rest/scheduling/v1/numa/nights")
    return page.page(
        "Last night",
        overview_page.out_of_date(problem),
        _tiles(rows),
        overview_page.form(selection, SHOW, SORT, hint="node"),
        page.section("Nodes", table, where, note=note),
        page.section("More", el("p", "By whom it was held back, where agents keep a record: ", page.code(ask)), json),
        lead=[
            el("a", "NUMA nodes of the cluster", href="../numa"),
            " · Batch work of every node in one row. ",
            page.refresh_link(selection.link(selection.page, refresh=not selection.refresh), selection.refresh),
        ],
        foot="From the agents, at most a minute old; every number is also at /rest/scheduling/v1/numa/nights.",
        refresh_seconds=REFRESH_SECONDS if selection.refresh else None,
    )


def select(rows: Sequence[NodeNight], selection: Selection) -> list[NodeNight]:
    """The rows that `selection` is about, the worst first; nodes without an answer are last, except by name."""
    key: dict[str, Callable[[Night], float]] = {
        "limited": lambda night: -night.held_back_seconds,
        "lost": lambda night: -night.lost_core_hours,
        "deepest": lambda night: math.inf if night.deepest_milli is None else night.deepest_milli,
        "used": lambda night: -night.used_core_hours,
        "waits": lambda night: -(night.service_wait_percent or 0.0),
        "evictions": lambda night: -night.evictions,
        "restores": lambda night: -night.restores,
        "name": lambda night: 0.0,
    }
    keep: dict[str, Callable[[NodeNight], bool]] = {
        "all": lambda row: True,
        "limited": lambda row: row.night is not None and row.night.held_back_seconds > 0,
        "silent": lambda row: row.night is None,
    }
    by, last = key[selection.sort], selection.sort != "name"
    matching = [row for row in rows if keep[selection.show](row) and selection.text in row.node]
    return sorted(matching, key=lambda row: (last and row.night is None, by(row.night) if row.night else 0.0, row.node))


def _tiles(rows: Sequence[NodeNight]) -> Markup:
    nights = [row.night for row in rows if row.night]
    silent = len(rows) - len(nights)
    limited = sum(bool(night.held_back_seconds) for night in nights)
    lost, used = sum(night.lost_core_hours for night in nights), sum(night.used_core_hours for night in nights)
    restores = sum(night.restores for night in nights)
    return page.tiles(
        page.tile("Held back", f"{limited} nodes", f"of {len(nights)} that answer", tone="warn" if limited else ""),
        page.tile("BE lost, core-hours", f"{lost:.1f}", "against quiet times"),
        page.tile("BE used, core-hours", f"{used:.1f}"),
        page.tile("Evictions", sum(night.evictions for night in nights), f"restores: {restores}"),
        page.tile("No answer", silent, "the reason is in the row", tone="bad" if silent else "good"),
    )


def _row(row: NodeNight) -> tuple[Child, ...]:
    name = el("a", row.node, href=overview_page.node_link(row.node).removeprefix("numa/"))
    night = row.night
    if night is None:
        return name, [page.badge("no answer", "bad"), el("div", row.why, class_="tile-note")], *["–"] * 9
    waits = (night.service_wait_percent, night.service_wait_most_percent)
    return (
        name,
        page.badge(night.status, view.STATUS_TONES.get(night.status, "")),
        f"{night.held_back_seconds / 60:.0f} min",
        f"{night.seconds / 60:.0f} min",
        "–" if night.deepest_milli is None else units.cores(night.deepest_milli),
        f"{night.lost_core_hours:.1f} core-h",
        f"{night.used_core_hours:.1f} core-h",
        *("–" if wait is None else f"{wait:.1f} %" for wait in waits),
        night.evictions,
        night.restores,
    )
