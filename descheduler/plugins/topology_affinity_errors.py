"""Pods that kubelet refused for their topology pile up: the scheduler sends them to a node that cannot align them.

The scheduler counts a node's CPUs, kubelet counts those of one NUMA node. Each refused pod stays as it is, Failed, and
its owner makes the next one. The report says on which node the two disagree and what is free there; the pods are
deleted when that is asked for.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence

from descheduler.fit.free_capacity import FreeCapacity
from descheduler.framework import Conversation, Finding, Handle, NodeView, Note, PodView, View
from descheduler.picture import pods
from koordlite.model import duration, times
from koordlite.model.settings import bounded, duration_text

NAME = "TopologyAffinityErrors"
POINT = "deschedule"

REASONS = ("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `TopologyAffinityErrors`."""

    reasons: tuple[str, ...] = REASONS
    """Only pods that failed for one of these reasons count."""
    min_pods: int = bounded(3, ge=1)
    """Pods of one owner that make a pile when they failed on one node within the window."""
    window: str = duration_text("1h")
    """Pods that were made longer ago do not count towards a pile."""
    delete: bool = False
    """Delete the pods of a pile, also the older ones; false only reports."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A note for each pile, and a finding for each pod of it."""
    now = times.parse(view.time)
    for node in handle.nodes:
        for owner, pile in _piles(node, config, now):
            text = (
                f"scheduler and kubelet disagree on this node: {len(pile)} pods of {owner or 'no owner'} failed with "
                f"{', '.join(sorted({_reason(pod, config.reasons) for pod in pile}))}; {_free(node)}"
            )
            yield Note(node=node.name, reason="TopologyErrorPile", text=text)
            for pod in pile:
                refused = f"kubelet of {node.name} refused it: {pod.object.status.reason}"
                yield Finding(
                    pod=pod.uid,
                    reason="RefusedByKubelet",
                    severity="hard" if config.delete else "exposed",
                    promise="the node that the scheduler chose can align the pod",
                    fact=f"{refused}; one of {len(pile)} of its owner there",
                    cure=_CURES[config.delete],
                    evidence={"reason": pod.object.status.reason or "", "pile": len(pile)},
                )


def numbers(pod: PodView, _view: View, config: Config, _handle: Handle) -> str:
    """Phase and reason."""
    if pod.pod.phase != "Failed":
        return f"its phase is {pod.pod.phase}: kubelet did not refuse it"
    return f"it failed with {pod.object.status.reason or 'no reason'}; counted are {', '.join(config.reasons)}"


def _piles(node: NodeView, config: Config, now: float) -> Iterator[tuple[str, list[PodView]]]:
    """Owners with enough refused pods, and all these pods; pods without an owner are a pile together."""
    failed: dict[str, list[PodView]] = defaultdict(list)
    for pod in node.ended:
        if pod.pod.phase == "Failed" and _reason(pod, config.reasons):
            failed[pod.owner].append(pod)
    window = duration.seconds(config.window)
    for owner, pile in sorted(failed.items()):
        if sum(pods.age_seconds(pod, now) <= window for pod in pile) >= config.min_pods:
            yield owner, pile


def _reason(pod: PodView, reasons: Sequence[str]) -> str:
    """Kubelet's reason for the refusal. Kubelet writes `UnexpectedAdmissionError` and the like with and without
    spaces."""
    reported = (pod.object.status.reason or "").replace(" ", "")
    return next((reason for reason in reasons if reason == reported), "")


def _free(node: NodeView) -> str:
    """Free CPUs of each NUMA node, for pods with CPUs of their own."""
    zones = FreeCapacity.of(node).zones
    policy = f"kubelet's topology policy is {node.topology_policy or 'unknown'}"
    if not zones:
        return f"{policy}, and the node's NUMA nodes are not reported"
    free = ", ".join(f"{amounts['cpu']} on NUMA {number}" for number, amounts in zones.items() if "cpu" in amounts)
    return f"{policy}; free CPUs: {free or 'not reported'}"


_CURES = {
    True: "is deleted: nothing of it runs; a scheduler that reads the node's NUMA zones would not send the next one",
    False: "use a scheduler that reads the node's NUMA zones; `delete: true` clears the pods away",
}
