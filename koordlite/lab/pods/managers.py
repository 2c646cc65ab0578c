"""The CPU and topology manager of the emulated kubelet: the Node's annotations configure them, kubelet's rules decide.

Without a word on the Node the policy is none. A change of the configuration is a restart of kubelet: every pod is
admitted again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from koordlite.lab.machine.machine import Machine
from koordlite.lab.pods.pod_spec import StaticManagers
from koordlite.model.cpuset import CPUSet, union
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet.admit import Admission, KubeletNode, admit, empty_node
from koordlite.numa.kubelet.cpu_manager import DEFAULT, StaticPolicy
from koordlite.numa.kubelet.requests import of_pod
from koordlite.numa.machine import Machine as CPUs


class Managers:
    """Allocations of kubelet's managers, and which pods they refused."""

    def __init__(self, machine: Machine) -> None:
        self._topology = _topology(machine)
        self._configuration: StaticManagers | None = None
        self.node: KubeletNode | None = None
        """The node as kubelet sees it under the static policy; None under another."""
        self.refused: dict[str, Admission] = {}
        """Refusals by pod uid."""

    @property
    def exclusive(self) -> tuple[PodCPUs, ...]:
        """CPUs that the static CPU manager gave away, by pod uid."""
        assigned = self.node.cpus.assigned if self.node else {}
        return tuple(PodCPUs(uid, union(own.values()), dict(own)) for uid, own in sorted(assigned.items()))

    def state(self, configured: Kubelet) -> Kubelet:
        """Kubelet's configuration: as configured, and with the CPUs it gave away exclusively."""
        if self.node is None:
            return configured
        managers = self.node.managers
        return Kubelet(
            cpu_manager_policy="static",
            cpu_manager_options=configured.cpu_manager_options,
            topology_manager_policy=managers.policy,
            topology_manager_scope=managers.scope,
            reserved_cpus=(managers.cpu and managers.cpu.reserved) or configured.reserved_cpus,
            pod_cpus=self.exclusive,
        )

    def checkpoint(self) -> str:
        """The checkpoint file of the CPU manager."""
        state = {
            "policyName": "static" if self.node else "none",
            "defaultCpuSet": str(self.node.cpus.shared) if self.node else "",
            "entries": {
                each.uid: {name: str(cpus) for name, cpus in each.containers.items()} for each in self.exclusive
            },
            "checksum": 0,
        }
        return json.dumps({key: value for key, value in state.items() if value != {}}, separators=(",", ":"))

    def configure(self, configuration: StaticManagers | None) -> bool:
        """Take over what the Node says. True when kubelet has restarted with it and has to admit all pods again."""
        if configuration == self._configuration:
            return False
        self._configuration, self.node = configuration, None
        self.refused.clear()
        if configuration:
            reserving = StaticPolicy.reserving(CPUs(self._topology.cpus), configuration.reserved, DEFAULT)
            self.node = empty_node(
                self._topology, policy=configuration.policy, scope=configuration.scope, reserved=reserving.reserved
            )
        return True

    def admit(self, pod: objects.PodObject) -> bool:
        """Give the pod its CPUs, or remember why not."""
        uid = pod.metadata.uid
        if self.node is None or uid in self.node.cpus.assigned:
            return True
        if uid in self.refused:
            return False
        answer = admit(self.node, of_pod(pod))
        if not answer.admitted:
            self.refused[uid] = answer
            return False
        self.node = answer.node
        return True

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all other pods."""
        present = set(uids)
        self.refused = {uid: answer for uid, answer in self.refused.items() if uid in present}
        if self.node is not None:
            for uid in self.node.cpus.assigned.keys() - present:
                self.node = self.node.without(uid)

    def of(self, uid: str, container: str) -> CPUSet | None:
        """CPU set of a container: its own CPUs, or the shared ones; None under policy none."""
        return (self.node.cpus.of(uid, container) or self.node.cpus.shared) if self.node else None


def _topology(machine: Machine) -> Topology:
    cores = machine.cores()
    cpus = tuple(CPU(each.id, cores[each.id], each.package, each.node, each.l3) for each in machine.cpus)
    nodes = (NUMANode(n.id, CPUSet(cpu.id for cpu in cpus if cpu.node == n.id), n.memory) for n in machine.nodes)
    return Topology(cpus, tuple(nodes))
