"""The static policy of kubelet's CPU manager: its options, hints, allocation and release of exclusive CPUs.

Source: kubelet 1.36, `cm/cpumanager/policy_static.go` and `policy_options.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.reading.go_words import STRICT_RESERVATION, parse_bool
from koordlite.numa.kubelet.cpu_take import take_distributed, take_packed
from koordlite.numa.kubelet.merge import SMT, Hint, Hints, Refused, hints_by_nodes, unexpected
from koordlite.numa.kubelet.requests import ContainerRequest, PodRequest
from koordlite.numa.machine import Machine, nodes_of

NAMES = {
    "full-pcpus-only": "full_cores",
    "distribute-cpus-across-numa": "across_numa",
    "align-by-socket": "by_socket",
    "distribute-cpus-across-cores": "across_cores",
    STRICT_RESERVATION: "strict_reservation",
    "prefer-align-cpus-by-uncorecache": "by_uncore",
}
_NOT_TOGETHER = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


class CPUOptions(msgspec.Struct, frozen=True):
    """The options by what they do; all are off by default."""

    full_cores: bool = False
    """full-pcpus-only: whole cores or a refusal."""
    across_numa: bool = False
    """distribute-cpus-across-numa: as many from each NUMA node where one is not enough."""
    by_socket: bool = False
    """align-by-socket: CPUs of one socket are as good as those of one NUMA node."""
    across_cores: bool = False
    """distribute-cpus-across-cores: no whole cores are taken."""
    strict_reservation: bool = False
    """strict-cpu-reservation: shared containers do not run on reserved CPUs."""
    by_uncore: bool = False
    """prefer-align-cpus-by-uncorecache: CPUs of one last-level cache if possible."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> CPUOptions:
        """The options as kubelet reads them; ValueError for what kubelet refuses to start with."""
        unknown = [name for name in options if name not in NAMES]
        if unknown:
            raise ValueError(f"unknown CPU Manager Policy option: {unknown[0]!r}")
        try:
            values = {name: parse_bool(text) for name, text in options.items()}
        except ValueError as error:
            raise ValueError(f"bad value for a CPU Manager Policy option: {error}") from None
        for one, other in _NOT_TOGETHER:
            if values.get(one) and values.get(other):
                raise ValueError(f"static policy options {one} and {other} can not be used at the same time")
        return cls(**{NAMES[name]: value for name, value in values.items()})

    def check(self, machine: Machine, topology_policy: str) -> None:
        """ValueError where kubelet does not start with these options on this machine."""
        if not self.by_socket:
            return
        if topology_policy == "single-numa-node":
            raise ValueError("Topology manager policy single-numa-node is incompatible with option align-by-socket")
        if len(machine.sockets) > len(machine.nodes):
            raise ValueError("align-by-socket is not compatible with more sockets than NUMA nodes")


DEFAULT = CPUOptions()


Assigned = Mapping[str, Mapping[str, CPUSet]]
"""Pod uid → container → exclusive CPUs."""


class CPUState(msgspec.Struct, frozen=True):
    """The checkpoint `cpu_manager_state`: the shared pool, reserved CPUs included, and who has which CPUs."""

    shared: CPUSet
    assigned: Assigned = msgspec.field(default_factory=dict)

    def of(self, uid: str, container: str) -> CPUSet | None:
        """The CPUs a container has already."""
        return self.assigned.get(uid, {}).get(container)

    def with_cpus(self, uid: str, container: str, cpus: CPUSet) -> CPUState:
        """The state after a container got these CPUs."""
        own = {**self.assigned.get(uid, {}), container: cpus}
        return CPUState(self.shared - cpus, {**self.assigned, uid: own})

    def without(self, uid: str) -> CPUState:
        """The state after a pod has gone: its CPUs are shared again."""
        if uid not in self.assigned:
            return self
        remaining = {pod: own for pod, own in self.assigned.items() if pod != uid}
        return CPUState(self.shared | union(self.assigned[uid].values()), remaining)


NO_CPUS = CPUState(EMPTY)


class StaticPolicy(msgspec.Struct, frozen=True):
    """Policy `static` on one machine. `reserved` CPUs are never given to one container alone."""

    machine: Machine
    reserved: CPUSet = EMPTY
    options: CPUOptions = DEFAULT
    counts_free_cores: bool = True
    """True where under full-pcpus-only a request must fit into the cores without reserved CPUs; kubelet 1.23 did not
    ask that."""

    @classmethod
    def reserving(cls, machine: Machine, count: int, options: CPUOptions) -> StaticPolicy:
        """The policy where only a number of CPUs is reserved: kubelet takes them as it would for a container."""
        plain = cls(machine, EMPTY, options)
        return msgspec.structs.replace(plain, reserved=plain.take(machine.all, count))

    def first_state(self) -> CPUState:
        """The state of a node on which nothing runs."""
        return CPUState(self.machine.all - self.reserved if self.options.strict_reservation else self.machine.all)

    def available(self, state: CPUState) -> CPUSet:
        """CPUs that can be given to one container alone."""
        return state.shared - self.reserved

    def hints(self, state: CPUState, pod: PodRequest, reusable: CPUSet = EMPTY) -> Hints | None:
        """Hints of the policy for the pod as a whole; None when it wants no CPUs of its own.

        `reusable` are CPUs of init containers of the same pod, which have ended by then.
        """
        count = pod.cpus
        if not count:
            return None
        assigned = [(c.cpus, cpus) for c in pod.containers if (cpus := state.of(pod.uid, c.name)) is not None]
        if any(len(cpus) != request for request, cpus in assigned):
            return {"cpu": []}
        own = union(cpus for _, cpus in assigned)
        if len(own) == count:
            return {"cpu": self._hints(own, EMPTY, count)}
        return {"cpu": self._hints(self.available(state), reusable | own, count)}

    def allocate(
        self, state: CPUState, uid: str, container: ContainerRequest, *, affinity: int | None, reusable: CPUSet = EMPTY
    ) -> CPUState:
        """The state after the container got its CPUs, those of the affinity first. `Refused` when it cannot."""
        if not container.cpus:
            return state
        self._check_cores(state, container.cpus)
        if state.of(uid, container.name) is not None:
            return state
        free = self.available(state) | reusable
        aligned = EMPTY if affinity is None else self._aligned(free, affinity)
        try:
            cpus = self.take(aligned, min(len(aligned), container.cpus))
            cpus |= self.take(free - cpus, container.cpus - len(cpus))
        except ValueError as error:
            raise unexpected(str(error)) from None
        return state.with_cpus(uid, container.name, cpus)

    def take(self, free: CPUSet, count: int) -> CPUSet:
        """`count` of the free CPUs as the options say; ValueError with kubelet's text when it cannot."""
        options = self.options
        if options.across_numa:
            group = self.machine.per_core if options.full_cores else 1
            return take_distributed(self.machine, free, count, group=group, spread_cores=options.across_cores)
        return take_packed(self.machine, free, count, spread_cores=options.across_cores, align_uncore=options.by_uncore)

    def _check_cores(self, state: CPUState, count: int) -> None:
        if not self.options.full_cores:
            return
        per_core = self.machine.per_core or 1
        if count % per_core:
            wrong = f"requested {count} cpus not multiple cpus per core = {per_core}"
            raise Refused(SMT, f"SMT Alignment Error: {wrong}")
        free = len(state.shared - self.machine.siblings(self.reserved))
        if self.counts_free_cores and count > free:
            numbers = f"available physical CPUs = {free}, requested CPUs = {count}, CPUs per core = {per_core}"
            raise Refused(SMT, f"SMT Alignment Error: not enough free physical CPUs: {numbers}")

    def _hints(self, available: CPUSet, reusable: CPUSet, count: int) -> list[Hint]:
        """The sets of NUMA nodes that have enough, and all that can be used again."""
        by_node = self.machine.nodes
        free = {node: len(cpus & available.ids) for node, cpus in by_node.items()}
        reusable_there = {node: len(cpus & reusable.ids) for node, cpus in by_node.items()}
        reuse = sum(reusable_there.values())
        return hints_by_nodes(
            by_node,
            lambda nodes: sum(len(by_node[node]) for node in nodes) >= count,
            lambda nodes, _: (
                sum(reusable_there[node] for node in nodes) == reuse
                and sum(free[node] for node in nodes) + reuse >= count
            ),
            self._preferred,
        )

    def _preferred(self, nodes: tuple[int, ...], fewest: int) -> bool:
        machine = self.machine
        per_socket = len(machine.nodes) // len(machine.sockets)
        if self.options.by_socket and per_socket and len(machine.sockets_of(nodes)) == -(-fewest // per_socket):
            return True
        return len(nodes) == fewest

    def _aligned(self, free: CPUSet, affinity: int) -> CPUSet:
        machine, nodes = self.machine, nodes_of(affinity)
        if self.options.by_socket:
            sockets = machine.sockets_of(nodes)
            return CPUSet(cpu for cpu in free if machine.by_id[cpu].socket in sockets)
        return CPUSet(free.ids & machine.in_nodes(nodes))
