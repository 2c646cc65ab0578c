"""Candidates for eviction and their order: a total one, whatever order the pods come in.

Koordinator's two orders of best-effort pods contradict themselves when some pods have no priority; here such a pod has
priority 0, which is what Kubernetes gives it. Pods that are alike otherwise go by name.

What a pod says about itself does not protect it while it uses more than it requests. One whose excess is a good part of
what has to be released goes first, so that others do not go in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from koordlite.model import keys
from koordlite.model.pod import eviction
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod

Bar = Literal["finished", "leaving", "class", "policy", "priority", "label", "sample"]
"""Reasons why a pod is no candidate: it has ended; it is being deleted; it is not BE; its annotation, priority or
missing label forbids it; its use is unknown."""
Amounts = Mapping[str, int]
"""Amounts by pod uid."""
CAUSE_SHARE = 10
"""A pod whose excess over its request is at least this part (1/10) of what has to be released counts as its cause."""
CRITICAL_PRIORITY = 2_000_000_000
"""Least priority of a critical pod, which kubelet does not evict. Source: Kubernetes `IsCriticalPodBasedOnPriority`."""


class Candidates(msgspec.Struct, frozen=True):
    """Pods in the order in which they go, and why the others do not, by uid."""

    order: tuple[Pod, ...] = ()
    barred: Mapping[str, Bar] = msgspec.field(default_factory=dict)
    unprotected: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The label or annotation that would have protected the pod or sent it to the end, and does not count because the
    pod uses more than it requests."""
    cause_stays: bool = False
    """Set where a pod that is a cause is no candidate: then the others may go in vain."""


class Excess(msgspec.Struct, frozen=True):
    """Use of a resource (cpu in millicores, memory in bytes) beyond the request."""

    resource: str
    used: Amounts
    release: int = 0
    """Amount that has to be released, by use; 0 while nothing has to be, and where requests are to be released."""
    local: Amounts | None = None
    """Use of each pod where something has to be released, on one NUMA node; None: everything it uses."""

    @property
    def releasable(self) -> Amounts:
        """Amounts that go with each pod where they have to go."""
        return self.used if self.local is None else self.local

    def of(self, pod: Pod) -> int:
        """Use above the request, as far as it can be released; 0 for a pod without a sample and for a critical one,
        which keeps its protection."""
        if pod.uid not in self.used or (pod.priority or 0) >= CRITICAL_PRIORITY:
            return 0
        over = max(self.used[pod.uid] - eviction.largest_request(pod, self.resource), 0)
        return min(over, self.releasable.get(pod.uid, 0))

    def is_cause(self, pod: Pod) -> bool:
        """Tell whether the excess of this one pod is a good part of what has to be released."""
        return 0 < self.release <= self.of(pod) * CAUSE_SHARE


NOBODY = Candidates()
"""No pod was looked at."""


def by_priority(
    pods: Iterable[Pod],
    *,
    feature: str,
    priority_threshold: int,
    amounts: Amounts,
    excess: Excess,
) -> Candidates:
    """(eviction priority, priority, sub-priority) ascending, then the largest of `amounts` first.

    `excess` also says which pods have a fresh sample. Source: Koordinator `getPodEvictInfoAndSortByPriority`.
    """

    def bar(pod: Pod) -> Bar | None:
        if pod.priority_value > priority_threshold:
            return "priority"
        if not eviction.enabled(pod):
            return "label"
        return None if pod.uid in excess.used else "sample"

    def rank(pod: Pod) -> tuple[object, ...]:
        value = pod.priority_value
        first = (eviction.priority(pod), value, eviction.sub_priority(pod, value))
        return *first, -amounts.get(pod.uid, 0), pod.key, pod.uid

    def shield(pod: Pod) -> str:
        if eviction.priority(pod) > 0:
            return keys.EVICTION_PRIORITY
        value = pod.priority_value
        return keys.PRIORITY if eviction.sub_priority(pod, value) > value else ""

    return _candidates(pods, feature, excess, bar=bar, shield=shield, rank=rank)


def best_effort_by_cpu(pods: Iterable[Pod], *, feature: str, excess: Excess) -> Candidates:
    """BE pods: the lowest priority first, of one priority the one that uses most of its request.

    Source: Koordinator `getBEPodEvictInfoAndSort`.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        used, requested = excess.used.get(pod.uid, 0), eviction.batch_cpu(pod)
        return pod.priority or 0, -(used / requested if requested > 0 else 0.0), pod.key, pod.uid

    return _best_effort(pods, feature, excess, rank)


def best_effort_by_memory(
    pods: Iterable[Pod], *, feature: str, excess: Excess, overuse_first: bool = False
) -> Candidates:
    """BE pods: the lowest priority first, of one priority the largest user; of equals the last name first.

    `overuse_first`: before them those that use more than they request, in the same order but by what they exceed it.
    Source: Koordinator `getSortedBEPodInfos`, which knows no such order.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        over = excess.of(pod) if overuse_first else 0
        return not over, pod.priority or 0, -over, -excess.releasable.get(pod.uid, 0)

    last_name_first = sorted(pods, key=lambda pod: (pod.name, pod.namespace, pod.uid), reverse=True)
    return _best_effort(last_name_first, feature, excess, rank)


def _best_effort(
    pods: Iterable[Pod], feature: str, excess: Excess, rank: Callable[[Pod], tuple[object, ...]]
) -> Candidates:
    """Pods labelled BE, and whatever else lives in their cgroup and is a cause: there the kernel holds no label."""

    def another_class(pod: Pod) -> str:
        return keys.QOS_CLASS if pod.raw_qos is not QoSClass.BE else ""

    def bar(pod: Pod) -> Bar | None:
        in_their_group = pod.kube_qos is KubeQoS.BEST_EFFORT and excess.is_cause(pod)
        return None if pod.raw_qos is QoSClass.BE or in_their_group else "class"

    return _candidates(pods, feature, excess, bar=bar, shield=another_class, rank=rank)


def _candidates(
    pods: Iterable[Pod],
    feature: str,
    excess: Excess,
    *,
    bar: Callable[[Pod], Bar | None],
    shield: Callable[[Pod], str],
    rank: Callable[[Pod], tuple[object, ...]],
) -> Candidates:
    first: list[Pod] = []
    free: list[Pod] = []
    barred: dict[str, Bar] = {}
    unprotected: dict[str, str] = {}
    for pod in pods:
        forbids = not eviction.allows(pod.annotations, feature)
        why: Bar | None = "finished" if not pod.active else "leaving" if pod.deleting else None
        why = why or ("policy" if forbids and not excess.of(pod) else bar(pod))
        if why is not None:
            barred[pod.uid] = why
            continue
        own = keys.EVICTION_POLICY if forbids else shield(pod)
        is_cause = bool(own) and excess.is_cause(pod)
        if forbids or is_cause:
            unprotected[pod.uid] = own
        (first if is_cause else free).append(pod)
    first.sort(key=lambda pod: (-excess.of(pod), rank(pod)))
    cause_stays = any(excess.is_cause(pod) for pod in pods if barred.get(pod.uid) not in (None, "finished", "leaving"))
    return Candidates((*first, *sorted(free, key=rank)), barred, unprotected, cause_stays)
