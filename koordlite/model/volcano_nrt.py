"""Volcano's Numatopology in the words of a NodeResourceTopology, for those who read one of each node."""

from __future__ import annotations

from koordlite.model import keys, nrt
from koordlite.model.cpuset import CPUSet, union
from koordlite.model.errors import InputError, Problem
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import numatopology
from koordlite.model.wire.numatopology import NumatopologyObject, PodAllocation
from koordlite.model.wire.objects import NRTObject, ObjectMeta


def to_nrt(found: NumatopologyObject) -> NRTObject:
    """Its CPUs, policies and assignments as annotations and attributes.

    There are no zones: one that listed CPUs alone would say that the node has no memory. InputError when a number or a
    list of CPUs cannot be read.
    """
    spec = found.spec
    policies = spec.policies or {}
    try:
        policy = nrt.CPUManagerPolicy(policy=policies.get(numatopology.CPU_POLICY, ""))
        annotations = {
            keys.CPU_TOPOLOGY: nrt.encode_cpu_topology(_topology(found)),
            keys.CPU_MANAGER_POLICY: nrt.encode_cpu_manager_policy(policy),
            keys.POD_CPU_ALLOCS: nrt.encode_pod_cpu_allocs(map(_assigned, spec.pod_allocations or ())),
        }
    except ValueError as error:
        do = "Volcano's resource-exporter or this agent writes it; the node counts as one without it"
        problem = Problem(f"numatopology/{found.metadata.name}", "spec", "", str(error), do)
        raise InputError(problem) from error
    manager = policies.get(numatopology.TOPOLOGY_POLICY)
    return NRTObject(
        metadata=ObjectMeta(name=found.metadata.name, annotations=annotations),
        attributes=({"name": "topologyManagerPolicy", "value": manager},) if manager else None,
    )


def _topology(found: NumatopologyObject) -> Topology:
    detail = (found.spec.cpu_detail or {}).items()
    read = (CPU(int(number), at.core, at.socket, at.numa) for number, at in detail)
    cpus = tuple(sorted(read, key=lambda cpu: cpu.id))
    nodes = sorted({cpu.node for cpu in cpus})
    return Topology(cpus, tuple(NUMANode(n, CPUSet(cpu.id for cpu in cpus if cpu.node == n), 0) for n in nodes))


def _assigned(pod: PodAllocation) -> nrt.PodCPUAlloc:
    texts = ((container.allocations or {}).get("cpu", "") for container in pod.container_allocations or ())
    return nrt.PodCPUAlloc(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        cpuset=union(CPUSet.parse(text) for text in texts),
        managed_by_kubelet=True,
    )
