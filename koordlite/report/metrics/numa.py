"""NUMA nodes as Prometheus metrics: what each has and uses, who has CPUs of it alone, and which pods are misplaced.

`numa_node_cpus_count` is the name of openFuyao's exporter; the others are ours, or on request those of other exporters.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koordlite.model.cpuset import CPUSet, union
from koordlite.model.picture.usage import NumaCounters
from koordlite.model.pod.qos import QoSClass
from koordlite.model.snapshot import Snapshot, pods_with_groups
from koordlite.model.topology import Topology
from koordlite.report.metrics.families import Sample, counter, gauge
from koordlite.strategies.shared import placements

_NODE = ("node", "numa_node")
_MIB = 2**20


class NumaMetrics(Collector):
    """Reads the counters when it is scraped; all else is of the last snapshot. May be scraped from many threads."""

    def __init__(
        self, read: Callable[[Topology], Sequence[NumaCounters]], topology: Callable[[], Topology], *, node: str
    ) -> None:
        """`topology` gives the machine as long as there is no snapshot; `node` is its name until one has it."""
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._read, self._topology, self._node = read, topology, node
        self.other_names = False
        """Add the names of other exporters."""
        self.snapshot: Snapshot | None = None
        """The last one; None where no cluster is asked."""
        self.registry = CollectorRegistry()
        self.registry.register(self)

    @property
    def node(self) -> str:
        """The name of the node in every series."""
        snapshot = self.snapshot
        return snapshot.node.name if snapshot and snapshot.node else self._node

    def collect(self) -> Iterator[Metric]:
        """All families, `numa_node_cpus_count` first."""
        snapshot = self.snapshot
        topology = snapshot.topology if snapshot else self._topology()
        node = self.node
        counters = self._read(topology)
        yield from _machine(node, topology, counters)
        if snapshot:
            yield from _shares(node, snapshot)
            yield from _containers(node, snapshot)
        if self.other_names:
            yield from _other_names(node, topology, counters, snapshot)


def exclusive_cpus(snapshot: Snapshot | None) -> CPUSet:
    """CPUs that one container has alone: by kubelet, or by a scheduler's annotation for LSE, LSR and Crane's pods."""
    if snapshot is None:
        return CPUSet()
    assigned = (
        p.resource_status.cpuset for p in snapshot.pods if p.active and p.raw_qos in (QoSClass.LSE, QoSClass.LSR)
    )
    return union([*(pinned.cpus for pinned in snapshot.kubelet.pod_cpus), snapshot.crane.owned, *assigned])


def _machine(node: str, topology: Topology, counters: Sequence[NumaCounters]) -> Iterator[Metric]:
    yield gauge("numa_node_cpus_count", "Logical CPUs of a NUMA node", _NODE, _counted(node, topology, topology.cpuset))
    for name, meaning, field, family in (
        ("cpu_used_seconds", "CPU time used on a NUMA node since boot", "used_seconds", counter),
        ("cpu_idle_seconds", "CPU time not used on a NUMA node since boot", "idle_seconds", counter),
        ("memory_total_bytes", "Memory of a NUMA node", "memory_total", gauge),
        ("memory_used_bytes", "Memory in use on a NUMA node, without page cache", "memory_used", gauge),
        ("memory_free_bytes", "Memory not in use on a NUMA node, page cache included", "memory_free", gauge),
    ):
        values = [((node, str(each.node)), getattr(each, field)) for each in counters]
        yield family(f"numa_node_{name}", meaning, _NODE, [sample for sample in values if sample[1] is not None])
    distances = (((node, str(each.id), str(to)), far) for each in topology.nodes for to, far in each.distances)
    meaning = "Distance of NUMA nodes as firmware tells it, 10 within one"
    yield gauge("numa_node_distance", meaning, ("node", "from", "to"), distances)


def _shares(node: str, snapshot: Snapshot) -> Iterator[Metric]:
    """CPUs kept by the Node's annotation and by kubelet's static policy, those for pods without any of their own, and
    those that containers have alone. Kubelet's reserved CPUs are shared unless the Node reserves them."""
    exclusive, reserved = exclusive_cpus(snapshot), snapshot.reserved.cpus
    shared = snapshot.topology.cpuset - exclusive - reserved
    for name, meaning, cpus in (
        ("reserved", "kept for the system", reserved | snapshot.kubelet.reserved_cpus),
        ("shared_pool", "for pods without own CPUs", shared),
        ("exclusive", "that one container has alone", exclusive),
    ):
        samples = _counted(node, snapshot.topology, cpus)
        yield gauge(f"numa_node_{name}_cpus_count", f"CPUs of a NUMA node {meaning}", _NODE, samples)


def _counted(node: str, topology: Topology, cpus: CPUSet) -> Iterator[Sample]:
    for each in topology.nodes:
        yield (node, str(each.id)), len(each.cpus & cpus)


def _containers(node: str, snapshot: Snapshot) -> Iterator[Metric]:
    cpus: list[Sample] = []
    memory: list[Sample] = []
    for pod, place in pods_with_groups(snapshot):
        for name, group in place.containers.items() if pod.active else ():
            labels = (node, pod.namespace, pod.name, name)
            cgroup, used = snapshot.cgroups.get(group), snapshot.memory_places.get(group)
            if cgroup is not None and cgroup.effective is not None:
                cpus += [((*labels, str(at.id)), len(at.cpus & cgroup.effective)) for at in snapshot.topology.nodes]
            memory += [((*labels, str(at)), amount) for at, amount in used.used.items()] if used else []
    names = ("node", "namespace", "pod", "container", "numa_node")
    yield gauge("numa_container_cpus_count", "CPUs of a NUMA node that a container may use", names, cpus)
    meaning = "Memory of a NUMA node that a container with a promised placement has"
    yield gauge("numa_container_memory_bytes", meaning, names, memory)
    violations = collections.Counter(
        (node, pod.namespace, pod.name, violation.reason) for pod, violation in placements.violations(snapshot)
    )
    meaning, of_pod = "Promises about a pod's placement that do not hold", ("node", "namespace", "pod", "code")
    yield gauge("numa_pod_violation", meaning, of_pod, violations.items())


def _other_names(
    node: str, topology: Topology, counters: Sequence[NumaCounters], snapshot: Snapshot | None
) -> Iterator[Metric]:
    """The names of other exporters, which write a NUMA node as `node00`; devices only with a picture that has them."""
    exclusive = exclusive_cpus(snapshot)
    cpus = [(each.id, len(each.cpus), len(each.cpus & exclusive)) for each in topology.nodes]
    yield gauge("numainfo_node_count", "NUMA nodes", ("node",), [((node,), len(cpus))])
    cores = [
        ((node, f"node{at:02d}", kind), count)
        for at, every, own in cpus
        for kind, count in (("capacity", every), ("allocation", own))
    ]
    yield gauge("numainfo_core_count", "CPUs of a NUMA node", ("node", "numanode", "type"), cores)
    devices = list(_devices(node, snapshot)) if snapshot else []
    labels = ("node", "numanode", "type", "resource")
    yield gauge("numainfo_pcidevice_count", "Devices of a NUMA node", labels, devices)
    alone = "CPUs one container has alone"
    yield gauge("numa_cpu_used", alone, ("numa",), [((str(at),), own) for at, _, own in cpus])
    free = [((str(at),), every - own) for at, every, own in cpus]
    yield gauge("numa_cpu_free", "CPUs that no container has alone", ("numa",), free)
    pages = [
        ((f"{size // _MIB}Mi" if size >= _MIB else f"{size // 1024}Ki", str(each.node)), used)
        for each in counters
        for size, used in each.huge_pages_used.items()
    ]
    yield gauge("numa_hugepages_used", "Huge pages in use", ("hugepage_size", "numa"), pages)
    for name, meaning, values in (
        ("cpu_capacity", "CPUs of a NUMA node", [(at, every) for at, every, _ in cpus]),
        ("cpu_used", alone, [(at, own) for at, _, own in cpus]),
        ("memory_capacity_bytes", "Memory of a NUMA node", [(each.node, each.memory_total) for each in counters]),
        ("memory_used_bytes", "Memory in use on a NUMA node", [(each.node, each.memory_used) for each in counters]),
    ):
        samples = [((node, str(at)), value) for at, value in values if value is not None]
        yield gauge(f"node_numatopology_{name}", meaning, _NODE, samples)


def _devices(node: str, snapshot: Snapshot) -> Iterator[Sample]:
    """Devices of kubelet's plugins by NUMA node: all, and those that containers have."""
    resources = snapshot.kubelet.resources
    if resources is None:
        return
    assigned = [devices for pod in resources.pods for each in pod.containers.values() for devices in each.devices]
    for kind, listed in (("capacity", resources.allocatable.devices), ("allocation", assigned)):
        ids: dict[tuple[str, int], set[str]] = {}
        for devices in listed:
            for at in devices.nodes:
                ids.setdefault((devices.resource, at), set()).update(devices.ids)
        for (resource, at), names in sorted(ids.items()):
            yield (node, f"node{at:02d}", kind, resource), len(names)
