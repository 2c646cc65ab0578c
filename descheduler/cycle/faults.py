"""Pods and nodes that make a plugin fail, and pictures without them: one bad subject costs that subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from descheduler.framework import NodeView, PodView, View
from descheduler.picture.templates import grouped
from koordlite.model import isolation

MOST_NODES = 20
"""A plugin that fails on more nodes fails by itself: it is not asked again."""


class Culprit(msgspec.Struct, frozen=True):
    """A pod that a plugin cannot judge, or a node that it cannot judge without any of its pods."""

    node: str
    pod: str
    """uid; empty where the node itself is at fault."""
    name: str
    """For people."""
    fault: str


def culprits(view: View, fault_of: Callable[[View], str]) -> list[Culprit]:
    """Pods and nodes of `view` without which the plugin judges the rest; none where that cannot be had.

    `fault_of` lets the plugin judge a picture and gives its fault, or nothing.
    """
    bad = isolation.culprits(tuple(view.nodes.values()), lambda nodes: fault_of(of_nodes(view, nodes)))
    return [each for node, fault in bad for each in _on(view, node, fault, fault_of)] if len(bad) <= MOST_NODES else []


def _on(view: View, node: NodeView, fault: str, fault_of: Callable[[View], str]) -> list[Culprit]:
    pods = isolation.culprits(node.all_pods, lambda some: fault_of(of_nodes(view, (_with_only(node, some),))))
    if not pods:
        return [Culprit(node.name, "", f"node {node.name}", fault)]
    return [Culprit(node.name, pod.uid, f"pod {pod.key}", why) for pod, why in pods]


def without(view: View, bad: Iterable[Culprit]) -> View:
    """The picture without these pods and nodes."""
    nodes = {each.node for each in bad if not each.pod}
    pods = {each.pod for each in bad if each.pod}
    touched = {each.node for each in bad}
    kept = (node for name, node in view.nodes.items() if name not in nodes)
    return of_nodes(
        view,
        [
            _with_only(node, [pod for pod in node.all_pods if pod.uid not in pods]) if node.name in touched else node
            for node in kept
        ],
    )


def of_nodes(view: View, nodes: Iterable[NodeView]) -> View:
    """The picture with these nodes and their pods alone."""
    chosen = {node.name: node for node in nodes}
    return msgspec.structs.replace(
        view,
        nodes=chosen,
        groups=tuple(grouped(pod for node in chosen.values() for pod in node.pods).values()),
        by_uid={pod.uid: pod for node in chosen.values() for pod in node.all_pods},
    )


def _with_only(node: NodeView, pods: Iterable[PodView]) -> NodeView:
    kept = {pod.uid for pod in pods}
    return msgspec.structs.replace(
        node,
        pods=tuple(pod for pod in node.pods if pod.uid in kept),
        ended=tuple(pod for pod in node.ended if pod.uid in kept),
    )
