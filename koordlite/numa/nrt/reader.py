"""The reader of a NodeResourceTopology: every fact of it is read here, once, with the bounds that hold for everybody.

A part that cannot be read counts as not there and becomes a problem of the object; the other parts hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from koordlite.model import cpuset, defaults, keys, nrt
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.defaults import MOST_NUMA_NODES, NUMA_NODES
from koordlite.model.errors import InputError, Problem, noting, refusing
from koordlite.model.node import Reservation, SystemQoS, parse_reservation, parse_system_qos
from koordlite.model.nrt import CPUManagerPolicy, Placement, PodCPUAlloc
from koordlite.model.quantity import Quantity
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet.merge import POLICIES, SCOPES

T = TypeVar("T")
NO_TOPOLOGY = Topology((), ())
_MOST_TIMES = 10**6
_SKIPPED = "fix its writer; until then the node counts as one without it"


class Reader:
    """Reads one object, each part when it is asked for first; `problems` grows meanwhile."""

    def __init__(
        self, obj: objects.NRTObject, problems: list[Problem], *, max_numa_nodes: int = defaults.NUMA_NODES
    ) -> None:
        self.problems, self.owner = problems, f"noderesourcetopology/{obj.metadata.name}"
        self._obj, self._notes, self._most = obj, obj.metadata.annotations or {}, max_numa_nodes

    @functools.cached_property
    def nodes(self) -> Mapping[int, objects.Zone]:
        """The zones of NUMA nodes by id, ascending."""
        return numa_nodes(self._obj.zones, self.owner, self.problems, most=self._most)

    @functools.cached_property
    def policy(self) -> ReportedPolicy:
        """Kubelet's topology manager, from the attributes where there are any, else from the old list."""
        return by_attributes(self._obj.attributes or ()).over(by_policies(self._obj.topology_policies or ()))

    @functools.cached_property
    def available(self) -> dict[int, dict[str, Quantity]]:
        """Rest of the NUMA nodes, by resource."""
        return {number: self._amounts(zone, "available") for number, zone in self.nodes.items()}

    @functools.cached_property
    def allocatable(self) -> dict[int, dict[str, Quantity]]:
        """Upper bound of what they may hand out."""
        return {number: self._amounts(zone, "allocatable") for number, zone in self.nodes.items()}

    @functools.cached_property
    def distances(self) -> dict[int, dict[int, int]]:
        """SLIT distances out of the zones' costs, of the NUMA nodes that have any."""
        by_node: dict[int, dict[int, int]] = {}
        for number, zone in self.nodes.items():
            for cost in zone.costs or ():
                other, distance = nrt.numa_node_of_zone(str(cost.get("name", ""))), cost.get("value")
                if other is None or not isinstance(distance, int):
                    why = "no distance to a node-<id>"
                    self.problems.append(Problem(f"{self.owner}/{zone.name}", "costs", str(cost)[:200], why, _SKIPPED))
                else:
                    by_node.setdefault(number, {})[other] = distance
        return by_node

    @functools.cached_property
    def topology(self) -> Topology:
        """The machine's CPUs; those of one type have the same text, and share what is read of it."""
        return self._note(keys.CPU_TOPOLOGY, _topology) or NO_TOPOLOGY

    @property
    def topology_text(self) -> str:
        """Source that `topology` is read of."""
        return self._notes.get(keys.CPU_TOPOLOGY, "")

    @functools.cached_property
    def cpu_manager(self) -> CPUManagerPolicy:
        """Configuration of kubelet's CPU manager."""
        manager: _Manager = self._decoded(keys.CPU_MANAGER_POLICY, _Manager) or _Manager()
        return CPUManagerPolicy(
            policy=manager.policy, options=manager.options or {}, reserved_cpus=manager.reserved_cpus
        )

    @functools.cached_property
    def allocs(self) -> tuple[PodCPUAlloc, ...]:
        """CPUs that pods hold alone."""
        return self._decoded(keys.POD_CPU_ALLOCS, tuple[PodCPUAlloc, ...]) or ()

    @property
    def kubelets_pods(self) -> tuple[PodCPUAlloc, ...]:
        """Select those of `allocs` that kubelet gave to known pods. What Koordinator promised stands on the pod
        itself."""
        return tuple(alloc for alloc in self.allocs if alloc.managed_by_kubelet and alloc.uid)

    @functools.cached_property
    def reservation(self) -> Reservation | None:
        """The node's reservation as its agent resolved it."""
        return self._note(keys.RESERVATION, parse_reservation)

    @functools.cached_property
    def system_qos(self) -> SystemQoS | None:
        """CPUs set apart for SYSTEM pods."""
        return self._note(keys.SYSTEM_QOS, parse_system_qos)

    @functools.cached_property
    def placement(self) -> Placement | None:
        """NUMA nodes on which containers run, as the agent has seen it."""
        return self._note(keys.PLACEMENT, nrt.decode_placement)

    @functools.cached_property
    def be_pool(self) -> CPUSet:
        """The CPUs that best-effort containers share."""
        pools = self._note(keys.BE_SHARED_POOLS, functools.partial(nrt.decode_pools, key=keys.BE_SHARED_POOLS))
        return cpuset.union(pool.cpus for pool in pools or ())

    @functools.cached_property
    def ratios(self) -> Mapping[str, float] | None:
        """Factor by which the node amplifies a resource; None where that is not said."""
        return self._note(keys.AMPLIFICATION_RATIO, read_ratios)

    def _amounts(self, zone: objects.Zone, column: str) -> dict[str, Quantity]:
        amounts: dict[str, Quantity] = {}
        for resource in zone.resources or ():
            try:
                amounts[resource.name] = Quantity.parse(getattr(resource, column))
            except ValueError as error:
                field, do = f"zones[{zone.name}].resources[{resource.name}].{column}", "write a quantity; " + _SKIPPED
                self.problems.append(Problem(self.owner, field, str(getattr(resource, column)), str(error), do))
        return amounts

    def _note(self, key: str, parse: Callable[[str, str], T]) -> T | None:
        """The value of annotation `key`; None without one, or when it cannot be read."""
        with noting(self.problems):
            if text := self._notes.get(key):
                return parse(text, self.owner)
        return None

    def _decoded(self, key: str, shape: Any) -> Any:
        """Annotation `key` as `shape`. A list of CPUs in it that cannot be read costs only itself: it is empty."""

        def cpus(kind: type, text: object) -> CPUSet:
            if kind is not CPUSet or not isinstance(text, str):
                raise ValueError(f"{text!r} is not a CPU list like 0-3,8")
            try:
                return CPUSet.parse(text)
            except ValueError as error:
                self.problems.append(Problem(self.owner, key, text, str(error), _SKIPPED))
                return EMPTY

        return self._note(key, lambda text, owner: _json(text, shape, owner, key, cpus))


class _Manager(msgspec.Struct):
    policy: str = ""
    options: dict[str, str] | None = None
    """Null for a map of Go that was never made."""
    reserved_cpus: CPUSet = msgspec.field(default=EMPTY, name="reservedCPUs")


def _topology(text: str, owner: str) -> Topology:
    try:
        return _topology_of(text)
    except InputError:
        return nrt.decode_cpu_topology(text, owner)  # The same error, with the owner's name.


@functools.lru_cache(maxsize=1024)
def _topology_of(text: str) -> Topology:
    return nrt.decode_cpu_topology(text, "")


def _json(text: str, shape: Any, owner: str, key: str, hook: Callable[[type, object], CPUSet] | None = None) -> Any:
    with refusing(owner, key, text, _SKIPPED):
        return msgspec.json.decode(text, type=shape | None, dec_hook=hook)


def read_ratios(text: str, owner: str) -> Mapping[str, float] | None:
    """Amplification ratios; InputError for text that is none, and for more than anybody sells."""
    ratios: dict[str, float] | None = _json(text, dict[str, float], owner, keys.AMPLIFICATION_RATIO)
    wild = next((name for name, ratio in (ratios or {}).items() if not ratio <= _MOST_TIMES), None)
    if wild is not None:
        why = f"{wild}: no node sells a resource more than {_MOST_TIMES} times"
        raise InputError(Problem(owner, keys.AMPLIFICATION_RATIO, text, why, _SKIPPED))
    return ratios


_DO = "its reporter has to write it again; the node's NUMA nodes count as unknown until then"


def numa_nodes(
    zones: Iterable[objects.Zone] | None, owner: str, problems: list[Problem], *, most: int = NUMA_NODES
) -> dict[int, objects.Zone]:
    """The zones of type Node that are called `node-<id>`, by id, ascending. Of two with one name the first counts; more
    than `most` are not used at all. Either is a problem of `owner`."""
    by_id: dict[int, objects.Zone] = {}
    for zone in zones or ():
        number = nrt.numa_node_of_zone(zone.name) if zone.type == "Node" else None
        if number is None:
            continue
        if number in by_id:
            problems.append(Problem(owner, "zones", zone.name, "two zones have this name", _DO))
        else:
            by_id[number] = zone
    if len(by_id) > most:
        why = f"there are more NUMA nodes than the {most} that are judged here"
        do = f"raise --max-numa-nodes (at most {MOST_NUMA_NODES}) where the machine has so many; they count as unknown"
        problems.append(Problem(owner, "zones", str(len(by_id)), why, do))
        return {}
    return dict(sorted(by_id.items()))


_MOST_NODES = 1024


class ReportedPolicy(msgspec.Struct, frozen=True):
    """Values of one source; empty or None where it says nothing that can be read."""

    policy: str = ""
    scope: str = ""
    max_numa_nodes: int | None = None

    def over(self, other: ReportedPolicy) -> ReportedPolicy:
        """This, with what it leaves open from `other`."""
        return ReportedPolicy(
            self.policy or other.policy, self.scope or other.scope, self.max_numa_nodes or other.max_numa_nodes
        )


DEFAULT = ReportedPolicy("none", "container", 8)
"""Kubelet's own defaults."""


def by_attributes(attributes: Iterable[Mapping[str, str]]) -> ReportedPolicy:
    """Values of the attributes; a word or number that kubelet does not know counts as not given."""
    values = {a.get("name", ""): a.get("value", "") for a in attributes}
    policy, scope = values.get("topologyManagerPolicy", ""), values.get("topologyManagerScope", "")
    return ReportedPolicy(
        policy if policy in POLICIES else "",
        scope if scope in SCOPES else "",
        _count(values.get("topologyManagerMaxNUMANodes", "")),
    )


def by_policies(words: Sequence[str]) -> ReportedPolicy:
    """Policy by the first word of `topologyPolicies`; the others are not looked at."""
    word = words[0] if words else ""
    policy, scope = nrt.kubelet_topology_manager(word)
    return ReportedPolicy(policy, scope) if policy != "none" or word == "None" else ReportedPolicy()


def _count(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    return min(number, _MOST_NODES) if number > 1 else None
