"""Limits on the evictions of one plan: in all, from a node, of a namespace, of an owner, and what budgets still
allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from descheduler.framework import PodView, View

TOTAL = "LimitTotal"
"""The reason that holds for every pod to come."""
PER_NODE = "LimitPerNode"
PER_NAMESPACE = "LimitPerNamespace"
PER_OWNER = "LimitPerOwner"
BUDGET = "DisruptionBudget"
_OPTIONS = {
    TOTAL: "maxNoOfPodsToEvictTotal",
    PER_NODE: "maxNoOfPodsToEvictPerNode",
    PER_NAMESPACE: "maxNoOfPodsToEvictPerNamespace",
    PER_OWNER: "maxNoOfPodsToEvictPerOwner",
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum number of evictions of one plan; None means no limit, 0 means none at all."""

    total: int | None = None
    per_node: int | None = None
    per_namespace: int | None = None
    per_owner: int | str | None = None
    """A number, or a part of the owner's pods like `10%`."""
    total_first: bool = True
    """Name the total where several limits are used up: upstream asks it first, Koordinator last."""


def share(limit: int | str, replicas: int) -> int:
    """A number of pods, or ⌊replicas · percent⌋ and at least one, since a part that is no pod would forbid all.

    >>> share("30%", 10), share("30%", 2), share(4, 2)
    (3, 1, 4)
    """
    if isinstance(limit, int):
        return limit
    percent = int(limit.removesuffix("%"))
    return max(1, replicas * percent // 100) if percent else 0


class Budget:
    """The rest of the limits while a plan is made."""

    def __init__(self, limits: Limits, view: View, going: Iterable[tuple[str, str]] = ()) -> None:
        """`going`: node and namespace of pods that earlier cycles evict in the background; they count as well."""
        self._limits = limits
        self._view = view
        self._counts: Counter[tuple[str, str]] = Counter()
        self._taken: list[PodView] = []
        """Pods that are not yet counted: nobody has asked since."""
        for node, namespace in going:
            self._counts.update(((TOTAL, ""), (PER_NODE, node), (PER_NAMESPACE, namespace)))

    def refusal(self, pod: PodView) -> tuple[str, str]:
        """(reason, sentence) of the first limit that one more eviction would break; two empty texts when none would.

        Order: the total, node, namespace (upstream), or node, namespace, total (Koordinator), then ours.
        """
        self._catch_up()
        for reason, subject, limit in self._counters(pod):
            if self._counts.get((reason, subject), 0) >= limit:
                return reason, self._words(reason, subject, limit)
        return "", ""

    def refusal_of_all(self, pods: Iterable[PodView]) -> tuple[str, str]:
        """The same for all of these pods together."""
        self._catch_up()
        before = Counter[tuple[str, str]]()
        for pod in pods:
            for reason, subject, limit in self._counters(pod):
                if self._counts[reason, subject] + before[reason, subject] >= limit:
                    return reason, self._words(reason, subject, limit)
                before[reason, subject] += 1
        return "", ""

    def take(self, pod: PodView) -> None:
        """Count the eviction of `pod`."""
        self._taken.append(pod)

    def _catch_up(self) -> None:
        for pod in self._taken:
            for reason, subject, _limit in self._counters(pod):
                self._counts[reason, subject] += 1
        self._taken.clear()

    def _counters(self, pod: PodView) -> Iterator[tuple[str, str, int]]:
        """The limits that there are: reason, what is counted, and how many."""
        limits = self._limits
        if limits.total_first and limits.total is not None:
            yield TOTAL, "", limits.total
        if pod.node and limits.per_node is not None:
            yield PER_NODE, pod.node, limits.per_node
        if limits.per_namespace is not None:
            yield PER_NAMESPACE, pod.pod.namespace, limits.per_namespace
        if not limits.total_first and limits.total is not None:
            yield TOTAL, "", limits.total
        if limits.per_owner is not None and pod.owner:
            owners = pod.object.metadata.owner_references or ()
            controller = next((o for o in owners if o.controller), owners[0])
            yield PER_OWNER, pod.owner, share(limits.per_owner, self._view.replicas.get(controller.uid, 0))
        for budget in self._view.budgets_by_pod.get(pod.uid, ()):
            yield BUDGET, budget.key, budget.allowed

    def _words(self, reason: str, subject: str, limit: int) -> str:
        if reason == BUDGET:
            return f"PodDisruptionBudget {subject} allows {limit} disruptions, and none is left"
        per_owner = self._limits.per_owner
        most = f"{per_owner} ({limit})" if reason == PER_OWNER and limit != per_owner else limit
        of = f" of {subject}" if subject else ""
        return f"{_OPTIONS[reason]} is {most}, and so many{of} go before it"
