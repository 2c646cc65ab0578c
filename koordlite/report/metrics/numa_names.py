"""The same numbers under the names of other NUMA exporters, for dashboards that ask for them.

openEuler's numainfo_exporter, Canonical's numa exporter, and the names once proposed for node_exporter. Allocated CPUs
are those that one container has alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.usage import NumaCounters
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import Topology
from koordlite.report.metrics.families import Sample, gauge

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
