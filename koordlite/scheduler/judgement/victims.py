"""Pods that have to go so that a pod fits: the scheduler looks at the node as a whole, this at its NUMA nodes.

The scheduler evicts what it is answered, unchecked, and does not ask the filter before it does. So a node on which the
pod would be refused afterwards is dropped, and a victim is added only when it frees the NUMA node that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.numa.nrt.filter import NANO, Amounts, Zones, add
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.nodes import JudgeSettings, Row

Returned = Callable[[Iterable[ClusterPod]], Mapping[int, Amounts]]
"""Amounts that pods give back when they go, by NUMA node."""
NOTHING_OWED: Zones = {}


def choose(
    shape: PodShape,
    row: Row,
    preferred: Sequence[ClusterPod],
    *,
    priority: int,
    returned: Returned,
    settings: JudgeSettings,
    is_leaving: bool = False,
    exempt: Collection[str] = (),
) -> tuple[ClusterPod, ...] | str:
    """The victims with which a pod of `priority` would be admitted: those `preferred`, or more. Text: why the node is
    dropped.

    `is_leaving`: other pods leave the node anyhow, and the row is that of the node without them, so that fewer than
    those `preferred` may do. `exempt` are uids of pods that are no victims: they are on their way.
    """

    def admits(victims: Sequence[ClusterPod]) -> bool:
        return judge.verdict(shape, without(row, victims, returned(victims)), settings).passes

    def suffices(victims: Sequence[ClusterPod]) -> bool:
        return not lacking(shape, row, victims) and admits(victims)

    def spared(victims: Sequence[ClusterPod]) -> tuple[ClusterPod, ...]:
        """The victims without those of the scheduler that need not go any more, most important first."""
        for pod in sorted(preferred, key=lambda pod: -pod.priority):
            remaining = [each for each in victims if each is not pod]
            if remaining and suffices(remaining):
                victims = remaining
        return tuple(victims)

    def freeing(
        pods: Sequence[ClusterPod], others: Sequence[ClusterPod], enough: Callable[[Sequence[ClusterPod]], bool]
    ) -> Iterator[tuple[ClusterPod, ...]]:
        """Choose on each NUMA node the least important of `pods` that are enough beside `others`."""
        for zone in () if row.unusable else sorted(row.zones):
            there, more = [pod for pod in pods if zone in returned([pod])], list[ClusterPod]()
            for pod in sorted(there, key=lambda pod: (pod.priority, -sum(pod.shape.exclusive.values()), pod.key)):
                more.append(pod)
                if enough([*others, *more]):
                    needed = [each for each in more if not enough([*others, *(p for p in more if p is not each)])]
                    yield tuple(needed or more)
                    break

    if is_leaving and suffices(()):
        return "room is being made there by pods that leave"
    reserved = row.reservations.uids - {row.reservations.taking}
    lower = [
        pod
        for pod in row.pods
        if pod.priority < priority and not pod.deleting and pod.stands_for not in reserved and pod.uid not in exempt
    ]
    if admits(preferred):
        enough = spared(preferred) if is_leaving else tuple(preferred)
        best = min(freeing(lower, (), suffices), key=_harm, default=enough)
        # The scheduler's victims respect disruption budgets as far as they can: one pod less is no reason to differ.
        is_better = len(best) + 1 < len(enough) and _harm(best)[0] <= _harm(enough)[0]
        return best if is_better else enough
    if not row.zones or row.unusable:
        return row.unusable or "its NUMA nodes are unknown"
    uids = {pod.uid for pod in preferred}
    candidates = [pod for pod in lower if pod.uid not in uids]
    if candidates and not any(returned([pod]) for pod in (*candidates, *preferred)):
        return "its report does not say on which NUMA nodes its pods are, so no victim can be chosen"
    choices = [spared((*preferred, *more)) for more in freeing(candidates, preferred, admits)]
    choices += freeing(lower, (), suffices)
    return min(choices, key=_harm) if choices else "no eviction of pods of lower priority frees a NUMA node for it"


def _harm(victims: Sequence[ClusterPod]) -> tuple[int, int]:
    return max((pod.priority for pod in victims), default=0), len(victims)


def reserved_for_others(row: Row, uids: Collection[str]) -> str:
    """Reason why the scheduler's victims cannot go: one holds the place of a reservation that the pod does not take."""
    reservations = row.reservations.uids - {row.reservations.taking}
    placeholder = next((pod for pod in row.pods if pod.uid in uids and pod.stands_for in reservations), None)
    if placeholder is None or row.reservations.ignores:
        return ""
    return f"{placeholder.key} holds the place of a reservation, which only its owners displace"


def without(row: Row, victims: Iterable[ClusterPod], back: Mapping[int, Amounts]) -> Row:
    """The node after the victims have gone, and given back so much by NUMA node."""
    uids = {pod.uid for pod in victims}
    return _changed(row, tuple(pod for pod in row.pods if pod.uid not in uids), back, 1)


def beside(row: Row, pod: ClusterPod, takes: Mapping[int, Amounts]) -> Row:
    """The node after another pod has come, with what it takes by NUMA node."""
    return _changed(row, (*row.pods, pod), takes, -1)


def _changed(row: Row, pods: tuple[ClusterPod, ...], amounts: Mapping[int, Amounts], sign: int) -> Row:
    totals = row.report.totals if row.report else {}
    zones = {
        node: {
            name: min(
                nano - row.owed.get(node, {}).get(name, 0) + sign * amounts.get(node, {}).get(name, 0),
                totals[node].get(name, nano),
            )
            for name, nano in zone.items()
        }
        for node, zone in row.zones.items()
    }
    available, owed = settled(zones)
    return msgspec.structs.replace(row, zones=available, owed=owed, at_most={}, pods=pods, extra={})


def settled(zones: Zones) -> tuple[Zones, Zones]:
    """(What is available, by how much less than nothing)."""
    if all(nano >= 0 for zone in zones.values() for nano in zone.values()):
        return zones, NOTHING_OWED
    available = {node: {name: max(0, nano) for name, nano in zone.items()} for node, zone in zones.items()}
    owed = {node: {name: -nano for name, nano in zone.items() if nano < 0} for node, zone in zones.items()}
    return available, owed


def lacking(shape: PodShape, row: Row, victims: Sequence[ClusterPod] = ()) -> dict[str, int]:
    """Amounts that the node as a whole has too little of for the pod, in nano-units, and of `pods`, its slots."""
    available = free(row)
    if victims:
        more, uids = dict(available), {pod.uid for pod in victims}
        for pod in row.pods:
            if pod.uid in uids:
                add(more, needs(pod.shape))
        available = more
    return {
        name: amount - available.get(name, 0)
        for name, amount in needs(shape).items()
        if amount > available.get(name, 0)
    }


def needs(shape: PodShape) -> Amounts:
    """The pod's effective request, and one slot of its node."""
    return shape.once("needs", lambda: {**shape.total, "pods": NANO})


def free(row: Row) -> Amounts:
    """Rest of the node as a whole beside what it keeps back, and its slots."""

    def remaining() -> Amounts:
        used: dict[str, int] = {"pods": len(row.pods) * NANO}
        for pod in row.pods:
            add(used, pod.shape.total)
        most = {"pods": 110 * NANO, **row.allocatable, **row.limits}
        return {name: amount - used.get(name, 0) for name, amount in most.items()}

    return row.once("free", remaining)
