"""One pod leaves each node whose resources are used unevenly, so that what is left can still be used.

A node with 90 % of its CPUs and 20 % of its memory requested has memory that no pod can use. The pod that evens it out
most leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping

from descheduler.arguments.common import MovingPods
from descheduler.fit import free_capacity
from descheduler.framework import Conversation, Finding, Handle, NodeView, Note, PodView, Verdict, View
from descheduler.rules import pod_filter
from koordlite.model.settings import bounded

NAME = "FragmentationAware"
POINT = "balance"
READS = ()


_USUAL = ("cpu", "memory")


def _unique(names: tuple[str, ...]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"resources names {', '.join(twice)} twice")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(MovingPods):
    """Arguments of `FragmentationAware`."""

    dry_run: bool = False
    """Report only, no pod leaves."""
    node_fit: bool = True
    """Only a pod that fits on another of the nodes leaves."""
    resources: tuple[str, ...] = dataclasses.field(default=_USUAL, metadata={"check": _unique})
    """Resources that are to be used evenly; empty: cpu and memory."""
    imbalance_threshold: float = bounded(0.15, ge=0)
    """A node whose imbalance is above this is judged: standard deviation of the requested parts, 0 to 0.5."""
    min_improvement_threshold: float = bounded(0.02, ge=0)
    """A pod leaves only if the imbalance shrinks by more than this."""

    def __post_init__(self) -> None:
        if not self.resources:
            object.__setattr__(self, "resources", _USUAL)


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for the pod of each uneven node that evens it out most."""
    nodes = tuple(filter(config.selects, handle.nodes))
    for node in nodes:
        stop = yield from _even_out(node, nodes, config, handle)
        if stop:
            return


def imbalance(requested: Mapping[str, int], allocatable: Mapping[str, int]) -> float:
    """The unevenness of a node's requests: population standard deviation of requested / allocatable.

    >>> imbalance({"cpu": 3, "memory": 1}, {"cpu": 4, "memory": 4})
    0.25

    Resources that the node does not have are left out. Source: Koordinator `FragmentationAware`.
    """
    import statistics  # It brings random numbers and fractions along, and few policies have this plugin.

    parts = [requested.get(name, 0) / amount for name, amount in allocatable.items() if amount > 0]
    return statistics.pstdev(parts) if parts else 0.0


def _even_out(
    node: NodeView, nodes: tuple[NodeView, ...], config: Config, handle: Handle
) -> Generator[Finding | Note, Verdict | None, bool]:
    """Name the best pod that may leave, and no other, whether it goes or not. Returns whether the limit of the cycle is
    reached."""
    schedulable = free_capacity.schedulable_amounts(node)
    allocatable = {name: schedulable[name].nano for name in config.resources if name in schedulable}
    requested = pod_filter.staying_requests(node, handle, config.resources)
    before = imbalance(requested, allocatable)
    if before <= config.imbalance_threshold:
        return False
    gains: list[tuple[float, PodView]] = []
    for pod in pod_filter.leaving(node.pods, config, handle):
        without = {name: amount - pod.taken_nano(name) for name, amount in requested.items()}
        gain = before - imbalance(without, allocatable)
        if gain > config.min_improvement_threshold:
            gains.append((gain, pod))
    for gain, pod in sorted(gains, key=lambda entry: -entry[0]):  # Of equal gains the first by name.
        if config.node_fit and handle.first_fit(pod, nodes) is None:
            continue
        parts = {name: 100 * requested[name] / amount for name, amount in allocatable.items() if amount}
        percentages = ", ".join(f"{name} {part:.1f}%" for name, part in parts.items())
        verdict = yield Finding(
            pod=pod.uid,
            reason="ResourcesFragmented",
            severity="exposed" if config.dry_run else "hard",
            promise=f"the imbalance of {node.name} is at most {config.imbalance_threshold:g}",
            fact=f"fragmentation reduction: stdBefore={before:.4f} stdAfter={before - gain:.4f} gain={gain:.4f}; "
            f"requested there: {percentages}",
            cure="dryRun of FragmentationAware is on: it stays" if config.dry_run else "it leaves for another node",
            evidence={"node": node.name, "imbalance": round(before, 4), "gain": round(gain, 4)},
            weight=gain,
        )
        return verdict is not None and verdict.stop == "total"
    return False
