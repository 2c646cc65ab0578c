"""Who keeps which CPUs, and what was promised to pods that the agent has not (or not yet) reported on."""

from __future__ import annotations

from descheduler.framework import NodeView, ReservedCPUs
from descheduler.snapshot.report import Report
from koordlite.formulas import reservation
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.node import Reservation, SystemQoS
from koordlite.model.nrt import ContainerPlacement, PodCPUAlloc
from koordlite.model.pod import Pod

_NUMA_POLICY_LABEL = "node.koordinator.sh/numa-topology-policy"


def reserved_cpus(
    told: Report, written: Reservation | None, system: SystemQoS | None, *, unreadable: bool = False
) -> ReservedCPUs:
    """CPUs kept on a node. The agent's resolved list counts before the list on the node; a bare quantity names no CPU.

    Source of the order: Koordinator publishes the resolved list on the NodeResourceTopology for its scheduler.
    """
    cpus, source = _reservation(told.reservation, written, unreadable)
    return ReservedCPUs(
        koordinator=cpus,
        source=source,
        kubelet=told.cpu_manager.reserved_cpus,
        strict=told.cpu_manager.options.get("strict-cpu-reservation") == "true",
        system=system.cpuset if system and system.exclusive else EMPTY,
    )


def _reservation(
    resolved: Reservation | None, written: Reservation | None, unreadable: bool
) -> tuple[CPUSet | None, str]:
    if resolved and resolved.reserved_cpus is not None:
        return resolved.reserved_cpus, "report"
    if written and written.reserved_cpus is not None:
        return written.reserved_cpus, "annotation"
    if unreadable:
        return None, "unreadable"
    return (None, "quantity") if reservation.cpu_count(written) else (EMPTY, "none")


def as_promised(pod: Pod, home: NodeView, alloc: PodCPUAlloc | None) -> tuple[ContainerPlacement, ...]:
    """One record for the whole pod from what the scheduler or kubelet promised, taken as the fact for want of better.

    Koordinator's promise counts before kubelet's, as in `calGuaranteedCpu`: kubelet does not pin what it manages.
    """
    status = pod.resource_status
    if status.cpuset or status.numa_nodes:
        single = numa_policy(pod, home) == "SingleNUMANode"
        return (_record(pod, "koordinator", status.cpuset, nodes=status.numa_nodes, single=single, scope="pod"),)
    if alloc and alloc.cpuset:
        single = home.topology_policy == "single-numa-node"
        return (_record(pod, "kubelet", alloc.cpuset, nodes=(), single=single, scope=home.topology_scope),)
    return ()


def numa_policy(pod: Pod, home: NodeView) -> str:
    """Koordinator's word for how the pod is to be aligned: the pod's own wish, else the node's; empty for neither."""
    return pod.numa_policy or node_numa_policy(home)


def node_numa_policy(home: NodeView) -> str:
    """The node's policy in Koordinator's word: its label, else what kubelet reports for whole pods."""
    labelled = home.node.labels.get(_NUMA_POLICY_LABEL, "")
    reported = home.topology_policy == "single-numa-node" and home.topology_scope == "pod"
    return labelled or ("SingleNUMANode" if reported else "")


def _record(
    pod: Pod, source: str, cpus: CPUSet, *, nodes: tuple[int, ...], single: bool, scope: str
) -> ContainerPlacement:
    return ContainerPlacement(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        container="*",
        source=source,
        exclusive=bool(cpus),
        single_numa=single,
        scope=scope,
        promised_cpus=cpus,
        promised_nodes=nodes,
        cpuset=cpus,
    )
