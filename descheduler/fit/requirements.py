"""What a pod asks of nodes, worked out once: for pods of one template together, and for the pod alone what differs."""

from __future__ import annotations

import functools

import msgspec

from descheduler.fit import free_capacity, pod_affinity, pod_anti_affinity, topology_spread
from descheduler.fit import numa as fit_numa
from descheduler.fit.free_capacity import Port
from descheduler.fit.matching_pods import MatchingPods
from descheduler.fit.node_order import Closing
from descheduler.fit.node_rules import EligibleNodes, NodeRules
from descheduler.fit.pod_affinity import PodAffinity
from descheduler.fit.pod_anti_affinity import PodAntiAffinity
from descheduler.fit.topology_spread import Spread
from descheduler.framework import PodView, View
from koordlite.model import label_selectors
from koordlite.model.wire import objects
from koordlite.numa.nrt import filter as nrt


class Question(msgspec.Struct, frozen=True):
    """All that a pod asks of nodes."""

    pod: PodView
    eligible: EligibleNodes
    needs: tuple[tuple[str, int], ...]
    """Nano-units by resource."""
    blocked: pod_anti_affinity.Blocked
    wanted: pod_affinity.Wanted
    rules: list[topology_spread.Rule]
    ports: tuple[Port, ...]
    numa: nrt.Request | None
    key: object
    """Equal for pods that get the same answers from every node as far as resources are concerned."""
    plain: bool
    """It asks for nothing but resources on nodes of its shape. If not, no other pod gets the same answers."""

    @property
    def kind(self) -> object | None:
        """Equal for pods that get the same answer from every node they are not on; None for a pod like no other."""
        return self.key if self.plain and not self.pod.promised else None

    @property
    def closing(self) -> Closing | None:
        """What is asked first of whole domains of nodes; None when it is resources."""
        if self.blocked:
            key, values = self.blocked[0]
            return Closing(key, lambda value: pod_anti_affinity.REFUSAL if value in values else "")
        if self.wanted:
            key, wanted = self.wanted[0]
            return Closing(key, lambda value: "" if pod_affinity.met(value, wanted) else pod_affinity.refusal(key))
        return Closing(self.rules[0].key, self.rules[0].refusal) if self.rules else None

    @property
    def resources_only(self) -> Question:
        """What remains when only resources are asked for: where that fits nowhere, the pod does not either."""
        return Question(self.pod, self.eligible, self.needs, [], [], [], (), None, self.key, True)


class _Kind(msgspec.Struct, frozen=True):
    """What all pods of one template ask."""

    eligible: EligibleNodes
    needs: tuple[tuple[str, int], ...]
    ports: tuple[Port, ...]
    numa: nrt.Request | None
    key: object
    has_affinity: bool
    spreads: bool


class Questions:
    """Makes questions about one picture, as the plan has left it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._node_rules = NodeRules(view)
        self._kinds: dict[tuple[object, ...], _Kind] = {}

    @functools.cached_property
    def matching_pods(self) -> MatchingPods:
        """Where pods are that selectors select."""
        return MatchingPods(self._view)

    @functools.cached_property
    def anti_affinity(self) -> PodAntiAffinity:
        """Which pods may not share a domain."""
        return PodAntiAffinity(self._view, self.matching_pods)

    @functools.cached_property
    def _affinity(self) -> PodAffinity:
        return PodAffinity(self._view, self.matching_pods)

    @functools.cached_property
    def _spread(self) -> Spread:
        return Spread(self._view, self.matching_pods)

    def of(self, pod: PodView, inside: str) -> Question:
        """What the pod asks at this moment of the plan."""
        kind = self._kind(pod, inside)
        blocked = self.anti_affinity.blocked(pod)
        wanted = self._affinity.wanted(pod) if kind.has_affinity else []
        rules = self._spread.rules(pod, kind.eligible) if kind.spreads else []
        plain = not (blocked or wanted or rules or kind.ports or kind.numa)
        return Question(pod, kind.eligible, kind.needs, blocked, wanted, rules, kind.ports, kind.numa, kind.key, plain)

    def _kind(self, pod: PodView, inside: str) -> _Kind:
        key = (pod.template.spec, inside, pod.pod.kube_qos, pod.promised)
        kind = self._kinds.get(key)
        if kind is None:
            eligible = self._node_rules.of(pod, _parsed(inside))
            needs = tuple([(name, amount.nano) for name, amount in pod.pod.requests.items()])
            kind = self._kinds[key] = _Kind(
                eligible=eligible,
                needs=needs,
                ports=tuple(free_capacity.host_ports(pod)),
                numa=fit_numa.ask(pod) if fit_numa.concerned(pod) else None,
                key=(eligible, needs),
                has_affinity=bool(pod_affinity.terms(pod)),
                spreads=bool(topology_spread.constraints(pod)),
            )
        return kind


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> objects.LabelSelector:
    return label_selectors.parse(text)
