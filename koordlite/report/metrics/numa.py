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
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import NUMANode, Topology
from koordlite.report.metrics.families import Sample, counter, gauge
from koordlite.strategies.shared import placements

_NODE = ("node", "numa_node")


class NumaMetrics(Collector):
    """Reads the counters when it is scraped; all else is of the last picture. May be scraped from many threads."""

    def __init__(
        self, read: Callable[[Topology], Sequence[NumaCounters]], topology: Callable[[], Topology], *, node: str
    ) -> None:
        """`topology` gives the machine as long as there is no picture; `node` is its name until a picture has one."""
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._read, self._topology, self._node = read, topology, node
        self.other_names = False
        """Add the names of other exporters."""
        self.picture: Snapshot | None = None
        """The last one; None where no cluster is asked."""
        self.registry = CollectorRegistry()
        self.registry.register(self)

    @property
    def node(self) -> str:
        """The name of the node in every series."""
        snapshot = self.picture
        return snapshot.node.name if snapshot and snapshot.node else self._node

    def collect(self) -> Iterator[Metric]:
        """All families, `numa_node_cpus_count` first."""
        snapshot = self.picture
        topology = snapshot.topology if snapshot else self._topology()
        node = self.node
        counters = self._read(topology)
        yield from _machine(node, topology, counters)
        if snapshot:
            yield from _shares(node, snapshot)
            yield from _containers(node, snapshot)
            yield _violations(node, snapshot)
        if self.other_names:
            yield from families(node, topology, counters, exclusive=exclusive_cpus(snapshot), snapshot=snapshot)


def exclusive_cpus(snapshot: Snapshot | None) -> CPUSet:
    """CPUs that one container has alone: by kubelet, or by a scheduler's annotation for LSE, LSR and Crane's pods."""
    if snapshot is None:
        return CPUSet()
    assigned = (
        p.resource_status.cpuset for p in snapshot.pods if p.active and p.qos_class in (QoSClass.LSE, QoSClass.LSR)
    )
    return union([*(held.cpus for held in snapshot.kubelet.pod_cpus), snapshot.crane.owned, *assigned])


def reserved_cpus(snapshot: Snapshot) -> CPUSet:
    """CPUs kept by the Node's annotation and by kubelet's static policy."""
    return snapshot.reserved.cpus | snapshot.kubelet.reserved_cpus


def shared_cpus(snapshot: Snapshot) -> CPUSet:
    """CPUs for pods without any of their own. Kubelet's reserved CPUs are among them unless the Node reserves them."""
    return snapshot.topology.cpuset - exclusive_cpus(snapshot) - snapshot.reserved.cpus


def _machine(node: str, topology: Topology, counters: Sequence[NumaCounters]) -> Iterator[Metric]:
    yield gauge(
        "numa_node_cpus_count", "Logical CPUs of a NUMA node", _NODE, _counted(node, topology.nodes, topology.cpuset)
    )
    for name, meaning, field in (
        ("numa_node_cpu_used_seconds", "CPU time used on a NUMA node since boot", "used_seconds"),
        ("numa_node_cpu_idle_seconds", "CPU time not used on a NUMA node since boot", "idle_seconds"),
    ):
        yield counter(name, meaning, _NODE, _read_out(node, counters, field))
    for name, meaning, field in (
        ("numa_node_memory_total_bytes", "Memory of a NUMA node", "memory_total"),
        ("numa_node_memory_used_bytes", "Memory in use on a NUMA node, without page cache", "memory_used"),
        ("numa_node_memory_free_bytes", "Memory not in use on a NUMA node, page cache included", "memory_free"),
    ):
        yield gauge(name, meaning, _NODE, _read_out(node, counters, field))
    distances = (((node, str(each.id), str(to)), far) for each in topology.nodes for to, far in each.distances)
    yield gauge(
        "numa_node_distance",
        "Distance of NUMA nodes as firmware tells it, 10 within one",
        ("node", "from", "to"),
        distances,
    )


def _read_out(node: str, counters: Sequence[NumaCounters], field: str) -> Iterator[Sample]:
    for each in counters:
        value = getattr(each, field)
        if value is not None:
            yield (node, str(each.node)), value


def _shares(node: str, snapshot: Snapshot) -> Iterator[Metric]:
    for name, meaning, cpus in (
        ("numa_node_reserved_cpus_count", "CPUs of a NUMA node kept for the system", reserved_cpus(snapshot)),
        ("numa_node_shared_pool_cpus_count", "CPUs of a NUMA node for pods without own CPUs", shared_cpus(snapshot)),
        (
            "numa_node_exclusive_cpus_count",
            "CPUs of a NUMA node that one container has alone",
            exclusive_cpus(snapshot),
        ),
    ):
        yield gauge(name, meaning, _NODE, _counted(node, snapshot.topology.nodes, cpus))


def _counted(node: str, nodes: Sequence[NUMANode], cpus: CPUSet) -> Iterator[Sample]:
    for each in nodes:
        yield (node, str(each.id)), len(each.cpus & cpus)


def _containers(node: str, snapshot: Snapshot) -> Iterator[Metric]:
    cpus: list[Sample] = []
    memory: list[Sample] = []
    for pod in snapshot.pods:
        place = snapshot.places.get(pod.uid) if pod.active else None
        for name, group in place.containers.items() if place else ():
            labels = (node, pod.namespace, pod.name, name)
            cgroup, held = snapshot.cgroups.get(group), snapshot.memory_places.get(group)
            if cgroup is not None and cgroup.effective is not None:
                cpus += [((*labels, str(at.id)), len(at.cpus & cgroup.effective)) for at in snapshot.topology.nodes]
            memory += [((*labels, str(at)), used) for at, used in held.used.items()] if held else []
    names = ("node", "namespace", "pod", "container", "numa_node")
    yield gauge("numa_container_cpus_count", "CPUs of a NUMA node that a container may use", names, cpus)
    meaning = "Memory of a NUMA node that a container with a promised placement has"
    yield gauge("numa_container_memory_bytes", meaning, names, memory)


def _violations(node: str, snapshot: Snapshot) -> Metric:
    found = collections.Counter(
        (node, pod.namespace, pod.name, wrong.reason) for pod, wrong in placements.violations(snapshot)
    )
    names = ("node", "namespace", "pod", "code")
    return gauge("numa_pod_violation", "Promises about a pod's placement that do not hold", names, found.items())


_MIB = 2**20


def families(
    node: str, topology: Topology, counters: Sequence[NumaCounters], *, exclusive: CPUSet, snapshot: Snapshot | None
) -> Iterator[Metric]:
    """All of them; devices only with a picture that has them."""
    has = [(each.id, len(each.cpus), len(each.cpus & exclusive)) for each in topology.nodes]
    yield gauge("numainfo_node_count", "NUMA nodes", ("node",), [((node,), len(has))])
    cores = [((node, _padded(at), kind), n) for at, all_, own in has for kind, n in _both(all_, own)]
    yield gauge("numainfo_core_count", "CPUs of a NUMA node", ("node", "numanode", "type"), cores)
    devices = list(_devices(node, snapshot)) if snapshot else []
    labels = ("node", "numanode", "type", "resource")
    yield gauge("numainfo_pcidevice_count", "Devices of a NUMA node", labels, devices)
    yield gauge("numa_cpu_used", "CPUs one container has alone", ("numa",), [((str(at),), own) for at, _, own in has])
    free = [((str(at),), all_ - own) for at, all_, own in has]
    yield gauge("numa_cpu_free", "CPUs that no container has alone", ("numa",), free)
    pages = [
        ((f"{size // _MIB}Mi" if size >= _MIB else f"{size // 1024}Ki", str(each.node)), used)
        for each in counters
        for size, used in each.huge_pages_used.items()
    ]
    yield gauge("numa_hugepages_used", "Huge pages in use", ("hugepage_size", "numa"), pages)
    yield from _proposed(node, has, counters)


def _proposed(node: str, has: Sequence[tuple[int, int, int]], counters: Sequence[NumaCounters]) -> Iterator[Metric]:
    labels = ("node", "numa_node")
    for name, meaning, samples in (
        ("cpu_capacity", "CPUs of a NUMA node", [(at, all_) for at, all_, _ in has]),
        ("cpu_used", "CPUs one container has alone", [(at, own) for at, _, own in has]),
        ("memory_capacity_bytes", "Memory of a NUMA node", [(each.node, each.memory_total) for each in counters]),
        ("memory_used_bytes", "Memory in use on a NUMA node", [(each.node, each.memory_used) for each in counters]),
    ):
        known = [((node, str(at)), value) for at, value in samples if value is not None]
        yield gauge(f"node_numatopology_{name}", meaning, labels, known)


def _devices(node: str, snapshot: Snapshot) -> Iterator[Sample]:
    """Devices of kubelet's plugins by NUMA node: all, and those that containers have."""
    resources = snapshot.kubelet.resources
    if resources is None:
        return
    held = [devices for pod in resources.pods for given in pod.containers.values() for devices in given.devices]
    for kind, found in (("capacity", resources.allocatable.devices), ("allocation", tuple(held))):
        ids: dict[tuple[str, int], set[str]] = {}
        for devices in found:
            for at in devices.nodes:
                ids.setdefault((devices.resource, at), set()).update(devices.ids)
        for (resource, at), names in sorted(ids.items()):
            yield (node, _padded(at), kind, resource), len(names)


def _both(capacity: int, allocation: int) -> tuple[tuple[str, int], ...]:
    return (("capacity", capacity), ("allocation", allocation))


def _padded(node: int) -> str:
    """`node00`, as numainfo_exporter writes it."""
    return f"node{node:02d}"
