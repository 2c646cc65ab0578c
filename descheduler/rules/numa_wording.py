"""NUMA violations in words for the report: what was promised, what is the case, what cures it."""

from __future__ import annotations

from koordlite.formulas.topology import numa
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.topology import Topology

_MIB = 2**20


def promise(container: ContainerPlacement | None, wrong: numa.Violation) -> str:
    """What was promised to the container, or to the pod as a whole, and by whom."""
    if wrong.reason == "PolicyMismatch":
        return f"kubelet's policy {wrong.evidence['pod']}, by annotation"
    if container is None:
        return "one NUMA node for the whole pod, by kubelet"
    parts = ["one NUMA node"] if container.single_numa else []
    if container.promised_cpus:
        parts.append(f"CPUs {container.promised_cpus}")
    if container.promised_nodes:
        parts.append(f"NUMA {numa.node_list(container.promised_nodes)}")
    return f"{', '.join(parts) or 'CPUs of its own'}, by {container.source}"


def fact(container: ContainerPlacement | None, topology: Topology, wrong: numa.Violation) -> str:
    """What is the case instead."""
    evidence, where = wrong.evidence, _where(container, topology)
    match wrong.reason:
        case "CPUOutsideAssignment":
            said = f"may run on {where}; {evidence['cpus']} were not promised"
        case "CPUSpansNUMA":
            said = f"is on NUMA {evidence['nodes']}: {where}"
        case "CPUWrongNUMA":
            said = f"runs on {where}"
        case "RemoteMemory":
            mib, part = int(evidence["remoteBytes"]) // _MIB, float(evidence["remoteRatio"])
            said = f"{mib} MiB ({part:.0%}) of its memory is not on NUMA {evidence['nodes']}"
        case "MemsSpanNUMA":
            said = f"may take memory from NUMA {evidence['nodes']} as well"
        case "DeviceRemote":
            said = f"devices {evidence['devices']} are on another NUMA node"
        case "PodSpansNUMA":
            said = f"its containers are on NUMA {evidence['nodes']}"
        case _:
            kubelet, cpus = evidence["topologyManagerPolicy"], evidence["cpuManagerPolicy"]
            said = f"the node runs topology manager {kubelet}, CPU manager {cpus}"
    return said


def cure(wrong: numa.Violation) -> str:
    """What would put it right."""
    if wrong.severity == "exposed":
        return "nothing went wrong yet: a narrower cpuset.mems would keep it so"
    if wrong.severity == "fixable":
        return "the agent writes the promised cpuset again; nothing has to move"
    if wrong.reason == "PolicyMismatch":
        return "move it to a node whose kubelet runs that policy"
    return "only a new start is aligned again: it has to move, or be restarted"


def _where(container: ContainerPlacement | None, topology: Topology) -> str:
    if container is None or not container.cpuset:
        return "no CPUs of its own"
    nodes = numa.node_list(topology.numa_of(container.cpuset)) or "unknown"
    return f"CPUs {container.cpuset} (NUMA {nodes})"
