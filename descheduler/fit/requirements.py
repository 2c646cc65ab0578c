"""What a pod asks of nodes, worked out once: for pods of one template together, and for the pod alone what differs."""

from __future__ import annotations

import dataclasses
import functools

from descheduler.fit import free_capacity as rooms_module
from descheduler.fit import numa as fit_numa
from descheduler.fit import pod_affinity, pod_anti_affinity, topology_spread
from descheduler.fit.free_capacity import Port
from descheduler.fit.matching_pods import Crowd
from descheduler.fit.node_rules import Shape, Shapes
from descheduler.fit.pod_affinity import Company
from descheduler.fit.pod_anti_affinity import Rivals
from descheduler.fit.topology_spread import Spread
from descheduler.framework import PodView, View
from descheduler.picture.pods import anti_affinity_terms
from koordlite.formulas import numa_fit
from koordlite.model import label_selectors
from koordlite.model.wire import objects


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """All that a pod asks of nodes."""

    pod: PodView
    shape: Shape
    needs: tuple[tuple[str, int], ...]
    """Nano-units by resource."""
    blocked: pod_anti_affinity.Blocked
    wanted: pod_affinity.Wanted
    rules: list[topology_spread.Rule]
    ports: tuple[Port, ...]
    numa: numa_fit.Ask | None
    key: object
    """Equal for pods that get the same answers from every node as far as resources are concerned."""
    plain: bool
    """It asks for nothing but resources on nodes of its shape. If not, no other pod gets the same answers."""

    @property
    def resources_only(self) -> Question:
        """What remains when only resources are asked for: where that fits nowhere, the pod does not either."""
        return Question(self.pod, self.shape, self.needs, [], [], [], (), None, self.key, True)


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """What all pods of one template ask."""

    shape_key: object
    shape: Shape
    needs: tuple[tuple[str, int], ...]
    ports: tuple[Port, ...]
    numa: numa_fit.Ask | None
    key: object
    has_rivals: bool
    has_company: bool
    spreads: bool


class Questions:
    """Makes questions about one picture, as the plan has left it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shapes = Shapes(view)
        self._kinds: dict[tuple[object, ...], _Kind] = {}

    @functools.cached_property
    def crowd(self) -> Crowd:
        """Where pods are that selectors select."""
        return Crowd(self._view)

    @functools.cached_property
    def rivals(self) -> Rivals:
        """Who may not stand beside whom."""
        return Rivals(self._view, self.crowd)

    @functools.cached_property
    def _company(self) -> Company:
        return Company(self._view, self.crowd)

    @functools.cached_property
    def _spread(self) -> Spread:
        return Spread(self._view, self.crowd)

    def of(self, pod: PodView, inside: str) -> Question:
        """What the pod asks at this moment of the plan."""
        kind = self._kind(pod, inside)
        blocked = self.rivals.blocked(pod) if kind.has_rivals else []
        wanted = self._company.wanted(pod) if kind.has_company else []
        rules = self._spread.rules(pod, kind.shape_key, kind.shape) if kind.spreads else []
        plain = not (blocked or wanted or rules or kind.ports or kind.numa)
        return Question(pod, kind.shape, kind.needs, blocked, wanted, rules, kind.ports, kind.numa, kind.key, plain)

    def _kind(self, pod: PodView, inside: str) -> _Kind:
        needs = tuple([(name, amount.nano) for name, amount in pod.pod.requests.items()])
        key = (pod.template, inside, needs, pod.pod.kube_qos, pod.promised)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._made(pod, inside, needs)
        return kind

    def _made(self, pod: PodView, inside: str, needs: tuple[tuple[str, int], ...]) -> _Kind:
        shape_key, shape = self._shapes.of(pod, _parsed(inside))
        return _Kind(
            shape_key=shape_key,
            shape=shape,
            needs=needs,
            ports=tuple(rooms_module.host_ports(pod)),
            numa=fit_numa.ask(pod) if fit_numa.concerned(pod) else None,
            key=(shape_key, needs),
            has_rivals=bool(anti_affinity_terms(pod)) or self.rivals.concerned(pod),
            has_company=bool(pod_affinity.terms(pod)),
            spreads=bool(topology_spread.constraints(pod)),
        )


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> objects.LabelSelector:
    return label_selectors.parse(text)
