"""Pods must be spread as evenly over zones, racks or nodes as their topology spread constraints ask.

The scheduler evens out what it places; nodes that come, fail or are drained, and pods that end, undo it.
Source: upstream RemovePodsViolatingTopologySpreadConstraint; docs/compatibility.md lists what differs.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from descheduler.arguments.common import ANY_NAMESPACE, LabelSelector, Namespaces
from descheduler.framework import Conversation, Finding, Handle, NodeGroup, NodeView, PodView, View
from descheduler.picture.node_index import NodeNames, fingerprint, index_of, node_affinity
from descheduler.picture.pods import TemplateKey
from descheduler.picture.templates import LabelIndex, SpecGroup, place
from descheduler.rules import pod_filter
from descheduler.rules.pod_filter import select_groups
from koordlite.model import label_selectors
from koordlite.model.wire import objects

NAME = "RemovePodsViolatingTopologySpreadConstraint"
POINT = "balance"
READS = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `RemovePodsViolatingTopologySpreadConstraint`."""

    namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods are judged; empty: all."""
    label_selector: LabelSelector | None = None
    """Only pods that match are judged and counted; null: all."""
    constraints: tuple[Literal["DoNotSchedule", "ScheduleAnyway"], ...] = ("DoNotSchedule",)
    """Constraints that count, by what they say to do when they cannot be kept; empty: DoNotSchedule alone."""
    topology_balance_node_fit: bool = True
    """Take only pods that fit on a node of a smaller domain; false: take others too when none of those is left, so that
    nodes are added."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that has to leave its domain for the constraints of its namespace to hold."""
    spread = Spread(handle.nodes)
    groups = select_groups(view, handle.nodes, config.namespaces, config.label_selector)
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
    groups = select_groups(view, handle.nodes, config.namespaces, config.label_selector)
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
            if not is_level(sizes, constraint.max_skew):
                yield from self._level(constraint, holder, domains, len(values))

    def _level(self, constraint: Constraint, holder: PodView, domains: Domains, count: int) -> Iterator[Finding]:
        """Findings for a constraint of `holder` that does not hold. It has `count` domains, those without a pod too."""
        by_size = sorted(domains, key=lambda value: (len(domains[value]), value))
        least = len(domains[by_size[0]]) if len(domains) == count else 0
        average = sum(map(len, domains.values())) / count
        # Nodes of domains with fewer pods than the average: some of them first, since these mostly are underutilized.
        below = self._spread.nodes_outside(constraint, {value for value in by_size if len(domains[value]) >= average})
        first, further = NodeGroup(itertools.islice(below, _FEW)), functools.cache(lambda: NodeGroup(below))
        must_fit = self._config.topology_balance_node_fit

        def fits(pod: PodView) -> bool:
            return self._handle.fits(pod, first) or self._handle.fits(pod, further())

        leaving = moves(
            [sorted(domains[value], key=self._last_first) for value in by_size],
            constraint.max_skew,
            lambda pod: self._goes(pod) or (self._handle.evictable(pod) and (not must_fit or fits(pod))),
            # Where pods may go that fit nowhere, those that fit still go first, as upstream does.
            preferred=lambda pod: must_fit or self._goes(pod) or fits(pod),
            empty=count - len(domains),
        )
        for pod in leaving:
            if self._goes(pod):
                continue
            self._going.add(pod.uid)
            domain = self._spread.domain(pod, constraint)
            here = len(domains[domain])
            yield Finding(
                pod=pod.uid,
                reason="SpreadSkewed",
                promise=f"a constraint of {holder.key} allows a skew of {constraint.max_skew} over {constraint.key}",
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

    def _goes(self, pod: PodView) -> bool:
        return pod.uid in self._going or self._handle.going(pod)

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


_FEW = 64


T = TypeVar("T")


def is_level(sizes: Sequence[int], max_skew: int) -> bool:
    """Tell whether no domain holds more than `max_skew` more than another.

    >>> is_level([2, 3], 1), is_level([1, 3], 1)
    (True, False)
    """
    return max(sizes, default=0) - min(sizes, default=0) <= max_skew


def moves(
    domains: list[list[T]],
    max_skew: int,
    movable: Callable[[T], bool],
    *,
    preferred: Callable[[T], bool] = lambda _item: True,
    empty: int = 0,
) -> Iterator[T]:
    """The items that have to leave their domain, given the domains from the smallest to the largest.

    Each domain gives its last items first. What it gives goes to the smallest domain that lacks some: the larger one
    stays at or above the average, the smaller one at or below, and no more goes than the skew asks for. An item that
    is not `movable` stays where it is, and counts there: a domain with nothing else gives no more. One that is movable
    but not `preferred` goes only when no preferred one is left. `empty` more domains have nothing, and are the smallest
    of all.

    >>> list(moves([[], ["x"], list("abcde")], 1, lambda item: True))
    ['d', 'e', 'c']
    """
    total = sum(map(len, domains))
    ideal = total / (len(domains) + empty) if domains else 0
    # Each domain that is given something gets an item at least, so that no more of the empty ones are needed.
    domains = [*([] for _ in range(min(empty, total))), *domains]
    low, high, grown = 0, len(domains) - 1, False
    while low < high:
        giver, taker = domains[high], domains[low]
        skew = len(giver) - len(taker)
        if len(giver) <= ideal:
            high -= 1
            continue
        count = min(math.ceil(len(giver) - ideal), math.ceil(ideal - len(taker)), math.ceil((skew - max_skew) / 2))
        if skew <= max_skew or count <= 0:
            if not grown:
                return  # The domains after this one are no smaller, so none of them asks for more either.
            low, grown = low + 1, False
            continue
        items = _take(giver, count, movable, preferred)
        yield from items
        taker += items
        grown = True
        if len(items) < count:
            high -= 1


def _take(giver: list[T], count: int, movable: Callable[[T], bool], preferred: Callable[[T], bool]) -> list[T]:
    """Take up to `count` movable items from the end, preferred ones first. Those passed over go to the front: they are
    not asked again before all others are gone."""
    items: list[T] = []
    stuck: list[T] = []
    less_preferred: list[T] = []
    while giver and len(items) < count:
        item = giver.pop()
        (stuck if not movable(item) else items if preferred(item) else less_preferred).append(item)
    missing = count - len(items)
    giver[:0] = [*reversed(stuck), *reversed(less_preferred[missing:])]
    return [*items, *less_preferred[:missing]][::-1]


class Constraint(msgspec.Struct, frozen=True):
    """A constraint with everything resolved that depends on the pod it was written on."""

    max_skew: int
    key: str
    selector: objects.LabelSelector | None
    nodes: NodeNames
    """Nodes that count: all, or those that the pod's affinity and tolerations leave, as its policies say."""


Domains = Mapping[str, list[PodView]]
"""Pods that a constraint counts, by the value of its key; values without such a pod are missing."""


class Spread:
    """The nodes, and the domains that labels make of them."""

    def __init__(self, nodes: NodeGroup) -> None:
        self._nodes = index_of(nodes)
        self._by_name = {node.name: node for node in nodes}
        self._layouts: dict[tuple[str, NodeNames], tuple[Mapping[str, str], list[str]]] = {}
        """Domain by node, and all domains by name, of a key over some nodes; a node without the key is in none."""
        self._by_value: dict[str, Mapping[str, list[NodeView]]] = {}

    def constraints(self, pods: Iterable[PodView], words: Collection[str]) -> Iterator[tuple[Constraint, PodView]]:
        """The constraints of `pods` whose whenUnsatisfiable is one of `words`, each once, with the first pod that has
        it. Source: upstream, which takes equal ones for one."""
        identities: set[bytes] = set()
        first_of: dict[TemplateKey, PodView] = {}
        for pod in pods:
            first_of.setdefault(pod.template, pod)
        specs = ((pod, pod.object.spec.topology_spread_constraints or ()) for pod in first_of.values())
        for pod, written in ((pod, written) for pod, several in specs for written in several):
            if written.when_unsatisfiable not in words:
                continue
            spec, nodes = pod.object.spec, self._nodes.names
            by_affinity = written.node_affinity_policy in (None, "Honor")
            by_taints = written.node_taints_policy == "Honor"
            labels = [pod.pod.labels.get(key) for key in written.match_label_keys or ()]
            # Equal for constraints that ask the same of the same nodes and pods.
            identity = fingerprint(
                written.max_skew,
                written.topology_key,
                (written.label_selector, written.match_label_keys, labels),
                (spec.node_selector, node_affinity(spec).required) if by_affinity else None,
                spec.tolerations if by_taints else None,
            )
            if identity in identities:
                continue
            identities.add(identity)
            if by_affinity:
                nodes = self._nodes.allowed_by_labels(spec)
            if by_taints:
                tolerated = self._nodes.allowed_by_taints(spec.tolerations)
                nodes = tolerated if nodes is self._nodes.names else nodes & tolerated
            selector = label_selectors.with_label_keys(written, pod.pod.labels)
            yield Constraint(written.max_skew, written.topology_key, selector, nodes), pod

    def domains(self, constraint: Constraint, pods: LabelIndex) -> Domains:
        """Pods that count, by domain. Pods that are going, and those of nodes that do not count, do not.

        Source: the scheduler's PodTopologySpread; upstream counts pods of nodes that do not count.
        """
        by_value: dict[str, list[PodView]] = defaultdict(list)
        by_node, _ = self._laid_out(constraint)
        for pod in pods.select(constraint.selector):
            value = by_node.get(pod.node)
            if value is not None and not pod.pod.deleting:
                by_value[value].append(pod)
        return by_value

    def domain(self, pod: PodView, constraint: Constraint) -> str:
        """The domain of a pod; empty when its node does not count: it has no such label, or is left out."""
        return self._laid_out(constraint)[0].get(pod.node, "")

    def values(self, constraint: Constraint) -> list[str]:
        """All domains of a constraint by name, those without a pod too."""
        return self._laid_out(constraint)[1]

    def _laid_out(self, constraint: Constraint) -> tuple[Mapping[str, str], list[str]]:
        key = (constraint.key, constraint.nodes)
        if key not in self._layouts:
            labels = ((name, self._by_name[name].node.labels) for name in constraint.nodes)
            by_node = {name: one[constraint.key] for name, one in labels if constraint.key in one}
            self._layouts[key] = by_node, sorted(set(by_node.values()))
        return self._layouts[key]

    def nodes_outside(self, constraint: Constraint, full: Collection[str]) -> Iterator[NodeView]:
        """The nodes that count and whose domain is none of `full`, by domain."""
        if constraint.key not in self._by_value:
            groups: dict[str, list[NodeView]] = defaultdict(list)
            for node in self._nodes.nodes:
                if constraint.key in node.node.labels:
                    groups[node.node.labels[constraint.key]].append(node)
            self._by_value[constraint.key] = dict(sorted(groups.items()))
        for value, nodes in self._by_value[constraint.key].items():
            if value not in full:
                yield from (node for node in nodes if node.name in constraint.nodes)
