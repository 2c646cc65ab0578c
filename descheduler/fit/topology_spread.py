"""Topology spread constraints that forbid: would one more pod there be spread too unevenly? Kept up to date with the
plan.

Source: kube-scheduler's PodTopologySpread filter. The pod itself is leaving, so where it is it does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from descheduler.fit.node_rules import EligibleNodes
from descheduler.fit.pod_affinity import DomainCounts, MatchingPods, Selected
from descheduler.framework import PodView, View
from koordlite.model import label_selectors
from koordlite.model.wire import objects


def constraints(pod: PodView) -> tuple[objects.TopologySpreadConstraint, ...]:
    """The pod's constraints that keep it off nodes."""
    every = pod.object.spec.topology_spread_constraints or ()
    return tuple(one for one in every if one.when_unsatisfiable != "ScheduleAnyway")


class Rule(msgspec.Struct, frozen=True):
    """A constraint as it stands for one pod."""

    key: str
    counts: Mapping[str, int]
    """Pods by domain, the pod itself among them."""
    most: int
    """A domain that has more already, without the pod itself, takes no further one."""
    own: str | None = None
    """The domain that the pod leaves; None when it is counted nowhere."""

    def refusal(self, value: str | None) -> str:
        """Refusal of nodes with this value of the label; empty when there is none. None: nodes without the label."""
        if value is None:
            return f"node has no label {self.key} to spread over"
        closed = self.counts.get(value, 0) - (value == self.own) > self.most
        return f"pods would be spread too unevenly over {self.key}" if closed else ""


class _Counts(msgspec.Struct, frozen=True):
    """The pods and domains that a constraint counts, once for all pods that have it."""

    selected: Selected
    eligible: Mapping[str, str]
    """Domain by node."""
    domains: DomainCounts
    """Pods by domain."""

    def rule(self, pod: PodView, constraint: objects.TopologySpreadConstraint) -> Rule:
        """The constraint as it stands for one pod."""
        counts = self.domains.up_to_date()
        own = label_selectors.labels_match(self.selected.selector, pod.pod.labels)
        leaves = self.eligible.get(self.selected.where.get(pod.pod.uid, ""))
        least = self.domains.least if leaves is None else min(self.domains.least, counts[leaves] - 1)
        if constraint.min_domains is not None and len(counts) < constraint.min_domains:
            least = 0
        return Rule(constraint.topology_key, counts, constraint.max_skew + least - own, leaves)


class Spread:
    """The constraints of a picture's pods, as the plan has left it."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._domains_by_key: dict[object, Mapping[str, str]] = {}
        self._by_constraint: dict[object, _Counts] = {}
        self._of_pods: dict[object, list[tuple[objects.TopologySpreadConstraint, _Counts]]] = {}
        """Constraints of pods that have the same ones."""

    def rules(self, pod: PodView, eligible: EligibleNodes) -> list[Rule]:
        """Every constraint of the pod, worked out."""
        written = pod.object.spec.topology_spread_constraints or ()
        by_labels = any(one.match_label_keys for one in written)
        about = (pod.template if by_labels else pod.template.spec, eligible)
        own_counts = self._of_pods.get(about)
        if own_counts is None:
            forbidding = constraints(pod)
            keys = tuple(one.topology_key for one in forbidding)
            own_counts = self._of_pods[about] = [(one, self._counts(pod, one, keys, eligible)) for one in forbidding]
        return [counts.rule(pod, one) for one, counts in own_counts]

    def _counts(
        self, pod: PodView, constraint: objects.TopologySpreadConstraint, keys: tuple[str, ...], eligible: EligibleNodes
    ) -> _Counts:
        """Once for all constraints that count the same, whatever skew they allow."""
        namespace = pod.pod.namespace
        selector = label_selectors.with_label_keys(constraint, pod.pod.labels)
        policies = (constraint.node_affinity_policy, constraint.node_taints_policy)
        about = (namespace, label_selectors.key(selector), constraint.topology_key, keys, policies, eligible)
        if about not in self._by_constraint:
            selected = self._matching_pods.selected(namespace, selector)
            domains = self._domains(constraint, keys, eligible)
            self._by_constraint[about] = _Counts(selected, domains, DomainCounts(selected, domains))
        return self._by_constraint[about]

    def _domains(
        self, constraint: objects.TopologySpreadConstraint, keys: tuple[str, ...], eligible: EligibleNodes
    ) -> Mapping[str, str]:
        """Domain by node, of the nodes that count."""
        policies = (constraint.node_affinity_policy, constraint.node_taints_policy)
        about = (constraint.topology_key, keys, policies, eligible)
        if about not in self._domains_by_key:
            names = self._eligible(constraint, keys, eligible)
            self._domains_by_key[about] = {name: self._domain(name, constraint.topology_key) for name in names}
        return self._domains_by_key[about]

    def _eligible(
        self, constraint: objects.TopologySpreadConstraint, keys: Iterable[str], eligible: EligibleNodes
    ) -> Iterator[str]:
        """Nodes that make up the domains."""
        names: Iterable[str] = self._view.nodes if constraint.node_affinity_policy == "Ignore" else eligible.allowed
        for name in names:
            labels = self._view.nodes[name].node.labels
            is_counted = constraint.node_taints_policy != "Honor" or name in eligible.tolerated
            if is_counted and all(key in labels for key in keys):
                yield name

    def _domain(self, node: str, key: str) -> str:
        view = self._view.nodes.get(node)
        return view.node.labels.get(key, "") if view else ""
