"""The CPU and topology manager of the emulated kubelet: the Node's annotations configure them, kubelet's rules decide.

Without a word on the Node the policy is none. A change of the configuration is a restart of kubelet: every pod is
admitted again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import structs

from koordlite.lab.machine.machine import Machine
from koordlite.lab.pods.pod_spec import StaticManagers
from koordlite.model.cpuset import CPUSet, union
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet.admit import Admission, KubeletNode, admit, empty_node
from koordlite.numa.kubelet.cpu_manager import DEFAULT, CPUState, StaticPolicy
from koordlite.numa.kubelet.requests import of_pod
from koordlite.numa.machine import Machine as CPUs


class Managers:
    """Allocations of kubelet's managers, and which pods they refused."""

    def __init__(self, machine: Machine) -> None:
        self._topology = _topology(machine)
        self._configuration: StaticManagers | None = None
        self._node: KubeletNode | None = None
        self._pinned: dict[str, PodCPUs] = {}
        self.refused: dict[str, Admission] = {}
        """By pod uid."""

    @property
    def static(self) -> bool:
        """The static policy is on: the Node says so, or a pod was given CPUs by annotation."""
        return self._node is not None or bool(self._pinned)

    @property
    def exclusive(self) -> tuple[PodCPUs, ...]:
        """CPUs that the static CPU manager gave away, by pod uid."""
        assigned = self._node.cpus.assigned if self._node else {}
        by_kubelet = (PodCPUs(uid, union(own.values()), dict(own)) for uid, own in assigned.items())
        return tuple(sorted([*self._pinned.values(), *by_kubelet], key=lambda each: each.uid))

    @property
    def shared(self) -> CPUSet:
        """CPUs that no container has to itself."""
        return self._topology.cpuset - union(each.cpus for each in self.exclusive)

    def state(self, configured: Kubelet) -> Kubelet:
        """Kubelet's configuration: as configured, and with the CPUs it gave away exclusively."""
        if not self.static:
            return configured
        managers = self._node.managers if self._node else None
        return Kubelet(
            cpu_manager_policy="static",
            cpu_manager_options=configured.cpu_manager_options,
            topology_manager_policy=managers.policy if managers else configured.topology_manager_policy,
            topology_manager_scope=managers.scope if managers else configured.topology_manager_scope,
            reserved_cpus=(managers and managers.cpu and managers.cpu.reserved) or configured.reserved_cpus,
            pod_cpus=self.exclusive,
        )

    def checkpoint(self) -> str:
        """The checkpoint file of the CPU manager."""
        state = {
            "policyName": "static" if self.static else "none",
            "defaultCpuSet": str(self.shared) if self.static else "",
            "entries": {
                each.uid: {name: str(cpus) for name, cpus in each.containers.items()} for each in self.exclusive
            },
            "checksum": 0,
        }
        return json.dumps({key: value for key, value in state.items() if value != {}}, separators=(",", ":"))

    def configure(self, configuration: StaticManagers | None) -> bool:
        """Take over what the Node says; whether kubelet has restarted with it and has to admit all pods again."""
        if configuration == self._configuration:
            return False
        self._configuration, self._node = configuration, None
        self.refused.clear()
        if configuration:
            reserving = StaticPolicy.reserving(CPUs(self._topology.cpus), configuration.reserved, DEFAULT)
            self._node = empty_node(
                self._topology, policy=configuration.policy, scope=configuration.scope, reserved=reserving.reserved
            )
        return True

    def pin(self, uid: str, container: str, cpus: CPUSet | None) -> None:
        """A pod was given these CPUs by annotation, whatever the policy. They are listed at this container."""
        if cpus:
            self._pinned[uid] = PodCPUs(uid, cpus, {container: cpus})
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
        answer = admit(structs.replace(self._node, cpus=free), of_pod(pod))
        if not answer.admitted:
            self.refused[uid] = answer
            return False
        self._node = answer.node
        return True

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all other pods."""
        present = set(uids)
        self._pinned = {uid: own for uid, own in self._pinned.items() if uid in present}
        self.refused = {uid: answer for uid, answer in self.refused.items() if uid in present}
        if self._node is not None:
            for uid in self._node.cpus.assigned.keys() - present:
                self._node = self._node.without(uid)

    def of(self, uid: str, container: str) -> CPUSet | None:
        """CPU set of a container: its own CPUs, or the shared ones; None under policy none."""
        if uid in self._pinned:
            return self._pinned[uid].cpus
        own = self._node.cpus.of(uid, container) if self._node else None
        return own or (self.shared if self.static else None)


def _topology(machine: Machine) -> Topology:
    first: dict[tuple[int, int], int] = {}
    for cpu in sorted(machine.cpus, key=lambda each: each.id):
        first.setdefault((cpu.package, cpu.core), cpu.id)
    cpus = tuple(
        CPU(each.id, first[each.package, each.core], each.package, each.node, each.l3) for each in machine.cpus
    )
    nodes = (NUMANode(n.id, CPUSet(cpu.id for cpu in cpus if cpu.node == n.id), n.memory) for n in machine.nodes)
    return Topology(cpus, tuple(nodes))
