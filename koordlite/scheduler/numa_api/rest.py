"""Answers of the REST interface about nodes, pods and violations, as plain values for JSON, and their envelope:
`{"code": 200, "msg": "success", "data": ...}`, empty fields left out. Amounts name their units.

Codes and messages are those of openFuyao's console service; the HTTP status is the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from koordlite.http.answers import HTML, JSON, Answer
from koordlite.http.guard import Guard
from koordlite.model import printable, times
from koordlite.model.nrt import ContainerPlacement
from koordlite.report.html import page
from koordlite.report.html.page import el
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.numa_api.charts import NOT_MEASURED, Use
from koordlite.scheduler.numa_api.view import Finding, NodeView, Zone


def summary(node: NodeView, now: float, use: Mapping[int, Use]) -> dict[str, Any]:
    """One node in a list: its NUMA nodes with amounts, without CPUs and containers."""
    return {**_head(node, now), "zones": [_amounts(zone, use) for zone in node.zones], "violations": len(node.findings)}


def whole(node: NodeView, now: float, use: Mapping[int, Use]) -> dict[str, Any]:
    """One node with CPUs by owner, distances, containers and violations."""
    return {
        **_head(node, now),
        "scope": node.report.scope,
        "cpuManagerPolicy": node.manager.policy,
        "zones": [_zone(node, zone, use) for zone in node.zones],
        "containers": [container(each) for each in node.containers],
        "containersNotListed": node.more,
        "violations": [violation(node.name, each) for each in node.findings],
        "problems": list(node.problems),
    }


def of_pod(pod: ClusterPod, node: NodeView | None, now: float) -> dict[str, Any]:
    """One pod: where its containers run against what was promised, and what is wrong."""
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "node": pod.node,
        "phase": pod.phase,
        "state": node.state(now) if node else "no report",
        "containers": [container(c) for c in node.containers if c.uid == pod.uid] if node else [],
        "violations": [
            violation(node.name, each)
            for each in node.findings
            if (each.namespace, each.pod) == (pod.namespace, pod.name)
        ]
        if node
        else [],
    }


def violation(node: str, finding: Finding) -> dict[str, Any]:
    """One promise that does not hold, with its facts."""
    wrong = finding.violation
    return {
        "node": node,
        "namespace": finding.namespace,
        "pod": finding.pod,
        "container": wrong.container,
        "code": wrong.reason,
        "severity": wrong.severity,
        "evidence": dict(wrong.evidence),
    }


def violations(nodes: Iterable[NodeView], now: float) -> list[dict[str, Any]]:
    """Violations of all nodes that can be believed."""
    return [violation(node.name, each) for node in nodes if node.state(now) == "ok" for each in node.findings]


def container(placed: ContainerPlacement) -> dict[str, Any]:
    """One container: promise and fact."""
    return {
        "namespace": placed.namespace,
        "pod": placed.pod,
        "container": placed.container,
        "source": placed.source,
        "exclusive": placed.exclusive,
        "singleNUMA": placed.single_numa,
        "promisedCPUs": str(placed.promised_cpus),
        "promisedNodes": list(placed.promised_nodes),
        "cpus": str(placed.cpuset),
        "memoryNodes": str(placed.mems),
        "cpusByNUMA": {str(number): str(cpus) for number, cpus in placed.cpus_by_numa.items()},
        "memoryBytesByNUMA": {str(number): used for number, used in placed.memory_by_numa.items()},
    }


def _head(node: NodeView, now: float) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": node.state(now),
        "observedAt": times.show(node.observed) if node.observed is not None else "",
        "topologyPolicy": node.report.policy,
        "pods": len(node.pods),
    }


def _amounts(zone: Zone, use: Mapping[int, Use]) -> dict[str, Any]:
    cores, used = use.get(zone.id, NOT_MEASURED)
    return {
        "id": zone.id,
        "cpuTotalMilli": zone.cpu_total,
        "cpuAvailableMilli": zone.cpu_left,
        "memoryTotalBytes": zone.memory_total,
        "memoryAvailableBytes": zone.memory_left,
        "cpuUsedMilli": None if cores is None else round(1000 * cores),
        "memoryUsedBytes": None if used is None else int(used),
    }


def _zone(node: NodeView, zone: Zone, use: Mapping[int, Use]) -> dict[str, Any]:
    by_owner: Mapping[str, list[int]] = {"reserved": [], "exclusive": [], "shared": []}
    for cpu in zone.cpus:
        by_owner[node.owner(cpu)].append(cpu)
    return {
        **_amounts(zone, use),
        "cpus": str(zone.cpus),
        "reservedCPUs": by_owner["reserved"],
        "exclusiveCPUs": [{"cpu": cpu, "pod": node.exclusive[cpu]} for cpu in by_owner["exclusive"]],
        "sharedCPUs": by_owner["shared"],
        "distances": {str(other): far for other, far in zone.distances.items()},
    }


PREFIX = "/rest/"
_MESSAGES = {200: "success", 400: "bad request", 404: "parameters not found", 500: "remote server busy"}


def answer(code: int, data: Any = None) -> Answer:
    """`data` in the envelope."""
    empty = data is None or data in ("", [], {})
    document = {"code": code, "msg": _MESSAGES.get(code, "refused"), **({} if empty else {"data": data})}
    return Answer(code, JSON, json.dumps(document).encode())


def refused(code: int, why: str) -> Answer:
    """An error with its reason."""
    return answer(code, {"reason": printable.one_line(why)})


class RestGuard(Guard):
    """A guard that refuses in the form of what was asked for."""

    def refusal(
        self,
        verb: str,
        path: str,
        authorization: str,
        *,
        hosts: Iterable[str] = (),
        client: str | None = None,
        address: str = "",
    ) -> Answer | None:
        """Same as `Guard`; in the envelope under `/rest/`, as a page under `/numa`."""
        answer = super().refusal(verb, path, authorization, hosts=hosts, client=client, address=address)
        if answer is None:
            return None
        why = answer.body.decode().strip()
        if path.startswith(PREFIX):
            return msgspec.structs.replace(refused(answer.status, why), headers=answer.headers)
        if path == "/numa" or path.startswith("/numa/"):
            do = (
                "Ask with a bearer token that may get this path: a browser sends one only through a proxy that adds "
                "it. koordlite numa-api on your machine, with your own kubeconfig, shows the same without."
            )
            document = page.strict(
                page.page("Not allowed", page.section(f"{answer.status}", el("p", why), el("p", do)))
            )
            return Answer(
                answer.status, HTML, document.text.encode(errors="replace"), {**answer.headers, **document.headers}
            )
        return answer
