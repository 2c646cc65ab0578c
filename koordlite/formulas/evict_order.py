"""Which pods may be evicted, and in which order: a total one, whatever order the pods come in.

Koordinator's two orders of best-effort pods contradict themselves when some pods have no priority; here such a pod has
priority 0, which is what Kubernetes gives it. Pods that are alike otherwise go by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from koordlite.model.pod import eviction
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod

Bar = Literal["finished", "leaving", "class", "policy", "priority", "label", "sample"]
"""Why a pod is no candidate: it has ended; it is being deleted; it is not BE; its annotation, its priority or its
missing label forbids it; its use is unknown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidates:
    """Pods in the order in which they go, and why the others do not, by uid."""

    order: tuple[Pod, ...] = ()
    barred: Mapping[str, Bar] = dataclasses.field(default_factory=dict)


NOBODY = Candidates()
"""No pod was looked at."""


def by_priority(
    pods: Iterable[Pod],
    *,
    feature: str,
    priority_threshold: int,
    amounts: Mapping[str, int],
    used: Mapping[str, object],
) -> Candidates:
    """(eviction priority, priority, sub-priority) ascending, then the largest of `amounts` first.

    `used` says which pods have a fresh sample. Source: Koordinator `getPodEvictInfoAndSortByPriority`.
    """

    def bar(pod: Pod) -> Bar | None:
        if pod.priority_value > priority_threshold:
            return "priority"
        if not eviction.enabled(pod):
            return "label"
        return None if pod.uid in used else "sample"

    def rank(pod: Pod) -> tuple[object, ...]:
        value = pod.priority_value
        first = (eviction.priority(pod), value, eviction.sub_priority(pod, value))
        return *first, -amounts.get(pod.uid, 0), pod.key, pod.uid

    return _candidates(pods, feature, bar, rank)


def best_effort_by_cpu(pods: Iterable[Pod], *, feature: str, used_milli: Mapping[str, int]) -> Candidates:
    """BE pods: the lowest priority first, of one priority the one that uses most of its request.

    Source: Koordinator `getBEPodEvictInfoAndSort`.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        return pod.priority or 0, -_share(used_milli.get(pod.uid, 0), eviction.batch_cpu(pod)), pod.key, pod.uid

    return _candidates(pods, feature, _not_best_effort, rank)


def best_effort_by_memory(pods: Iterable[Pod], *, feature: str, used_bytes: Mapping[str, int]) -> Candidates:
    """BE pods: the lowest priority first, of one priority the largest user; of equals the last name first.

    Source: Koordinator `getSortedBEPodInfos`.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        return pod.priority or 0, -used_bytes.get(pod.uid, 0)

    last_name_first = sorted(pods, key=lambda pod: (pod.name, pod.namespace, pod.uid), reverse=True)
    return _candidates(last_name_first, feature, _not_best_effort, rank)


def _candidates(
    pods: Iterable[Pod], feature: str, bar: Callable[[Pod], Bar | None], rank: Callable[[Pod], tuple[object, ...]]
) -> Candidates:
    free: list[Pod] = []
    barred: dict[str, Bar] = {}
    for pod in pods:
        why = _barred_from_all(pod, feature) or bar(pod)
        if why is None:
            free.append(pod)
        else:
            barred[pod.uid] = why
    return Candidates(tuple(sorted(free, key=rank)), barred)


def _barred_from_all(pod: Pod, feature: str) -> Bar | None:
    if not pod.active:
        return "finished"
    if pod.deleting:
        return "leaving"
    return None if eviction.allows(pod.annotations, feature) else "policy"


def _not_best_effort(pod: Pod) -> Bar | None:
    return None if pod.raw_qos is QoSClass.BE else "class"


def _share(used: int, requested: int) -> float:
    return used / requested if requested > 0 else 0.0
