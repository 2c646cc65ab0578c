"""The CPU and topology manager of the emulated kubelet: the Node's annotations configure them, kubelet's rules decide.

Without a word on the Node the policy is none. A change of the configuration is a restart of kubelet: every pod is
admitted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.lab.machine.machine import Machine
from koordlite.lab.pods import pod_spec
from koordlite.model import node as described_node
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.errors import Problem
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet import merge
from koordlite.numa.kubelet.admit import Admission, KubeletNode, admit, empty_node
from koordlite.numa.kubelet.cpu_manager import DEFAULT, CPUState, StaticPolicy
from koordlite.numa.kubelet.requests import of_pod
from koordlite.numa.machine import Machine as CPUs


class _Configuration(msgspec.Struct, frozen=True):
    static: bool = False
    reserved: int = 0
    policy: merge.Policy = "none"
    scope: merge.Scope = "container"


class Managers:
    """Allocations of kubelet's managers, and which pods they refused."""

    def __init__(self, machine: Machine) -> None:
        self._topology, self._configuration = _topology(machine), _Configuration()
        self._node: KubeletNode | None = None
        self._pinned: dict[str, CPUSet] = {}
        self.refused: dict[str, Admission] = {}
        """By pod uid."""

    @property
    def static(self) -> bool:
        """The static policy is on: the Node says so, or a pod was given CPUs by annotation."""
        return self._node is not None or bool(self._pinned)

    @property
    def policy(self) -> str:
        """The topology manager's policy; empty when the Node says nothing."""
        return self._configuration.policy if self._node else ""

    @property
    def scope(self) -> str:
        """The topology manager's scope; empty when the Node says nothing."""
        return self._configuration.scope if self._node else ""

    @property
    def cpus(self) -> CPUSet:
        """All CPUs of the machine."""
        return self._topology.cpuset

    @property
    def reserved(self) -> CPUSet:
        """CPUs that no container gets to itself."""
        policy = self._node.managers.cpu if self._node else None
        return policy.reserved if policy else EMPTY

    @property
    def shared(self) -> CPUSet:
        """CPUs that no container has to itself."""
        return self._topology.cpuset - union(self._pinned.values()) - union(each.cpus for each in self._exclusive())

    def configure(self, node: objects.NodeObject | None, problems: list[Problem]) -> bool:
        """Take over what the Node says; whether kubelet has restarted with it and has to admit all pods again."""
        static = pod_spec.static_policy(node, problems)
        configuration = _Configuration()
        if static:
            policy, scope = pod_spec.topology_manager(node, problems)
            configuration = _Configuration(True, _reserved_count(node), policy, scope)
        if configuration == self._configuration:
            return False
        self._configuration, self._node = configuration, None
        self.refused.clear()
        if static:
            reserving = StaticPolicy.reserving(CPUs(self._topology.cpus), configuration.reserved, DEFAULT)
            self._node = empty_node(
                self._topology, policy=configuration.policy, scope=configuration.scope, reserved=reserving.reserved
            )
        return True

    def pin(self, uid: str, cpus: CPUSet | None) -> None:
        """A pod was given these CPUs by annotation, whatever the policy."""
        if cpus:
            self._pinned[uid] = cpus
        else:
            self._pinned.pop(uid, None)

    def admit(self, pod: objects.PodObject) -> bool:
        """Give the pod its CPUs, or remember why not."""
        uid = pod.metadata.uid
        if self._node is None or uid in self._pinned or uid in self._node.cpus.assigned:
            return True
        if uid in self.refused:
            return False
        free = CPUState(self.shared, self._node.cpus.assigned)
        answer = admit(msgspec.structs.replace(self._node, cpus=free), of_pod(pod))
        if not answer.admitted:
            self.refused[uid] = answer
            return False
        self._node = answer.node
        return True

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all other pods."""
        present = set(uids)
        self._pinned = {uid: cpus for uid, cpus in self._pinned.items() if uid in present}
        self.refused = {uid: answer for uid, answer in self.refused.items() if uid in present}
        if self._node is not None:
            for uid in [uid for uid in self._node.cpus.assigned if uid not in present]:
                self._node = self._node.without(uid)

    def of(self, uid: str, container: str) -> CPUSet | None:
        """CPU set of a container: its own CPUs, or the shared ones; None under policy none."""
        own = self._pinned.get(uid) or (self._node.cpus.of(uid, container) if self._node else None)
        return own or (self.shared if self.static else None)

    def given(self, first_containers: Mapping[str, str]) -> tuple[PodCPUs, ...]:
        """Exclusive CPUs by pod uid. CPUs by annotation are listed at the pod's first container."""
        pinned = (
            PodCPUs(uid, cpus, {first_containers[uid]: cpus})
            for uid, cpus in self._pinned.items()
            if uid in first_containers
        )
        return tuple(sorted([*pinned, *self._exclusive()], key=lambda each: each.uid))

    def _exclusive(self) -> Iterable[PodCPUs]:
        for uid, own in (self._node.cpus.assigned if self._node else {}).items():
            yield PodCPUs(uid, union(own.values()), dict(own))


def _reserved_count(node: objects.NodeObject | None) -> int:
    """CPUs that the Node's capacity has and its allocatable has not, rounded up."""
    if node is None:
        return 0
    described = described_node.from_wire(node)
    capacity, allocatable = described.capacity.get("cpu"), described.allocatable.get("cpu")
    return max(0, -(-(capacity.milli - allocatable.milli) // 1000)) if capacity and allocatable else 0


def _topology(machine: Machine) -> Topology:
    first: dict[tuple[int, int], int] = {}
    for cpu in sorted(machine.cpus, key=lambda each: each.id):
        first.setdefault((cpu.package, cpu.core), cpu.id)
    cpus = tuple(
        CPU(each.id, first[each.package, each.core], each.package, each.node, each.l3) for each in machine.cpus
    )
    nodes = (NUMANode(n.id, CPUSet(cpu.id for cpu in cpus if cpu.node == n.id), n.memory) for n in machine.nodes)
    return Topology(cpus, tuple(nodes))
