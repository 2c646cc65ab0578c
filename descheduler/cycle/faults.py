"""Pods and nodes that make a plugin fail, and pictures without them: one bad subject costs that subject."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec

from descheduler.framework import NodeView, PodView, View
from descheduler.picture.templates import grouped
from koordlite.model import isolation

MOST_PODS = 5_000
"""Pods that are tried one by one in a cycle; of further bad nodes all pods are left out."""
_NAMED = 3


class Culprit(msgspec.Struct, frozen=True):
    """A pod that a plugin cannot judge, or a node of which it can judge none."""

    node: str
    pod: str
    """uid; empty where it is the node."""
    name: str
    """Name for people."""
    fault: str


def culprits(view: View, fault_of: Callable[[View], str]) -> list[Culprit]:
    """Pods and nodes of `view` without which the plugin judges the rest; none where that cannot be had.

    `fault_of` lets the plugin judge a picture and gives its fault, or nothing.
    """
    bad, tried = list[Culprit](), 0
    for node, fault in isolation.culprits(tuple(view.nodes.values()), lambda some: fault_of(of_nodes(view, some))):
        tried += len(node.all_pods)
        fault_on = functools.partial(_fault_on, view, node, fault_of)
        pods = isolation.culprits(node.all_pods, fault_on) if tried <= MOST_PODS else []
        bad += [Culprit(node.name, pod.uid, f"pod {pod.key}", why) for pod, why in pods]
        bad += [] if pods else [Culprit(node.name, "", f"node {node.name}", fault)]
    return bad


def _fault_on(view: View, node: NodeView, fault_of: Callable[[View], str], pods: Iterable[PodView]) -> str:
    return fault_of(of_nodes(view, (_with_only(node, pods),)))


def summaries(bad: Iterable[Culprit]) -> Iterator[tuple[str, str]]:
    """Yield the node, where a fault costs only one, and a text for each fault, however many it costs."""
    by_fault: dict[str, list[Culprit]] = defaultdict(list)
    for each in bad:
        by_fault[each.fault].append(each)
    for fault, several in by_fault.items():
        names, nodes = [each.name for each in several], {each.node for each in several}
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        are = "is" if len(names) == 1 else "are"
        yield next(iter(nodes)) if len(nodes) == 1 else "", f"{', '.join(names[:_NAMED])}{more} {are} left out: {fault}"


def without(view: View, bad: Iterable[Culprit]) -> View:
    """The picture without these pods and nodes."""
    bad = list(bad)
    nodes = {each.node for each in bad if not each.pod}
    pods = {each.pod for each in bad if each.pod}
    touched = {each.node for each in bad}
    remaining = (node for name, node in view.nodes.items() if name not in nodes)
    return of_nodes(
        view,
        [
            _with_only(node, [pod for pod in node.all_pods if pod.uid not in pods]) if node.name in touched else node
            for node in remaining
        ],
    )


def of_nodes(view: View, nodes: Iterable[NodeView]) -> View:
    """The picture with these nodes and their pods alone."""
    by_name = {node.name: node for node in nodes}
    return msgspec.structs.replace(
        view,
        nodes=by_name,
        groups=tuple(grouped(pod for node in by_name.values() for pod in node.pods).values()),
        by_uid={pod.uid: pod for node in by_name.values() for pod in node.all_pods},
    )


def _with_only(node: NodeView, pods: Iterable[PodView]) -> NodeView:
    uids = {pod.uid for pod in pods}
    return msgspec.structs.replace(
        node,
        pods=tuple(pod for pod in node.pods if pod.uid in uids),
        ended=tuple(pod for pod in node.ended if pod.uid in uids),
    )
