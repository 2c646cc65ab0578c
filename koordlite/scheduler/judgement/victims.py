"""Pods that have to go so that a pod fits: the scheduler looks at the node as a whole, this at its NUMA nodes.

The scheduler evicts what it is answered, unchecked, and does not ask the filter before it does. So a node on which the
pod would be refused afterwards is dropped, and a victim is added only when it frees the NUMA node that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from koordlite.numa.nrt.filter import NANO, Amounts, Zones, add
from koordlite.reservation.pods import KnownPod, PodShape
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.nodes import JudgeSettings, Row

Returned = Callable[[Iterable[KnownPod]], Mapping[int, Amounts]]
"""What pods give back when they go, by NUMA node."""
NOTHING_OWED: Zones = {}


class Choice(msgspec.Struct, frozen=True):
    """The victims on one node, or why the node is dropped."""

    victims: tuple[KnownPod, ...] = ()
    dropped: str = ""


def choose(
    shape: PodShape,
    row: Row,
    given: Sequence[KnownPod],
    *,
    priority: int,
    returned: Returned,
    settings: JudgeSettings,
    is_leaving: bool = False,
    exempt: Collection[str] = (),
) -> Choice:
    """The victims with which a pod of `priority` would be admitted: those `given`, or more. None: the node is
    dropped.

    `is_leaving`: other pods leave the node anyhow, and the row is that of the node without them, so that fewer than
    those `given` may do. `exempt` are uids of pods that are no victims: they are on their way.
    """

    def admits(victims: Sequence[KnownPod]) -> bool:
        return judge.verdict(shape, without(row, victims, returned(victims)), settings).passes

    if is_leaving and fits_node(shape, row, ()) and admits(()):
        return Choice(dropped="room is being made there by pods that leave")
    kept = row.reservations.uids - {row.reservations.taking}
    lower = [
        pod
        for pod in row.pods
        if pod.priority < priority and not pod.deleting and pod.stands_for not in kept and pod.uid not in exempt
    ]

    def suffices(victims: Sequence[KnownPod]) -> bool:
        return fits_node(shape, row, victims) and admits(victims)

    if admits(given):
        enough = _spared(shape, row, list(given), given, admits) if is_leaving else tuple(given)
        fewer = [own for zone in _zones(row) if (own := _freeing(zone, lower, (), returned, suffices))]
        best = min(fewer, key=_harm, default=list(enough))
        # The scheduler's victims respect disruption budgets as far as they can: one pod less is no reason to differ.
        is_better = len(best) + 1 < len(enough) and _harm(best)[0] <= _harm(enough)[0]
        return Choice(tuple(best) if is_better else enough)
    if not row.zones or row.unusable:
        return Choice(dropped=row.unusable or "its NUMA nodes are unknown")
    uids = {pod.uid for pod in given}
    others = [pod for pod in lower if pod.uid not in uids]
    if others and not any(returned([pod]) for pod in (*others, *given)):
        return Choice(dropped="its report does not say on which NUMA nodes its pods are, so no victim can be chosen")
    found = [more for zone in _zones(row) if (more := _freeing(zone, others, given, returned, admits))]
    choices = [_spared(shape, row, [*given, *more], given, admits) for more in found]
    choices += [tuple(own) for zone in _zones(row) if (own := _freeing(zone, lower, (), returned, suffices))]
    if not choices:
        return Choice(dropped="no eviction of pods of lower priority frees a NUMA node for it")
    return Choice(min(choices, key=_harm))


def _zones(row: Row) -> list[int]:
    return [] if row.unusable else sorted(row.zones)


def reserved_for_others(row: Row, uids: Collection[str]) -> str:
    """Reason why the scheduler's victims cannot go: one holds the place of a reservation that the pod does not take."""
    kept = row.reservations.uids - {row.reservations.taking}
    found = next((pod for pod in row.pods if pod.uid in uids and pod.stands_for in kept), None)
    if found is None or row.reservations.ignores:
        return ""
    return f"{found.key} holds the place of a reservation, which only its owners displace"


def without(row: Row, victims: Iterable[KnownPod], back: Mapping[int, Amounts]) -> Row:
    """The node after the victims have gone, and given back so much by NUMA node."""
    gone = {pod.uid for pod in victims}
    return _changed(row, tuple(pod for pod in row.pods if pod.uid not in gone), back, 1)


def beside(row: Row, pod: KnownPod, takes: Mapping[int, Amounts]) -> Row:
    """The node after another pod has come, with what it takes by NUMA node."""
    return _changed(row, (*row.pods, pod), takes, -1)


def _changed(row: Row, pods: tuple[KnownPod, ...], amounts: Mapping[int, Amounts], sign: int) -> Row:
    totals = row.report.totals if row.report else {}
    zones = {
        node: {
            name: min(
                left - row.owed.get(node, {}).get(name, 0) + sign * amounts.get(node, {}).get(name, 0),
                totals[node].get(name, left),
            )
            for name, left in zone.items()
        }
        for node, zone in row.zones.items()
    }
    available, owed = settled(zones)
    return msgspec.structs.replace(row, zones=available, owed=owed, at_most={}, pods=pods, extra={})


def settled(zones: Zones) -> tuple[Zones, Zones]:
    """(What is available, by how much less than nothing)."""
    if all(left >= 0 for zone in zones.values() for left in zone.values()):
        return zones, NOTHING_OWED
    available = {node: {name: max(0, left) for name, left in zone.items()} for node, zone in zones.items()}
    owed = {node: {name: -left for name, left in zone.items() if left < 0} for node, zone in zones.items()}
    return available, owed


def _freeing(
    zone: int,
    lower: Sequence[KnownPod],
    given: Sequence[KnownPod],
    returned: Returned,
    admits: Callable[[Sequence[KnownPod]], bool],
) -> list[KnownPod]:
    """Pods on that NUMA node, least important first, until the pod would be admitted; none when it never is."""
    there = [pod for pod in lower if zone in returned([pod])]
    more: list[KnownPod] = []
    for pod in sorted(there, key=lambda pod: (pod.priority, -sum(pod.shape.exclusive.values()), pod.key)):
        more.append(pod)
        if admits([*given, *more]):
            return [each for each in more if not admits([*given, *(p for p in more if p is not each)])] or more
    return []


def _harm(victims: Sequence[KnownPod]) -> tuple[int, int]:
    return max((pod.priority for pod in victims), default=0), len(victims)


def _spared(
    shape: PodShape,
    row: Row,
    victims: list[KnownPod],
    given: Sequence[KnownPod],
    admits: Callable[[Sequence[KnownPod]], bool],
) -> tuple[KnownPod, ...]:
    """The victims without those of the scheduler that need not go any more, most important first."""
    for pod in sorted(given, key=lambda pod: -pod.priority):
        rest = [each for each in victims if each is not pod]
        if rest and fits_node(shape, row, rest) and admits(rest):
            victims = rest
    return tuple(victims)


def fits_node(shape: PodShape, row: Row, victims: Sequence[KnownPod]) -> bool:
    """Tell whether the node as a whole has enough for the pod after the victims have gone."""
    return not lacking(shape, row, victims)


def lacking(shape: PodShape, row: Row, victims: Sequence[KnownPod] = ()) -> dict[str, int]:
    """Amounts that the node as a whole has too little of for the pod, in nano-units, and of `pods`, its slots."""
    left = free(row)
    if victims:
        rest, gone = dict(left), {pod.uid for pod in victims}
        for pod in row.pods:
            if pod.uid in gone:
                add(rest, needs(pod.shape))
        left = rest
    return {name: amount - left.get(name, 0) for name, amount in needs(shape).items() if amount > left.get(name, 0)}


def needs(shape: PodShape) -> Amounts:
    """The pod's effective request, and one slot of its node."""
    found: Amounts = shape.once("needs", lambda: {**shape.total, "pods": NANO})
    return found


def free(row: Row) -> Amounts:
    """Rest of the node as a whole beside what it keeps back, and its slots."""

    def rest() -> Amounts:
        used: dict[str, int] = {"pods": len(row.pods) * NANO}
        for pod in row.pods:
            add(used, pod.shape.total)
        most = {"pods": 110 * NANO, **row.allocatable, **row.limits}
        return {name: amount - used.get(name, 0) for name, amount in most.items()}

    found: Amounts = row.once("free", rest)
    return found
