"""Judges of a pod and a node, and their verdicts: the first refusal counts, the allocator's choice is
written."""

from __future__ import annotations

from typing import Protocol

import msgspec

from koordlite.numa.nrt.filter import add
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement import beside_reservation, crane, koordinator, kubelet, owners, volcano
from koordlite.scheduler.judgement.nodes import Promise, Row, Score, Settings, Verdict


class Allocator(Protocol):
    """The rules of one scheduler, for nodes on which its agent, or ours, carries out what was promised."""

    def concerns(self, shape: PodShape, row: Row, settings: Settings) -> bool:
        """Tell whether pod and node ask for these rules."""

    def verdict(self, shape: PodShape, row: Row, settings: Settings) -> Verdict:
        """Judge whether the pod fits, and on which NUMA nodes."""

    def score(self, shape: PodShape, row: Row, settings: Settings) -> Score:
        """Score of the node."""

    def promise(self, shape: PodShape, row: Row, settings: Settings, uid: str) -> Promise:
        """Allocation of the pod there."""


ALLOCATORS: tuple[Allocator, ...] = (koordinator, crane, volcano)
"""In the order in which they are asked."""
PROMISED = Promise()
"""Nothing to write, and nothing against it."""


def verdict(shape: PodShape, row: Row, settings: Settings) -> Verdict:
    """Judge whether the pod may go to the node."""
    if owners.concerns(shape, row):
        reserved = owners.verdict(shape, row)
        if not reserved.passes:
            return reserved
        found = _verdict(shape, row, settings)
        return msgspec.structs.replace(found, why=reserved.why) if found.passes and reserved.why else found
    return _verdict(shape, row, settings)


def _verdict(shape: PodShape, row: Row, settings: Settings) -> Verdict:
    if why := _beside_reservation(shape, row):
        return Verdict(beside_reservation.NAME, why)
    asked = [each for each in ALLOCATORS if each.concerns(shape, row, settings)]
    if not asked:
        return kubelet.verdict(shape, row, settings)
    found = [each.verdict(shape, row, settings) for each in asked]
    found.append(kubelet.verdict(shape, row, settings))
    return next((each for each in found if not each.passes), found[0])


def _beside_reservation(shape: PodShape, row: Row) -> str:
    """Refusal beside what the node keeps back; empty where Reservations have a say, which count it as well."""
    if not row.limits or (row.reservations.placed and not row.reservations.ignores):
        return ""
    return beside_reservation.refusal(shape, row)


def score(shape: PodShape, row: Row, settings: Settings) -> Score:
    """Score the node for the pod, by the rules of whoever allocates there; a reservation for it is above all."""
    reserved = owners.points(shape, row)
    if reserved is not None:
        return Score(reserved, {"Reservation": reserved})
    asked = next((each for each in ALLOCATORS if each.concerns(shape, row, settings)), None)
    return asked.score(shape, row, settings) if asked else kubelet.score(shape, row, settings)


def refusal(shape: PodShape, row: Row, settings: Settings) -> str:
    """The refusal of `verdict` alone."""
    if owners.concerns(shape, row) and (why := owners.refusal(shape, row)):
        return why
    if why := _beside_reservation(shape, row):
        return why
    if row.is_plain and not shape.names_scheduler:
        return kubelet.refusal(shape, row, settings)
    if any(each.concerns(shape, row, settings) for each in ALLOCATORS):
        return verdict(shape, row, settings).refusal
    return kubelet.refusal(shape, row, settings)


def points(shape: PodShape, row: Row, settings: Settings) -> int:
    """The total of `score` alone."""
    if row.reservations.taking:
        return score(shape, row, settings).total
    if row.is_plain and not shape.names_scheduler:
        return kubelet.points(shape, row, settings)
    asked = next((each for each in ALLOCATORS if each.concerns(shape, row, settings)), None)
    return asked.score(shape, row, settings).total if asked else kubelet.points(shape, row, settings)


def takes(shape: PodShape, row: Row, settings: Settings) -> dict[int, dict[str, int]]:
    """Resources that kubelet would give the pod, by NUMA node; nothing where one part would be on several of them."""
    found = kubelet.placed(shape, row, settings)
    if any(len(nodes) != 1 for _, nodes in found):
        return {}
    total: dict[int, dict[str, int]] = {}
    for part, (node,) in found:
        add(total.setdefault(node, {}), part.taken)
    return total


def promises(shape: PodShape, row: Row, settings: Settings) -> bool:
    """Tell whether a pod on this node has an allocator that promises it something."""
    return any(each.concerns(shape, row, settings) for each in ALLOCATORS)


def promise(shape: PodShape, row: Row, settings: Settings, uid: str) -> Promise:
    """Annotations that the Binding of a pod to this node has to carry, or why nothing can be promised any more."""
    if owners.concerns(shape, row) and (why := owners.refusal(shape, row)):
        return Promise(refusal=why)
    note = owners.note(row)
    for each in ALLOCATORS:
        if each.concerns(shape, row, settings):
            found = each.promise(shape, row, settings, uid)
            annotations = {**found.annotations, **note}
            return found if found.refusal else Promise(annotations, kubelet.refusal(shape, row, settings))
    return Promise(note, kubelet.refusal(shape, row, settings))
