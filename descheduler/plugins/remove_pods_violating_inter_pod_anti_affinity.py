"""Pods must not be together with pods that their required anti-affinity keeps away.

The scheduler keeps them apart when it places them; a label that changes later brings them together. Only the pod that
says so goes: its counterpart has asked for nothing. Source: upstream RemovePodsViolatingInterPodAntiAffinity.
"""

from __future__ import annotations

import dataclasses
import itertools

from descheduler.arguments.common import ANY_NAMESPACE, LabelSelector, Namespaces
from descheduler.framework import Conversation, Finding, Handle, PodView, View
from descheduler.picture.pods import anti_affinity_terms, least_important_first
from descheduler.picture.templates import pods_of
from descheduler.rules.anti_affinity_violations import Conflict, Conflicts
from descheduler.rules.pod_filter import chosen_groups, indices

NAME = "RemovePodsViolatingInterPodAntiAffinity"
POINT = "deschedule"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `RemovePodsViolatingInterPodAntiAffinity`."""

    namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods are judged, and serve as counterparts; empty: all."""
    label_selector: LabelSelector | None = None
    """Only pods that match are judged, and looked for as counterparts; null: all."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that is with one it must not be with, the least important of each node first."""
    present = chosen_groups(view, handle.nodes, config.namespaces, config.label_selector)
    conflicts = Conflicts(handle.nodes, indices(view, present), view.namespaces)
    declaring = pods_of(group for group in present if anti_affinity_terms(group.first) and conflicts.possible(group))
    for _, pods in itertools.groupby(declaring, key=lambda pod: pod.node):
        for pod in sorted(pods, key=least_important_first):
            conflict = conflicts.of(pod)
            verdict = (yield _finding(pod, conflict)) if conflict else None
            if verdict and verdict.evicted:
                conflicts.remove(pod)


def numbers(pod: PodView, view: View, config: Config, handle: Handle) -> str:
    """Number of its terms, and the pod that breaks one."""
    terms = anti_affinity_terms(pod)
    if not terms:
        return "it requires no distance from other pods"
    present = chosen_groups(view, handle.nodes, config.namespaces, config.label_selector)
    conflict = Conflicts(handle.nodes, indices(view, present), view.namespaces).of(pod)
    count = f"{len(terms)} term{'s' if len(terms) > 1 else ''} of its anti-affinity"
    return f"{count}, against which {conflict.other.key} is" if conflict else f"{count}, no pod is against them"


def _finding(pod: PodView, conflict: Conflict) -> Finding:
    term, other = conflict.term, conflict.other
    where = f"on the same node {pod.node}" if other.node == pod.node else f"on {other.node}, which shares it"
    evidence: dict[str, int | float | str] = {
        "topologyKey": term.topology_key,
        "counterpart": other.key,
        "counterparts": conflict.count,
    }
    return Finding(
        pod=pod.uid,
        reason="AntiAffinityViolated",
        promise=f"pods that its anti-affinity selects do not share {term.topology_key} with it",
        fact=f"{other.key} does, {where}" + (f", and {conflict.count - 1} more" if conflict.count > 1 else ""),
        cure="moves to where none of them is",
        evidence=evidence,
        weight=conflict.count,
    )
