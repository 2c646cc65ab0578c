"""`documents` as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from koordlite.scheduler import making_room

SHOWN_NODES = 30


def pod(found: Mapping[str, Any], *, every: bool = False) -> Iterator[str]:
    """A pod: what it asks, what was decided, and every node with its reason, the best first; of one that was asked
    about with `make-room`, also what would have to move."""
    if "attempts" in found:
        yield from _attempt(found, every=every)
    else:
        yield f"pod {found['pod']}: no scheduler has asked about it here, as of pods that no node has enough in all for"
    if found.get("waiting"):
        yield from making_room.lines(found["waiting"])


def _attempt(found: Mapping[str, Any], *, every: bool) -> Iterator[str]:
    asked = ", ".join(f"{name} {_amounts(amounts)}" for name, amounts in found["asks"]["aligned"].items())
    yield f"pod {found['pod']}: {found['asks']['class']}; {f'aligned: {asked}' if asked else 'nothing is aligned'}"
    for problem in found["asks"]["problems"]:
        yield f"  problem: {problem}"
    total = found["passed"] + sum(found["refused"].values())
    again = f", the same {found['attempts']} times" if found["attempts"] > 1 else ""
    yield f"last asked {found['at']}{again}: {found['passed']} of {total} nodes pass"
    for reason, count in found["refused"].items():
        yield f"  {count} {reason}"
    if found["chosen"]:
        numa = f", NUMA nodes {', '.join(map(str, found['numaNodes']))}" if found["numaNodes"] else ""
        yield f"bound to {found['chosen']}{numa}; the pod is {found['phase']}"
    for name, text in found["annotations"].items():
        yield f"  {name}: {text}"
    if found["reservation"]:
        yield f"reserved: {found['reservation']}"
    for event in found["events"]:
        yield f"  {event}"
    yield from _nodes(found, every=every)


def _nodes(found: Mapping[str, Any], *, every: bool) -> Iterator[str]:
    nodes = found["nodes"]
    shown = nodes if every else nodes[:SHOWN_NODES]
    for each in shown:
        if each["refusal"]:
            yield f"{each['node']}: no, {each['refusal']}" + (f" ({each['why']})" if each["why"] else "")
        else:
            placed = "; ".join(f"{name} on NUMA node {', '.join(map(str, at))}" for name, at in each["placed"].items())
            answered = "" if each["answered"] is None else f", answered {each['answered']} of 10"
            terms = ", ".join(f"{name} {value}" for name, value in each["terms"].items())
            detail = "; ".join(filter(None, [terms, placed, each["why"]]))
            yield f"{each['node']}: yes, score {each['score']}{answered} ({detail})"
    for name in found["unknownNodes"]:
        yield f"{name}: yes, nothing is known of this node"
    if len(shown) < len(nodes):
        yield f"... {len(nodes) - len(shown)} more nodes; --all lists them"
    if found["onlySomeNodes"]:
        yield "the attempt is old: only some of its nodes are kept"


def node(found: Mapping[str, Any]) -> Iterator[str]:
    """A node: its report, what is on top, and whether it is dirty."""
    report = found["report"]
    if report is None:
        yield f"node {found['node']}: no NodeResourceTopology; {found['pods']} pods"
        yield from _reservations(found)
        return
    yield f"node {found['node']}: topology manager {report['policy']}, scope {report['scope']}; {found['pods']} pods"
    signed = report["fingerprint"] or "none"
    yield f"report {report['version']}, unchanged for {report['unchangedFor']}, fingerprint {signed}"
    for problem in report["problems"]:
        yield f"  problem: {problem}"
    for number, amounts in report["available"].items():
        judged = found["judged"]["numaNodes"].get(number, {})
        most = report["allocatable"].get(number, {})
        rows = [
            f"{name} {left} of {most.get(name, '?')}, judged {judged.get(name, '?')}" for name, left in amounts.items()
        ]
        yield f"NUMA node {number}: {'; '.join(rows)}"
    if found["judged"]["unusable"]:
        yield f"unusable: {found['judged']['unusable']}"
    dirty = found["dirty"]
    yield (
        f"dirty for {dirty['seconds']:g} s: {dirty['why']}"
        if dirty["isDirty"]
        else "clean: the report counts these pods"
    )
    for each in found["reserved"]:
        yield f"reserved {each['seconds']:g} s ago for {each['pod']} ({each['stage']}): {_amounts(each['takes'])}"
    yield from _reservations(found)
    for each in found["ended"]:
        yield f"ended {each['secondsAgo']:g} s ago for {each['pod']}: {each['why']}"


def _reservations(found: Mapping[str, Any]) -> Iterator[str]:
    for each in found["reservations"]:
        cpus = f", CPUs {each['cpus']}" if each["cpus"] else ""
        coming = ", is being handed over" if each["handedTo"] else ""
        left = _amounts(each["left"])
        yield f"reservation {each['name']} has {left} left{cpus}; {len(each['owners'])} owners{coming}"
        yield from (f"  problem: {problem}" for problem in each["problems"])


def _amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items()) or "nothing"
