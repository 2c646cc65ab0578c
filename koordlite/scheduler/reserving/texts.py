"""Reservations as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from koordlite.model import duration

_COLUMNS = ("NAME", "PHASE", "NODE", "HOLDS", "TAKEN", "OWNERS", "ENDS IN", "WHY")


def table(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """All of them, in columns."""
    rows = [_COLUMNS, *(_row(each) for each in found)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_COLUMNS))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def one(found: Mapping[str, Any]) -> Iterator[str]:
    """Everything about one."""
    where = f" on node {found['node']}" if found["node"] else ""
    yield f"Reservation {found['name']}: {found['phase']}{where}"
    if found["why"]:
        yield f"  why: {found['why']}"
    if found["koordScheduler"]:
        yield f"  koord-scheduler runs ({', '.join(found['koordScheduler'])}): it holds the place, no placeholder does"
    yield from (f"  problem: {each}" for each in found["problems"])
    yield f"  holds: {_amounts(found['holds'])}; placeholders hold now: {_amounts(found['held'])}"
    if found["taken"] or found["owners"]:
        yield f"  taken: {_amounts(found['taken'])} by {', '.join(found['owners']) or 'none'}"
    if found["cpus"]:
        yield f"  CPUs and NUMA nodes: {found['cpus']}"
    yield f"  may take it: {'; '.join(found['may']) or 'no pod'}"
    yield f"  {_rules(found)}"
    yield f"  ends: {_end(found)}"
    for pod in found["placeholders"]:
        where = f" on {pod['node']}" if pod["node"] else ""
        yield f"  placeholder {pod['pod']}{where}: {pod['state']} ({_amounts(pod['requests'])})"
    if found["handOver"]:
        yield f"  {_hand_over(found['handOver'])}"
    for pod in found["waiting"]:
        yield f"  waits: pod {pod['pod']}: {pod['why']}"


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    left = each["endsInSeconds"]
    ends = duration.brief(max(left, 0)) if left is not None else each["endsBy"] or "-"
    owners = ",".join(each["owners"]) or "-"
    amounts = _amounts(each["holds"]), _amounts(each["taken"])
    return each["name"], each["phase"], each["node"] or "-", *amounts, owners, ends, each["why"] or "-"


def _rules(found: Mapping[str, Any]) -> str:
    parts = ["the first owner ends it" if found["allocateOnce"] else "owners share it"]
    parts.append(
        "no part of an owner comes from the node"
        if found["allocatePolicy"] == "Restricted"
        else "what exceeds it may come from the node"
    )
    parts += ["it takes no new owners"] if found["unschedulable"] else []
    parts += [f"taint {taint}" for taint in found["taints"]]
    parts += [f"order {found['order']}"] if found["order"] else []
    return "; ".join(parts)


def _end(found: Mapping[str, Any]) -> str:
    if found["ends"] is None:
        return "never by itself" if found["endsBy"] == "never" else "it has ended, or its end cannot be read"
    left = found["endsInSeconds"]
    when = f"in {duration.brief(left)}" if left >= 0 else f"{duration.brief(-left)} ago, at the next look"
    return f"{found['ends']} ({found['endsBy']}), {when}"


def _hand_over(found: Mapping[str, Any]) -> str:
    pod = f"{found.get('namespace')}/{found.get('name')}"
    if found.get("ended"):
        return f"hand-over to pod {pod} was given up at {found['ended']}, the {found.get('tries', 1)}. time in a row"
    return f"hand-over to pod {pod} since {found.get('since')}"


def _amounts(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in found.items()) or "nothing"
