"""Koordinator's order of pods: who leaves first, with what a pod uses of the resources that a node has too little of.

Source: Koordinator `PodSorter` and `SortPodsByUsage`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from descheduler.framework import PodView
from descheduler.picture.amounts import Amounts
from descheduler.picture.pods import youngest_first
from koordlite.model import keys
from koordlite.model.pod.qos import KubeQoS, PriorityClass, QoSClass

_BANDS = {PriorityClass.FREE: 1, PriorityClass.BATCH: 2, PriorityClass.MID: 3, PriorityClass.PROD: 4}
_KUBE = {KubeQoS.BEST_EFFORT: 1, KubeQoS.BURSTABLE: 2, KubeQoS.GUARANTEED: 3}
_QOS = {QoSClass.BE: 1, QoSClass.LS: 2, QoSClass.LSR: 3, QoSClass.LSE: 4, QoSClass.SYSTEM: 4}
_LAST = 5
_NUMBER = re.compile(r"0|[1-9][0-9]*|-[0-9]+")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

Key = tuple[int, int, int, int, int, int, float, float, str]


def sort_key(score: Callable[[PodView], float | None]) -> Callable[[PodView], Key]:
    """Sort key of pods, first to go first. `score` says how well it would cure the node; None when nobody knows."""

    def key(pod: PodView) -> Key:
        value, found = pod.pod, score(pod)
        return (
            _BANDS.get(value.priority_class, _LAST),
            value.priority or 0,
            _KUBE[value.kube_qos],
            _QOS.get(value.qos_class, _LAST),
            _cost(value.annotations.get(DELETION_COST)),
            _cost(value.annotations.get(keys.EVICTION_COST)),
            float("inf") if found is None else -found,
            youngest_first(pod),
            pod.key,
        )

    return key


def relief(used: Amounts, excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """The score of a pod that uses `used` as the cure of a node that has `excess` too much.

    The weighted mean over the resources that it uses: a resource without weight is left out, one without excess counts
    as 0. The smallest pod that alone is enough comes first, then larger ones, then those that are not enough, by size.

    >>> [round(relief({"cpu": cpu}, {"cpu": 16}, {"cpu": 1}), 3) for cpu in (16, 17, 20, 8)]
    [2.0, 1.941, 1.8, 0.5]
    """
    total = weight = 0.0
    for name, amount in used.items():
        own = weights.get(name, 0)
        ratio = amount / excess[name] if excess.get(name, 0) > 0 else 0.0
        total += own * (1 + 1 / ratio if ratio >= 1 else ratio)
        weight += own
    return total / weight if weight else 0.0


def fullness(used: Amounts, capacity: Amounts, weights: Mapping[str, int]) -> int:
    """Weighted mean of the used parts, in thousandths: nodes with more are relieved first."""
    total = weight = 0
    for name, amount in used.items():
        if weights.get(name) and capacity.get(name):
            total += weights[name] * (min(amount, capacity[name]) * 1000 // capacity[name])
            weight += weights[name]
    return total // weight if weight else 0


def _cost(text: str | None) -> int:
    """An annotation that is no 32-bit number, with + or with zeros in front, counts as 0, as Kubernetes has it."""
    value = int(text) if text and _NUMBER.fullmatch(text) else 0
    return value if -(2**31) <= value < 2**31 else 0
