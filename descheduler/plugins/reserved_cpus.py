"""Pods must not run on CPUs that are reserved for processes outside Kubernetes, nor ask for more than is left.

A reservation that was made, or grew, after a pod got its CPUs leaves the pod where none may be. Pods of the shared
pool follow the pool by themselves; a pod with CPUs of its own has to move. Where requests are too many, few pods go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import msgspec

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
)
from descheduler.picture import pods
from descheduler.picture.pods import least_important_first
from koordlite.formulas.allocatable import node_room
from koordlite.formulas.allocatable.node_room import NanoAmounts
from koordlite.formulas.topology import numa
from koordlite.model import duration
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.pod.qos import QoSClass
from koordlite.model.settings import bounded, duration_text

NAME = "ReservedCPUs"
POINT = "deschedule"
ORDER = "cycle"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `ReservedCPUs`."""

    max_report_age: str = duration_text("3m")
    """A node whose agent last reported longer ago than this is not judged, and the report notes it."""
    min_pod_age: str = duration_text("5m")
    """Younger pods are found but kept: what was assigned to them may not have reached the node yet."""
    min_sightings: int = bounded(3, ge=1)
    """Number of pictures in a row that must show a pod there before it is evicted. A plan that is made once, from files
    or by hand, has only one and does not ask for more."""
    by_quantity: bool = True
    """Find also nodes whose pods request more than is left beside the reservation, and the fewest pods to move."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each container on CPUs that someone else keeps; a note for each node that cannot be judged."""
    oldest = duration.seconds(config.max_report_age)
    for node in handle.nodes:
        if config.by_quantity:
            yield from _too_many(node, config, handle)
        stale = stale_placement(node, oldest, view)
        if stale:
            yield stale
            continue
        if node.reserved.koordinator is None:
            yield Note(
                node=node.name, reason="ReservedCPUsUnknown", text=_UNKNOWN[node.reserved.source == "unreadable"]
            )
        for pod in node.those(NAME, _has_cpus):
            yield from _judge_pod(pod, node, config)


def numbers(pod: PodView, view: View, _config: Config, _handle: Handle) -> str:
    """Its CPUs, and those that are kept on its node."""
    reserved = view.nodes[pod.node].reserved
    cpus_of = {"reserved": reserved.koordinator or EMPTY, "kubelet": reserved.kubelet, "SYSTEM pods": reserved.system}
    listed = ", ".join(
        f"{cpus} for {name}" if name != "reserved" else f"{cpus} reserved" for name, cpus in cpus_of.items() if cpus
    )
    own = ", ".join(f"{c.container} {c.cpuset or 'unknown'}" for c in pod.containers)
    return f"CPUs: {own or 'of the shared pool'}; kept on {pod.node}: {listed or 'none'}"


def _has_cpus(pod: PodView) -> bool:
    return bool(pod.containers) and judgeable(pod)


def _judge_pod(pod: PodView, node: NodeView, config: Config) -> Iterator[Finding]:
    system = pod.pod.qos_class is QoSClass.SYSTEM
    owners: list[tuple[str, CPUSet, bool]] = [("kubelet", node.reserved.kubelet, node.reserved.strict)]
    if pod.pod.crane.excludes_reserved:
        owners.append(("crane", node.reserved.crane, True))
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
            elif cut_down := _cut_down(container, owner, reserved):
                yield _finding(pod, node, container, cut_down, config)


def _cut_down(container: ContainerPlacement, owner: str, reserved: CPUSet) -> numa.Violation | None:
    """A container with CPUs of its own that was assigned reserved ones: the agent keeps it off them, so it runs on
    fewer CPUs than it asked for until it moves."""
    assigned, actual = container.promised_cpus, container.cpuset
    if not container.exclusive or not actual or actual != assigned - reserved:
        return None
    return numa.reserved_use(msgspec.structs.replace(container, cpuset=assigned), owner=owner, reserved=reserved)


def _finding(
    pod: PodView, node: NodeView, container: ContainerPlacement, wrong: numa.Violation, config: Config
) -> Finding:
    cpus = str(wrong.evidence["cpus"])
    actual = container.cpuset
    on_them = bool(actual & CPUSet.parse(cpus))
    assigned = actual if on_them else container.promised_cpus
    verb = "runs on" if pod.observed and on_them else "was given"
    consequence = "" if on_them else f"; the agent keeps it off them, so it runs on CPUs {actual}"
    return Finding(
        pod=pod.uid,
        reason=wrong.reason,
        severity=wrong.severity,
        container=wrong.container,
        promise=f"CPUs {wrong.evidence['reserved']} of {node.name} are {_FOR[str(wrong.evidence['owner'])]}",
        fact=f"{verb} CPUs {assigned}, of which {cpus} {'is' if cpus.isdigit() else 'are'} reserved{consequence}",
        cure=_CURES[wrong.severity],
        evidence={**wrong.evidence, "cpuset": str(actual), "source": node.reserved.source},
        weight=len(CPUSet.parse(cpus)),
        min_age_seconds=duration.seconds(config.min_pod_age),
        sightings=config.min_sightings,
        home="any",
    )


_FOR = {
    "koordinator": "reserved for processes outside Kubernetes",
    "kubelet": "reserved for kubelet and the system",
    "system": "set apart for SYSTEM pods",
    "crane": "kept by Crane from pods that ask for it, as this one does",
}
_CURES = {
    "hard": "its CPUs are its own until it ends: it has to move, or be restarted",
    "fixable": "the agent takes the CPUs out of its cpuset; nothing has to move",
    "exposed": "nothing to do yet",
}


def _too_many(node: NodeView, config: Config, handle: Handle) -> Iterator[Finding]:
    """The fewest pods whose leaving makes the requests fit again, the least important first."""
    over = excess(node)
    if not over:
        return
    movable = [p for p in node.pods if judgeable(p) and p.pod.qos_class is not QoSClass.SYSTEM and handle.evictable(p)]
    too_many = {name: _amount_text(name, nano) for name, nano in over.items()}
    for pod in fewest([(p, request(p, node)) for p in sorted(movable, key=least_important_first)], over):
        own = request(pod, node)
        requests = ", ".join(f"{name} {_amount_text(name, own.get(name, 0))}" for name in over)
        listed = ", ".join(f"{name} {text}" for name, text in too_many.items())
        yield Finding(
            pod=pod.uid,
            reason="OvercommittedBesideReserve",
            promise=f"what {node.name} keeps for processes outside Kubernetes is not handed out",
            fact=f"requests on it exceed what is left by {listed}; this pod asks for {requests}",
            cure="it has to move: it is one of the fewest whose leaving makes the rest fit",
            evidence={f"excess.{name}": text for name, text in too_many.items()},
            min_age_seconds=duration.seconds(config.min_pod_age),
            sightings=config.min_sightings,
            home="elsewhere",
        )


def _amount_text(resource: str, nano: int) -> str:
    """CPUs as Kubernetes writes them, bytes in MiB, the rest as numbers."""
    whole = pods.whole(resource, nano)
    if resource == "cpu":
        return f"{whole}m" if whole % 1000 else str(whole // 1000)
    return f"{-(-whole // 2**20)}Mi" if resource == "memory" else str(whole)


_UNKNOWN = {
    True: "the reservation cannot be read, so it is unknown which CPUs are kept: no pod is evicted for it",
    False: "the reservation is a quantity and no agent has published which CPUs it became: "
    "it is unknown which CPUs are kept, no pod is evicted for it",
}
"""Words for a reservation that is unreadable, and for one that is no list of CPUs."""


def excess(node: NodeView) -> dict[str, int]:
    """max(requests − (allocatable − reserved), 0) for each resource that the reservation takes from; empty when all
    fits, or nothing is reserved by amount."""

    def work_out() -> dict[str, int]:
        limits = node_room.limits(node.node.allocatable, node.reservation)
        requests = node_room.total(request(pod, node) for pod in node.pods) if limits else {}
        over = {name: requests.get(name, 0) - limit for name, limit in limits.items()}
        return {name: nano for name, nano in over.items() if nano > 0}

    return node.once(excess, work_out)


def request(pod: PodView, node: NodeView) -> NanoAmounts:
    """Amount that one pod counts."""
    return node_room.counted(
        {name: amount.nano for name, amount in pod.pod.requests.items()},
        amplification=node_room.amplification(node.node.annotations),
        has_cpus=bool(pod.pod.resource_status.cpuset),
    )


def fewest(candidates: Sequence[tuple[PodView, NanoAmounts]], over: NanoAmounts) -> list[PodView]:
    """Pods, taken in the order given, whose leaving brings every excess to 0; without those that prove needless.

    Where all together are too little, those that help at all.
    """
    remaining, leaving = dict(over), list[tuple[PodView, NanoAmounts]]()

    def take(amounts: NanoAmounts, sign: int) -> bool:
        """Take the amounts away, or give them back; tell whether too much is still requested."""
        for name in remaining:
            remaining[name] -= sign * amounts.get(name, 0)
        return any(nano > 0 for nano in remaining.values())

    for pod, amounts in candidates:
        if any(amounts.get(name, 0) > 0 for name, nano in remaining.items() if nano > 0):
            leaving.append((pod, amounts))
            if not take(amounts, 1):
                break
    for pod, amounts in tuple(leaving):
        if take(amounts, -1):
            take(amounts, 1)
        else:
            leaving.remove((pod, amounts))
    return [pod for pod, _ in leaving]
