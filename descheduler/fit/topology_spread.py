"""Topology spread constraints that forbid: would one more pod there be spread too unevenly? Kept up to date with the
plan.

Source: kube-scheduler's PodTopologySpread filter. The pod itself is leaving, so where it is it does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from descheduler.fit.matching_pods import DomainCounts, MatchingPods, Selected
from descheduler.fit.node_rules import EligibleNodes
from descheduler.framework import PodView, View
from koordlite.model import label_selectors
from koordlite.model.wire import objects


def constraints(pod: PodView) -> tuple[objects.TopologySpreadConstraint, ...]:
    """The pod's constraints that keep it off nodes."""
    found = pod.object.spec.topology_spread_constraints or ()
    return tuple(one for one in found if one.when_unsatisfiable != "ScheduleAnyway")


class Rule(msgspec.Struct, frozen=True):
    """One constraint as it stands for one pod."""

    key: str
    counts: Mapping[str, int]
    """Pods by domain, the pod itself among them."""
    most: int
    """A domain that has more already, without the pod itself, takes no further one."""
    own: str | None = None
    """The domain that the pod leaves; None when it is counted nowhere."""

    def refusal(self, value: str | None) -> str:
        """What nodes with this value of the label say; empty when nothing. None: nodes without the label."""
        if value is None:
            return f"node has no label {self.key} to spread over"
        closed = self.counts.get(value, 0) - (value == self.own) > self.most
        return f"pods would be spread too unevenly over {self.key}" if closed else ""


class Spread:
    """What constraints say in a picture, as the plan has left it."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._known_domains: dict[object, Mapping[str, str]] = {}
        self._counted: dict[object, tuple[Mapping[str, str], DomainCounts]] = {}

    def rules(self, pod: PodView, eligible_key: object, eligible: EligibleNodes) -> list[Rule]:
        """Every constraint of the pod, worked out."""
        wanted = constraints(pod)
        keys = tuple(one.topology_key for one in wanted)
        return [self._rule(pod, one, keys, (eligible_key, eligible)) for one in wanted]

    def _rule(
        self,
        pod: PodView,
        constraint: objects.TopologySpreadConstraint,
        keys: tuple[str, ...],
        eligible_with_key: tuple[object, EligibleNodes],
    ) -> Rule:
        selector = label_selectors.with_label_keys(constraint, pod.pod.labels)
        selected = self._matching_pods.selected(pod.pod.namespace, selector)
        own = label_selectors.labels_match(selector, pod.pod.labels)
        eligible, known = self._counts(pod.pod.namespace, constraint, selected, keys, eligible_with_key)
        counts = known.up_to_date()
        leaves = eligible.get(selected.where.get(pod.uid, ""))
        least = known.least if leaves is None else min(known.least, counts[leaves] - 1)
        if constraint.min_domains is not None and len(counts) < constraint.min_domains:
            least = 0
        return Rule(constraint.topology_key, counts, constraint.max_skew + least - own, leaves)

    def _counts(
        self,
        namespace: str,
        constraint: objects.TopologySpreadConstraint,
        selected: Selected,
        keys: tuple[str, ...],
        eligible_with_key: tuple[object, EligibleNodes],
    ) -> tuple[Mapping[str, str], DomainCounts]:
        """Domain by node, and pods by domain, once for all pods that have the constraint."""
        policies = (constraint.node_affinity_policy, constraint.node_taints_policy)
        about = (
            namespace,
            label_selectors.key(selected.selector),
            constraint.topology_key,
            keys,
            policies,
            eligible_with_key[0],
        )
        if about not in self._counted:
            eligible = self._domains(constraint, keys, eligible_with_key)
            self._counted[about] = (eligible, DomainCounts(selected, eligible))
        return self._counted[about]

    def _domains(
        self,
        constraint: objects.TopologySpreadConstraint,
        keys: tuple[str, ...],
        eligible_with_key: tuple[object, EligibleNodes],
    ) -> Mapping[str, str]:
        """Domain by node, of the nodes that count."""
        policies = (constraint.node_affinity_policy, constraint.node_taints_policy)
        about = (constraint.topology_key, keys, policies, eligible_with_key[0])
        if about not in self._known_domains:
            names = self._eligible(constraint, keys, eligible_with_key[1])
            self._known_domains[about] = {name: self._domain(name, constraint.topology_key) for name in names}
        return self._known_domains[about]

    def _eligible(
        self, constraint: objects.TopologySpreadConstraint, keys: Iterable[str], eligible: EligibleNodes
    ) -> Iterator[str]:
        """Nodes that make up the domains."""
        names: Iterable[str] = self._view.nodes if constraint.node_affinity_policy == "Ignore" else eligible.allowed
        for name in names:
            labels = self._view.nodes[name].node.labels
            counted = constraint.node_taints_policy != "Honor" or name in eligible.tolerated
            if counted and all(key in labels for key in keys):
                yield name

    def _domain(self, node: str, key: str) -> str:
        view = self._view.nodes.get(node)
        return view.node.labels.get(key, "") if view else ""
