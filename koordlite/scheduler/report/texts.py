"""`documents` as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from koordlite.scheduler import making_room
from koordlite.scheduler.report.documents import amounts_line

SHOWN_NODES = 30


def pod(document: Mapping[str, Any], *, every: bool = False) -> Iterator[str]:
    """A pod: what it asks, what was decided, and every node with its reason, the best first; of one that was asked
    about with `make-room`, also what would have to move."""
    if "attempts" in document:
        yield from _attempt(document, every=every)
    else:
        why = "no scheduler has asked about it here, as of pods that no node has enough in all for"
        yield f"pod {document['pod']}: {why}"
    if document.get("waiting"):
        yield from making_room.lines(document["waiting"])


def _attempt(document: Mapping[str, Any], *, every: bool) -> Iterator[str]:
    request = document["asks"]
    aligned = ", ".join(f"{name} {amounts_line(amounts)}" for name, amounts in request["aligned"].items())
    yield f"pod {document['pod']}: {request['class']}; {f'aligned: {aligned}' if aligned else 'nothing is aligned'}"
    for problem in request["problems"]:
        yield f"  problem: {problem}"
    total = document["passed"] + sum(document["refused"].values())
    repeats = f", the same {document['attempts']} times" if document["attempts"] > 1 else ""
    yield f"last asked {document['at']}{repeats}: {document['passed']} of {total} nodes pass"
    for reason, count in document["refused"].items():
        yield f"  {count} {reason}"
    if document["chosen"]:
        numa = f", NUMA nodes {', '.join(map(str, document['numaNodes']))}" if document["numaNodes"] else ""
        yield f"bound to {document['chosen']}{numa}; the pod is {document['phase']}"
    for name, text in document["annotations"].items():
        yield f"  {name}: {text}"
    if document["reservation"]:
        yield f"reserved: {document['reservation']}"
    for event in document["events"]:
        yield f"  {event}"
    yield from _nodes(document, every=every)


def _nodes(document: Mapping[str, Any], *, every: bool) -> Iterator[str]:
    nodes = document["nodes"]
    listed = nodes if every else nodes[:SHOWN_NODES]
    for each in listed:
        if each["refusal"]:
            yield f"{each['node']}: no, {each['refusal']}" + (f" ({each['why']})" if each["why"] else "")
        else:
            placed = "; ".join(f"{name} on NUMA node {', '.join(map(str, at))}" for name, at in each["placed"].items())
            answered = "" if each["answered"] is None else f", answered {each['answered']} of 10"
            terms = ", ".join(f"{name} {value}" for name, value in each["terms"].items())
            detail = "; ".join(filter(None, [terms, placed, each["why"]]))
            yield f"{each['node']}: yes, score {each['score']}{answered} ({detail})"
    for name in document["unknownNodes"]:
        yield f"{name}: yes, nothing is known of this node"
    if len(listed) < len(nodes):
        yield f"... {len(nodes) - len(listed)} more nodes; --all lists them"
    if document["onlySomeNodes"]:
        yield "the attempt is old: only some of its nodes are kept"


def node(document: Mapping[str, Any]) -> Iterator[str]:
    """A node: its report, what is on top, and whether it is dirty."""
    report, name, pods = document["report"], document["node"], document["pods"]
    if report is None:
        yield f"node {name}: no NodeResourceTopology; {pods} pods"
        yield from _reservations(document)
        return
    yield f"node {name}: topology manager {report['policy']}, scope {report['scope']}; {pods} pods"
    signed = report["fingerprint"] or "none"
    yield f"report {report['version']}, unchanged for {report['unchangedFor']}, fingerprint {signed}"
    for problem in report["problems"]:
        yield f"  problem: {problem}"
    for number, amounts in report["available"].items():
        free = document["judged"]["numaNodes"].get(number, {})
        most = report["allocatable"].get(number, {})
        rows = [
            f"{name} {available} of {most.get(name, '?')}, judged {free.get(name, '?')}"
            for name, available in amounts.items()
        ]
        yield f"NUMA node {number}: {'; '.join(rows)}"
    if document["judged"]["unusable"]:
        yield f"unusable: {document['judged']['unusable']}"
    dirty = document["dirty"]
    yield (
        f"dirty for {dirty['seconds']:g} s: {dirty['why']}"
        if dirty["isDirty"]
        else "clean: the report counts these pods"
    )
    for each in document["reserved"]:
        yield f"reserved {each['seconds']:g} s ago for {each['pod']} ({each['stage']}): {amounts_line(each['takes'])}"
    yield from _reservations(document)
    for each in document["ended"]:
        yield f"ended {each['secondsAgo']:g} s ago for {each['pod']}: {each['why']}"


def _reservations(document: Mapping[str, Any]) -> Iterator[str]:
    for each in document["reservations"]:
        cpus = f", CPUs {each['cpus']}" if each["cpus"] else ""
        coming = ", is being handed over" if each["handedTo"] else ""
        remaining = amounts_line(each["left"])
        yield f"reservation {each['name']} has {remaining} left{cpus}; {len(each['owners'])} owners{coming}"
        yield from (f"  problem: {problem}" for problem in each["problems"])
