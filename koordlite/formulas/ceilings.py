"""Limits on what a pod may ask for by annotation, within what the operator allows: whoever may create pods writes
annotations.

Every function gives what holds; callers compare it with what was asked, and say what was clipped.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.slo.qos import MemoryQOS, ResctrlQOS
from koordlite.model.slo.settings import CPUBurst
from koordlite.resctrl.shares import Range, Shares

GUARANTEED_OOM_SCORE, BEST_EFFORT_OOM_SCORE = -997, 1000
_KERNEL_BURST, _QUOTA_BURST = "cpuBurstOnly", "cfsQuotaBurstOnly"
_MEANS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    _KERNEL_BURST: frozenset((_KERNEL_BURST,)),
    _QUOTA_BURST: frozenset((_QUOTA_BURST,)),
    "auto": frozenset((_KERNEL_BURST, _QUOTA_BURST)),
}
"""Means by which each policy of CPU burst lets a pod exceed its limit."""
_NOTHING: frozenset[str] = frozenset()


def kubelet_oom_score(kube_qos: KubeQoS, container: ContainerInfo, *, capacity: int) -> int:
    """The oom_score_adj that kubelet gives a container; `capacity` is the node's memory in bytes, 0 when unknown.

    1000 - 1000 × request / capacity for burstable pods, within 3 to 999. Source: Kubernetes
    `GetContainerOOMScoreAdjust`.
    """
    if kube_qos is KubeQoS.GUARANTEED:
        return GUARANTEED_OOM_SCORE
    if kube_qos is KubeQoS.BEST_EFFORT:
        return BEST_EFFORT_OOM_SCORE
    request = container.requests["memory"].value if "memory" in container.requests else 0
    least, most = BEST_EFFORT_OOM_SCORE + GUARANTEED_OOM_SCORE, BEST_EFFORT_OOM_SCORE - 1
    if capacity <= 0:
        return most
    return min(max(BEST_EFFORT_OOM_SCORE - 1000 * max(request, 0) // capacity, least), most)


def cpu_burst(of_pod: CPUBurst, of_node: CPUBurst) -> CPUBurst:
    """The smaller of both in each setting; of the policies what both allow. A period of -1 has no end.

    A policy that is none of the protocol's allows nothing.
    """
    periods = [each.cfs_quota_burst_period_seconds for each in (of_pod, of_node)]
    means = _MEANS.get(of_pod.policy, _NOTHING) & _MEANS.get(of_node.policy, _NOTHING)
    return msgspec.structs.replace(
        of_pod,
        policy=next(policy for policy, allowed in _MEANS.items() if allowed == means),
        cpu_burst_percent=min(of_pod.cpu_burst_percent, of_node.cpu_burst_percent),
        cfs_quota_burst_percent=min(of_pod.cfs_quota_burst_percent, of_node.cfs_quota_burst_percent),
        cfs_quota_burst_period_seconds=min((each for each in periods if each >= 0), default=-1),
    )


def memory_qos(of_pod: MemoryQOS, of_class: MemoryQOS) -> MemoryQOS:
    """Grant what is asked for, but for the place before the OOM killer: no better than the class's."""
    return msgspec.structs.replace(of_pod, priority=min(of_pod.priority, of_class.priority))


def scaled(amounts: Mapping[str, int], caps: Mapping[str, int], groups: Mapping[str, str]) -> dict[str, int]:
    """Amounts by pod, each multiplied by the part of its group's cap that all of its group may have together.

    `groups` says which cap counts for which pod. A group within its cap keeps what it has.

    >>> scaled({"a": 60, "b": 40, "c": 5}, {"BE": 50, "LS": 10}, {"a": "BE", "b": "BE", "c": "LS"})
    {'a': 30, 'b': 20, 'c': 5}
    """
    sums: dict[str, int] = {}
    for uid, amount in amounts.items():
        sums[groups[uid]] = sums.get(groups[uid], 0) + amount
    limits = {group: min(total, max(caps[group], 0)) for group, total in sums.items()}
    return {uid: amount * limits[groups[uid]] // max(sums[groups[uid]], 1) for uid, amount in amounts.items()}


def cgroup_class(pod: Pod) -> QoSClass:
    """The class that bounds a pod: BE for all that live in the besteffort cgroup, whatever their label says."""
    return QoSClass.BE if pod.is_best_effort else pod.qos_class


def resctrl(shares: Shares, bound: ResctrlQOS) -> Shares:
    """The part of what is asked for that is in the class's range; what is not asked for is the class's.

    A range beside the class's becomes the class's.
    """
    whole: Range = bound.cat_range_start_percent, bound.cat_range_end_percent
    most = 100 if bound.mba_percent is None else bound.mba_percent
    if not bound.enable or (whole == (0, 100) and most == 100):
        return shares
    return Shares(
        cache=_within(shares.cache or whole, whole),
        cache_by_id={cache: _within(part, whole) for cache, part in shares.cache_by_id.items()},
        bandwidth=min(most if shares.bandwidth is None else shares.bandwidth, most),
        bandwidth_by_id={cache: min(part, most) for cache, part in shares.bandwidth_by_id.items()},
    )


def _within(part: Range, whole: Range) -> Range:
    start, end = max(part[0], whole[0]), min(part[1], whole[1])
    return (start, end) if start < end else whole
