"""Pods must have the NUMA nodes and CPUs they were promised.

Kubelet and the scheduler align a pod once, when it starts. A cpuset written by hand, a CPU taken offline, memory that
moved or a changed policy breaks the promise silently; nothing else looks again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from descheduler.framework import (
    Conversation,
    Finding,
    Handle,
    NodeView,
    Note,
    PodView,
    View,
    judgeable,
    stale_placement,
)
from koordlite.formulas.topology import numa
from koordlite.model import duration, keys, nrt
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.settings import bounded, duration_text
from koordlite.model.topology import Topology

NAME = "NUMAAlignment"
POINT = "deschedule"
ORDER = "cycle"

_MIB = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `NUMAAlignment`."""

    remote_memory_ratio: float = bounded(0.10, ge=0, le=1)
    """Part of a container's memory that may lie on other NUMA nodes than promised."""
    remote_memory_mib: int = dataclasses.field(default=64, metadata={"name": "remoteMemoryMiB", "ge": 0})
    """MiB of remote memory that are always tolerated: a few stray pages of libraries are normal."""
    max_report_age: str = duration_text("3m")
    """A node whose agent last reported longer ago than this is not judged, and the report notes it."""
    min_pod_age: str = duration_text("5m")
    """Younger pods are found but kept: what was assigned to them may not have reached the node yet."""
    min_sightings: int = bounded(3, ge=1)
    """Number of pictures in a row that must show a pod so before it is evicted. A plan that is made once, from files or
    by hand, has only one and does not ask for more."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each promise that does not hold; a note for each node that cannot be judged."""
    oldest = duration.seconds(config.max_report_age)
    for node in handle.nodes:
        stale = stale_placement(node, oldest, view)
        if stale:
            yield stale
            continue
        if not node.topology.cpus and any(pod.promised for pod in node.those(NAME, _asks)):
            text = "pods have promises here but the node's CPU topology is not reported: not judged"
            yield Note(node=node.name, reason="TopologyUnknown", text=text)
            continue
        # There is something to say about pods with a promise or a fact, and on nodes whose kubelet tells its policies
        # also about those that ask for a policy.
        tells_policies = node.topology_policy and node.cpu_manager.policy
        for pod in node.those(NAME, _asks):
            if (pod.containers or tells_policies) and judgeable(pod):
                for wrong in _violations(pod, node, config):
                    yield _finding(pod, node, wrong, config)


def numbers(pod: PodView, view: View, _config: Config, _handle: Handle) -> str:
    """Its promises, and the NUMA nodes of its CPUs."""
    node = view.nodes[pod.node]
    if not pod.containers:
        return "nothing was promised to it"
    words = []
    for one in pod.containers:
        on = ", ".join(map(str, sorted(node.topology.numa_of(one.cpuset)))) or "unknown"
        promised = ", ".join(map(str, one.promised_nodes)) or ("one, any" if one.single_numa else "none")
        words.append(f"{one.container}: NUMA nodes promised {promised}, CPUs on {on}")
    return "; ".join(words)


def _asks(pod: PodView) -> bool:
    return not pod.pod.finished and (bool(pod.containers) or keys.VOLCANO_NUMA_POLICY in pod.pod.annotations)


def _violations(pod: PodView, node: NodeView, config: Config) -> Iterator[numa.Violation]:
    rules = numa.Rules(
        topology=node.topology,
        policy=node.topology_policy,
        cpu_manager_policy=node.cpu_manager.policy,
        memory=numa.MemoryThresholds(config.remote_memory_ratio, config.remote_memory_mib * _MIB),
    )
    for container in pod.containers:
        yield from rules.of_container(container) if pod.observed else _broken_promise(container, node)
    yield from rules.of_whole(pod.containers, pod.pod.annotations.get(keys.VOLCANO_NUMA_POLICY, ""))


def _broken_promise(container: ContainerPlacement, node: NodeView) -> Iterator[numa.Violation]:
    """A promise that contradicts itself: one NUMA node was promised, and CPUs or memory of several were given.

    Only a new placement cures this: the agent would write what was given.
    """
    nodes = frozenset(container.promised_nodes) | node.topology.numa_of(container.promised_cpus)
    if container.single_numa and len(nodes) > 1:
        yield numa.Violation(container.container, "CPUSpansNUMA", "hard", {"nodes": numa.node_list(nodes)})


def _finding(pod: PodView, node: NodeView, wrong: numa.Violation, config: Config) -> Finding:
    container = next((c for c in pod.containers if c.container == wrong.container), None)
    return Finding(
        pod=pod.uid,
        reason=wrong.reason,
        severity=wrong.severity,
        container=wrong.container,
        promise=promise(container, wrong),
        fact=fact(container, node.topology, wrong),
        cure=cure(wrong),
        evidence=wrong.evidence,
        weight=_weight(container, node, wrong),
        min_age_seconds=duration.seconds(config.min_pod_age),
        sightings=config.min_sightings,
        home="any" if wrong.reason in _CURED_BY_RESTART else "elsewhere",
    )


_CURED_BY_RESTART = ("CPUOutsideAssignment", "CPUSpansNUMA", "CPUWrongNUMA", "PodSpansNUMA")
"""A new start on the same node gets other CPUs; memory and devices would be the same."""


def _weight(container: ContainerPlacement | None, node: NodeView, wrong: numa.Violation) -> float:
    """CPUs that are misplaced, or the part of memory that is."""
    if "remoteRatio" in wrong.evidence:
        return float(wrong.evidence["remoteRatio"])
    if container is None:
        return 0
    parts = nrt.by_numa_node(node.topology, container.cpuset).values()
    return len(container.cpuset) - max(map(len, parts), default=0)


def promise(container: ContainerPlacement | None, wrong: numa.Violation) -> str:
    """The promise to the container, or to the pod as a whole, and who made it."""
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
    """The fact beside the promise."""
    evidence, where = wrong.evidence, "no CPUs of its own"
    if container is not None and container.cpuset:
        nodes = numa.node_list(topology.numa_of(container.cpuset)) or "unknown"
        where = f"CPUs {container.cpuset} (NUMA {nodes})"
    match wrong.reason:
        case "CPUOutsideAssignment":
            text = f"may run on {where}; {evidence['cpus']} were not promised"
        case "CPUSpansNUMA":
            text = f"is on NUMA {evidence['nodes']}: {where}"
        case "CPUWrongNUMA":
            text = f"runs on {where}"
        case "RemoteMemory":
            mib, part = int(evidence["remoteBytes"]) // _MIB, float(evidence["remoteRatio"])
            text = f"{mib} MiB ({part:.0%}) of its memory is not on NUMA {evidence['nodes']}"
        case "MemsSpanNUMA":
            text = f"may take memory from NUMA {evidence['nodes']} as well"
        case "DeviceRemote":
            text = f"devices {evidence['devices']} are on another NUMA node"
        case "PodSpansNUMA":
            text = f"its containers are on NUMA {evidence['nodes']}"
        case _:
            kubelet, cpus = evidence["topologyManagerPolicy"], evidence["cpuManagerPolicy"]
            text = f"the node runs topology manager {kubelet}, CPU manager {cpus}"
    return text


def cure(wrong: numa.Violation) -> str:
    """The cure."""
    if wrong.severity == "exposed":
        return "nothing went wrong yet: a narrower cpuset.mems would keep it so"
    if wrong.severity == "fixable":
        return "the agent writes the promised cpuset again; nothing has to move"
    if wrong.reason == "PolicyMismatch":
        return "move it to a node whose kubelet runs that policy"
    return "only a new start is aligned again: it has to move, or be restarted"
