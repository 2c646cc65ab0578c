"""Judges of a pod and a node, and their verdicts: the first refusal counts, the allocator's choice is
written."""

from __future__ import annotations

from typing import Protocol

import msgspec

from koordlite.numa.nrt.filter import add
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement import crane, koordinator, kubelet, reserved, volcano
from koordlite.scheduler.judgement.nodes import JudgeSettings, Promise, Row, Score, Verdict


class Allocator(Protocol):
    """The rules of one scheduler, for nodes on which its agent, or ours, carries out what was promised."""

    def concerns(self, shape: PodShape, row: Row, settings: JudgeSettings) -> bool:
        """Tell whether pod and node ask for these rules."""

    def verdict(self, shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
        """Judge whether the pod fits, and on which NUMA nodes."""

    def score(self, shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
        """Score of the node."""

    def promise(self, shape: PodShape, row: Row, settings: JudgeSettings, uid: str) -> Promise:
        """Allocation of the pod there."""


ALLOCATORS: tuple[Allocator, ...] = (koordinator, crane, volcano)
"""In the order in which they are asked."""
PROMISED = Promise()
"""Nothing to write, and nothing against it."""


def allocators(shape: PodShape, row: Row, settings: JudgeSettings) -> list[Allocator]:
    """The schedulers' rules that pod and node ask for."""
    if row.is_plain and not shape.names_scheduler:
        return []
    return [each for each in ALLOCATORS if each.concerns(shape, row, settings)]


def verdict(shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
    """Judge whether the pod may go to the node."""
    one = row.reservations.taken
    takes = f"takes reservation {one.name}" if one is not None else ""
    if why := reserved.refusal(shape, row):
        return Verdict(reserved.NAME, why, why=takes)
    if why := reserved.refusal_beside(shape, row):
        return Verdict(reserved.BESIDE, why)
    found = [each.verdict(shape, row, settings) for each in allocators(shape, row, settings)]
    found.append(kubelet.verdict(shape, row, settings))
    first = next((each for each in found if not each.passes), found[0])
    return msgspec.structs.replace(first, why=takes) if takes and first.passes else first


def score(shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
    """Score the node for the pod, by the rules of whoever allocates there; a reservation for it is above all."""
    total = reserved.points(shape, row)
    if total is not None:
        return Score(total, {"Reservation": total})
    first = next(iter(allocators(shape, row, settings)), kubelet)
    return first.score(shape, row, settings)


def refusal(shape: PodShape, row: Row, settings: JudgeSettings) -> str:
    """The refusal of `verdict` alone."""
    if why := reserved.refusal(shape, row) or reserved.refusal_beside(shape, row):
        return why
    for each in allocators(shape, row, settings):
        if why := each.verdict(shape, row, settings).refusal:
            return why
    return kubelet.refusal(shape, row, settings)


def points(shape: PodShape, row: Row, settings: JudgeSettings) -> int:
    """The total of `score` alone."""
    if row.reservations.taking or allocators(shape, row, settings):
        return score(shape, row, settings).total
    return kubelet.points(shape, row, settings)


def takes(shape: PodShape, row: Row, settings: JudgeSettings) -> dict[int, dict[str, int]]:
    """Resources that kubelet would give the pod, by NUMA node; nothing where one part would be on several of them."""
    found = kubelet.placed(shape, row, settings)
    if any(len(nodes) != 1 for _, nodes in found):
        return {}
    total: dict[int, dict[str, int]] = {}
    for part, (node,) in found:
        add(total.setdefault(node, {}), part.taken)
    return total


def promise(shape: PodShape, row: Row, settings: JudgeSettings, uid: str) -> Promise:
    """Annotations that the Binding of a pod to this node has to carry, or why nothing can be promised any more."""
    if why := reserved.refusal(shape, row):
        return Promise(refusal=why)
    found, admission = PROMISED, kubelet.verdict(shape, row, settings)
    nodes = admission.numa_nodes
    for each in allocators(shape, row, settings)[:1]:
        found = each.promise(shape, row, settings, uid)
        if found.refusal:
            return found
        nodes = each.verdict(shape, row, settings).numa_nodes
    return Promise({**found.annotations, **reserved.note(row)}, admission.refusal, nodes)
