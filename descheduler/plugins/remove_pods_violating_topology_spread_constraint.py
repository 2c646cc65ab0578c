"""Pods must be spread as evenly over zones, racks or nodes as their topology spread constraints ask.

The scheduler evens out what it places; nodes that come, fail or are drained, and pods that end, undo it.
Source: upstream RemovePodsViolatingTopologySpreadConstraint; docs/compatibility.md lists what differs.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from descheduler.arguments.common import ANY_NAMESPACE, LabelSelector, Namespaces
from descheduler.framework import Conversation, Finding, Handle, NodeGroup, PodView, View
from descheduler.picture.node_index import node_affinity
from descheduler.picture.templates import LabelIndex, SpecGroup, place
from descheduler.rules import pod_filter, spread_constraints
from descheduler.rules.pod_filter import chosen_groups
from descheduler.rules.spread_constraints import Constraint, Domains, Spread

NAME = "RemovePodsViolatingTopologySpreadConstraint"
POINT = "balance"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `RemovePodsViolatingTopologySpreadConstraint`."""

    namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods are judged; empty: all."""
    label_selector: LabelSelector | None = None
    """Only pods that match are judged and counted; null: all."""
    constraints: tuple[Literal["DoNotSchedule", "ScheduleAnyway"], ...] = ("DoNotSchedule",)
    """Which constraints count, by what they say to do when they cannot be kept; empty: DoNotSchedule alone."""
    topology_balance_node_fit: bool = True
    """Take only pods that fit on a node of a smaller domain; false: take others too when none of those is left, so that
    nodes are added."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that has to leave its domain for the constraints of its namespace to hold."""
    spread = Spread(handle.nodes)
    groups = chosen_groups(view, handle.nodes, config.namespaces, config.label_selector)
    indices = pod_filter.indices(view, groups)
    constrained: dict[str, list[SpecGroup]] = defaultdict(list)
    for group in groups:
        if group.first.object.spec.topology_spread_constraints:
            constrained[group.namespace].append(group)
    for name in sorted(constrained):
        yield from _Namespace(constrained[name], indices[name], spread, config, handle).findings()


def numbers(pod: PodView, view: View, config: Config, handle: Handle) -> str:
    """Size of its domain, and of the smallest and largest, for each of its constraints."""
    spread, words = Spread(handle.nodes), []
    groups = chosen_groups(view, handle.nodes, config.namespaces, config.label_selector)
    index = pod_filter.indices(view, groups).get(pod.pod.namespace)
    if not pod.object.spec.topology_spread_constraints or index is None:
        return "it has no spread constraints"
    for constraint, _ in spread.constraints([pod], config.constraints or ("DoNotSchedule",)):
        own = spread.domain(pod, constraint)
        if not own:
            words.append(f"its node counts for no {constraint.key}")
            continue
        domains, values = spread.domains(constraint, index), spread.values(constraint)
        sizes = [len(domains.get(value, ())) for value in values] or [0]
        here = len(domains.get(own, ()))
        words.append(
            f"{here} in its {constraint.key}, {min(sizes)} to {max(sizes)} elsewhere, skew {constraint.max_skew}"
        )
    return "; ".join(words) or "none of its constraints is of a kind that counts"


class _Namespace:
    """Levels the constraints of one namespace, one after the other.

    A pod that goes for one constraint counts as gone for the others: upstream starts each from the same counts, and so
    takes more pods than are needed.
    """

    def __init__(
        self, constrained: list[SpecGroup], index: LabelIndex, spread: Spread, config: Config, handle: Handle
    ) -> None:
        self._constrained = constrained
        self._index = index
        self._spread = spread
        self._config = config
        self._handle = handle
        self._going: set[str] = set()

    def findings(self) -> Iterator[Finding]:
        """A finding for each pod that has to go, each pod once."""
        words = self._config.constraints or ("DoNotSchedule",)
        # The first pod that may go at all of each group with constraints, or of each of its templates where their
        # labels make a difference; what cannot go asks for nothing.
        alike = [pods for group in self._constrained for pods in _constrained_alike(group)]
        first = (next(filter(self._handle.evictable, pods), None) for pods in alike)
        for constraint, holder in self._spread.constraints(sorted((pod for pod in first if pod), key=place), words):
            domains = self._spread.domains(constraint, self._index)
            values = self._spread.values(constraint)
            sizes = [len(pods) for pods in domains.values()]
            if len(domains) < len(values):
                sizes.append(0)
            if not spread_constraints.is_level(sizes, constraint.max_skew):
                yield from self._level(_Skewed(constraint, holder, domains, values), min(sizes))

    def _level(self, skewed: _Skewed, least: int) -> Iterator[Finding]:
        below = _Below(self._spread, skewed)
        ordered = [sorted(pods, key=self._last_first) for pods in skewed.ordered]
        skew = skewed.constraint.max_skew
        must_fit = self._config.topology_balance_node_fit
        moves = spread_constraints.moves(
            ordered,
            skew,
            lambda pod: self._goes(pod) or (self._handle.evictable(pod) and (not must_fit or self._fits(pod, below))),
            # Where pods may go that fit nowhere, those that fit still go first, as upstream does.
            preferred=lambda pod: must_fit or self._goes(pod) or self._fits(pod, below),
            empty=skewed.empty,
        )
        for pod in moves:
            if not self._goes(pod):
                self._going.add(pod.uid)
                yield _finding(pod, skewed, self._spread.domain(pod, skewed.constraint), least)

    def _goes(self, pod: PodView) -> bool:
        return pod.uid in self._going or self._handle.going(pod)

    def _fits(self, pod: PodView, below: _Below) -> bool:
        return any(self._handle.fits(pod, some) for some in below.parts())

    def _last_first(self, pod: PodView) -> tuple[bool, bool, float]:
        """Sort key: the pod that goes first comes last. Pods that go anyway, then those that may go to any node, then
        the least important; equals by node and name. Upstream means the same but takes the most important first."""
        spec = pod.object.spec
        tied = bool(spec.node_selector)
        if spec.affinity and not tied:
            affinity = node_affinity(pod.object.spec)
            tied = bool(affinity.required or affinity.preferred)
        priority = float("-inf") if pod.pod.priority is None else pod.pod.priority
        return self._goes(pod), not tied, -priority


def _constrained_alike(group: SpecGroup) -> Iterator[Sequence[PodView]]:
    """Pods whose constraints say the same."""
    written = group.first.object.spec.topology_spread_constraints or ()
    if any(one.match_label_keys for one in written):
        yield from (template.pods for template in group.templates)
    else:
        yield group.pods


class _Skewed:
    """A constraint that does not hold."""

    def __init__(self, constraint: Constraint, holder: PodView, domains: Domains, values: list[str]) -> None:
        self.constraint = constraint
        self.holder = holder
        self.domains = domains
        self.empty = len(values) - len(domains)
        """How many domains have none of the pods."""
        held = sorted(domains, key=lambda value: (len(domains[value]), value))
        self.ordered = [domains[value] for value in held]
        """Pods of each other domain, the smallest first."""
        average = sum(map(len, self.ordered)) / len(values)
        self.full = {value for value in held if len(domains[value]) >= average}
        """Domains with as many pods as the average, or more."""


class _Below:
    """Nodes of domains with fewer pods than the average: some of them first, since these mostly are underutilized
    already."""

    def __init__(self, spread: Spread, skewed: _Skewed) -> None:
        self._nodes = spread.nodes_outside(skewed.constraint, skewed.full)
        self._parts: list[NodeGroup] = []

    def parts(self) -> Iterator[NodeGroup]:
        """The nodes in parts; the second is worked out when the first was not enough."""
        for number, size in enumerate((_FEW, None)):
            if number == len(self._parts):
                self._parts.append(NodeGroup(itertools.islice(self._nodes, size)))
            yield self._parts[number]


_FEW = 64


def _finding(pod: PodView, skewed: _Skewed, domain: str, least: int) -> Finding:
    constraint, here = skewed.constraint, len(skewed.domains[domain])
    return Finding(
        pod=pod.uid,
        reason="SpreadSkewed",
        promise=f"a constraint of {skewed.holder.key} allows a skew of {constraint.max_skew} over {constraint.key}",
        fact=f"{constraint.key}={domain} has {here} of the pods that it counts, another domain has {least}",
        cure="restarts where there are fewer",
        evidence={
            "topologyKey": constraint.key,
            "domain": domain,
            "onDomain": here,
            "onSmallest": least,
            "maxSkew": constraint.max_skew,
        },
        weight=here - least,
    )
