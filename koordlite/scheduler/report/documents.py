"""State of the extender, as plain values for JSON: about a pod, about a node, about itself.

What is said of a node is worked out from the row that was judged then, by the function that judged it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from koordlite import threads
from koordlite.model import duration, times
from koordlite.model.quantity import Quantity
from koordlite.numa.nrt.filter import NANO
from koordlite.reservation.placed import PlacedReservation
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import Attempt, Extender
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.nodes import JudgeSettings, Row
from koordlite.scheduler.node_state import NodeState

MOST_NODES = 1000
"""Nodes that an answer about a pod lists; of the others the reasons are counted."""


def of_pod(extender: Extender, key: str) -> dict[str, Any] | None:
    """Every node of the pod's latest attempt: why not, or its score by terms and its NUMA nodes. None: never asked."""
    cluster = extender.cluster
    with cluster.lock:
        attempt = extender.attempts.get(key)
        if attempt is None:
            return None
        pod, assumed = cluster.pod_of(key), cluster.assumed.of_pod(attempt.uid)
        shape, front = attempt.shape, {attempt.chosen, *attempt.best}
        # The chosen one and the best ones first, then as many as there is space for.
        rows = sorted(attempt.rows, key=lambda row: (row.name != attempt.chosen, row.name not in front, row.name))
        document = {
            "pod": key,
            "uid": attempt.uid,
            "at": times.show(attempt.at),
            "attempts": attempt.times,
            "asks": {
                "class": str(shape.pod.kube_qos),
                "aligned": {part.name: amounts_text(part.usage) for part in shape.request.parts if part.usage},
                "problems": [str(each) for each in shape.problems],
            },
            "passed": attempt.passed,
            "cpu": shape.total.get("cpu", 0) / NANO,
            "refused": dict(sorted(attempt.reasons.items(), key=lambda pair: -pair[1])),
            "chosen": attempt.chosen or (pod.node if pod else ""),
            "numaNodes": list(attempt.numa_nodes),
            "annotations": attempt.annotations,
            "reservation": f"{assumed.stage} on {assumed.node}" if assumed else "",
            "phase": f"{pod.phase}{pod.reason and f' ({pod.reason})'}" if pod else "gone",
            "events": list(attempt.events),
            "unknownNodes": list(attempt.unknown)[:MOST_NODES],
            "onlySomeNodes": attempt.thinned,
        }
    # A thousand judgements, for which no question of the scheduler waits.
    return {**document, "nodes": [_node(attempt, row, cluster) for row in rows[:MOST_NODES]]}


def of_node(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """The report as read, what is reserved on top, and whether, since when and why it is dirty. None: unknown."""
    with cluster.lock:
        row, state = cluster.row(name), cluster.nodes.get(name)
        if row is None or state is None:
            return None
        now = cluster.now()
        return {
            "node": name,
            "report": _report(state, now),
            "judged": {"numaNodes": _zones(row.zones), "unusable": row.unusable},
            "cpus": _cpus(row),
            "dirty": _dirty(state, now),
            "reserved": [
                {
                    "pod": each.pod.key,
                    "stage": each.stage,
                    "seconds": round(now - each.since, 1),
                    "takes": amounts_text(each.pod.shape.exclusive),
                }
                for each in cluster.assumed.of_node(name)
            ],
            "reservations": [_reservation(one) for one in row.reservations.placed],
            "notCounted": [pod.key for pod in state.covered.uncounted] if state.report else [],
            "goneButCounted": [pod.key for pod in state.covered.outlived] if state.report else [],
            "pods": len(state.pods),
            "ended": [
                {"pod": ended.assumed.pod.key, "why": ended.why, "secondsAgo": round(now - ended.at, 1)}
                for ended in cluster.assumed.ended
                if ended.assumed.node == name
            ][-10:],
        }


def of_all(extender: Extender, watches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`/debug/state`: sizes, watches, dirty nodes, reservations and how they ended."""
    cluster = extender.cluster
    with cluster.lock:
        states, now = list(cluster.states()), cluster.now()
        dirty = [state for state in states if state.dirty_since is not None]
        return {
            "nodes": len(cluster.rows),
            "reports": sum(state.report is not None for state in states),
            "pods": len(cluster.pods),
            "policies": collections.Counter(state.report.policy for state in states if state.report),
            "watches": list(watches),
            "dirty": [{"node": state.name, **_dirty(state, now)} for state in dirty[:100]],
            "dirtyNodes": len(dirty),
            "reservations": len(cluster.assumed),
            "reservationsEnded": dict(cluster.assumed.ends),
            "predictedWrong": cluster.predicted_wrong,
            "refusals": dict(extender.refusals),
            "podsRemembered": len(extender.attempts),
            "faults": cluster.faults.total,
            "load": extender.loads.document() if extender.loads is not None else None,
            "threads": msgspec.to_builtins(threads.states()),
            "settings": {
                "strategy": cluster.settings.strategy,
                "cache": cluster.settings.cache,
                "foreignPods": cluster.settings.foreign_pods,
                "checkRestricted": cluster.settings.check_restricted,
                "numaDistance": cluster.settings.numa_distance,
            },
        }


def _reservation(one: PlacedReservation) -> dict[str, Any]:
    """A Reservation of Koordinator on the node."""
    return {
        "name": one.name,
        "holds": {name: str(amount) for name, amount in one.holding.allocatable.items()},
        "left": {name: str(amount) for name, amount in one.holding.available.items()},
        "cpus": str(one.own.cpus),
        "owners": sorted(one.holding.owners),
        "handedTo": one.handed_to,
        "problems": [str(problem) for problem in one.problems],
    }


def _node(attempt: Attempt, row: Row, cluster: Cluster) -> dict[str, Any]:
    try:
        return _judgement(attempt, row, cluster.settings)
    except Exception as error:  # noqa: BLE001 - one node's fault costs that node
        why = cluster.faults.note(row.name, error)
        return {"node": row.name, "by": "", "refusal": why, "why": why, "cpus": []}


def _judgement(attempt: Attempt, row: Row, settings: JudgeSettings) -> dict[str, Any]:
    verdict = judge.verdict(attempt.shape, row, settings)
    document: dict[str, Any] = {
        "node": row.name,
        "by": verdict.protocol,
        "refusal": verdict.refusal,
        "why": verdict.why,
        "cpus": _cpus(row),
    }
    if verdict.refusal:
        document["why"] = verdict.why or "; ".join(judge.shortage(attempt.shape, row))
        return document
    load = attempt.load
    if load is not None and (busy := load.refusal(row.name)):
        numbers = ", ".join(f"{name} {value}" for name, value in load.terms(row.name).items() if name != "LoadAware")
        return {**document, "by": "loadaware", "refusal": busy, "why": numbers}
    score = judge.score(attempt.shape, row, settings)
    total = score.total if load is None else load.scored(row.name, score.total)
    placed = {name: list(nodes) for name, nodes in verdict.placed}
    return {
        **document,
        "score": total,
        "answered": attempt.answers.get(total),
        "terms": {**score.terms, **(load.terms(row.name) if load is not None else {})},
        "placed": placed,
    }


def _cpus(row: Row) -> list[dict[str, Any]]:
    """CPUs that are judged to be left, by NUMA node."""
    totals = row.report.totals if row.report is not None else {}
    return [
        {"numaNode": zone, "left": amounts["cpu"] / NANO, "of": totals[zone].get("cpu", 0) / NANO}
        for zone, amounts in sorted(row.zones.items())
        if "cpu" in amounts
    ]


def _report(state: NodeState, now: float) -> dict[str, Any] | None:
    report = state.report
    if report is None:
        return None
    return {
        "version": report.version,
        "policy": report.policy,
        "scope": report.scope,
        "fingerprint": report.fingerprint,
        "unchangedFor": duration.brief(now - state.report_since),
        "available": _zones(report.available),
        "allocatable": _zones(report.totals),
        "problems": [str(problem) for problem in report.problems],
    }


def _dirty(state: NodeState, now: float) -> dict[str, Any]:
    if state.dirty_since is None:
        return {"isDirty": False}
    return {"isDirty": True, "seconds": round(now - state.dirty_since, 1), "why": state.dirty_why}


def _zones(zones: Mapping[int, Mapping[str, int]]) -> dict[str, dict[str, str]]:
    return {str(node): amounts_text(amounts) for node, amounts in sorted(zones.items())}


def amounts_text(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts for people: bytes in binary units."""
    return {name: str(Quantity(nano, "BinarySI" if name != "cpu" else "DecimalSI")) for name, nano in amounts.items()}


def amounts_line(amounts: Mapping[str, str]) -> str:
    """The same in one line."""
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items()) or "nothing"
