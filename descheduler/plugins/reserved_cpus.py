"""Pods must not run on CPUs that are reserved for processes outside Kubernetes.

A reservation that was made, or grew, after a pod got its CPUs leaves the pod where nobody may be. Pods of the shared
pool follow the pool by themselves; a pod with CPUs of its own has to move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from descheduler import durations
from descheduler.framework import (
    Conversation,
    Finding,
    Handle,
    NodeView,
    Note,
    PodView,
    View,
    judgeable,
    stale_placement,
    too_young,
)
from koordlite.formulas import numa
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.qos import QoSClass
from koordlite.model.settings import bounded

NAME = "ReservedCPUs"
POINT = "deschedule"
ORDER = "cycle"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `ReservedCPUs`."""

    max_report_age: str = durations.field("3m")
    """A node whose agent last looked longer ago than this is not judged, and the report says so."""
    min_pod_age: str = durations.field("5m")
    """Younger pods are found but spared: what was promised to them may not have reached the node yet."""
    min_sightings: int = bounded(1, ge=1)
    """In how many pictures in a row a pod must be seen there before it is evicted. A plan made from files is one."""


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each container on CPUs that somebody else keeps; a note for each node that cannot be judged."""
    oldest = durations.seconds(config.max_report_age)
    for node in handle.nodes:
        stale = stale_placement(node, oldest)
        if stale:
            yield stale
            continue
        if node.reserved.koordinator is None:
            yield _unknown(node)
        for pod in filter(judgeable, node.pods):
            yield from _judge_pod(pod, node, config)


def _judge_pod(pod: PodView, node: NodeView, config: Config) -> Iterator[Finding]:
    system = pod.pod.qos_class is QoSClass.SYSTEM
    owners: list[tuple[str, CPUSet, bool]] = [("kubelet", node.reserved.kubelet, node.reserved.strict)]
    if not system:
        owners = [
            ("koordinator", node.reserved.koordinator or EMPTY, True),
            *owners,
            ("system", node.reserved.system, True),
        ]
    for container in pod.containers:
        for owner, reserved, strict in owners:
            wrong = numa.reserved_use(container, owner=owner, reserved=reserved, strict=strict)
            if wrong:
                yield _finding(pod, node, container, wrong, config)


def _finding(
    pod: PodView, node: NodeView, container: ContainerPlacement, wrong: numa.Violation, config: Config
) -> Finding:
    cpus = str(wrong.evidence["cpus"])
    verb = "runs on" if pod.observed else "was given"
    return Finding(
        pod=pod.uid,
        reason=wrong.reason,
        severity=wrong.severity,
        container=wrong.container,
        promise=f"CPUs {wrong.evidence['reserved']} of {node.name} are {_FOR[str(wrong.evidence['owner'])]}",
        fact=f"{verb} CPUs {container.cpuset}, of which {cpus} {_is_are(cpus)} reserved",
        cure=_CURES[wrong.severity],
        evidence={**wrong.evidence, "cpuset": str(container.cpuset), "source": node.reserved.source},
        weight=len(CPUSet.parse(cpus)),
        spare="PodTooYoung" if too_young(pod, durations.seconds(config.min_pod_age)) else "",
        sightings=config.min_sightings,
    )


_FOR = {
    "koordinator": "reserved for processes outside Kubernetes",
    "kubelet": "reserved for kubelet and the system",
    "system": "set apart for SYSTEM pods",
}
_CURES = {
    "hard": "its CPUs are its own until it ends: it has to move, or start anew",
    "fixable": "the agent takes the CPUs out of its cpuset; nothing has to move",
    "exposed": "nothing to do yet",
}


def _unknown(node: NodeView) -> Note:
    if node.reserved.source == "unreadable":
        text = "the reservation cannot be read, so nobody can say which CPUs are kept: no pod is evicted for it"
    else:
        text = (
            "the reservation is a quantity and no agent has published which CPUs it became: "
            "nobody can say which CPUs are kept, no pod is evicted for it"
        )
    return Note(node=node.name, reason="ReservedCPUsUnknown", text=text)


def _is_are(cpus: str) -> str:
    return "is" if cpus.isdigit() else "are"
