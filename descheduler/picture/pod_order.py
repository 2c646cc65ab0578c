"""Which pod goes first among those that may go."""

from __future__ import annotations

from descheduler.picture.cluster import PodView
from koordlite.model.pod.qos import KubeQoS

PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
_QOS_RANK = {KubeQoS.BEST_EFFORT: 0, KubeQoS.BURSTABLE: 1, KubeQoS.GUARANTEED: 2}


def least_important_first(pod: PodView) -> tuple[float, int, bool]:
    """Sort key: no priority before any number, lower priority first, then BestEffort before Burstable before
    Guaranteed, then pods that do not ask to be left alone. Sorts of it must be stable: ties keep their order.

    Source: upstream `SortPodsBasedOnPriorityLowToHigh`.
    """
    value = pod.pod
    return (
        float("-inf") if value.priority is None else value.priority,
        _QOS_RANK[value.kube_qos],
        PREFER_NO_EVICTION in value.annotations,
    )
