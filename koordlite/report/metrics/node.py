"""The node as Prometheus metrics beyond numbers of the last tick: means, predictions, NUMA nodes, host applications,
single CPUs, the terms behind batch-cpu and batch-memory, waiting, percentiles, use of caches and memory bandwidth.

Names and labels under `koordlet_` are Koordinator's (`pkg/koordlet/metrics`: node_metric, host_application,
cpuset_share_pool, resctrl). Its bandwidth is the bare counter; a gauge of bytes per second is what its dashboards draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable, prediction
from koordlite.model import cpuset, keys
from koordlite.model.picture.usage import Use
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.snapshot import Snapshot, has_node
from koordlite.report import node_figures
from koordlite.report.metrics.families import Sample, counter, gauge
from koordlite.report.node_figures import OwnedUse
from koordlite.report.tick import Tick

_USE = ("resource", "unit")
_NUMA_USE = ("numa_node_id", "resource", "unit")
_HOST = ("host_application_name", "resource", "priority_class", "qos")
_STALLED = ("subject", "resource", "degree")
_OF_CLASS, _OF_POD = ("cache_id", "qos"), ("cache_id", "pod_namespace", "pod_name")
_WINDOWS = (("10", "avg10"), ("60", "avg60"), ("300", "avg300"))
_OFFERED = {
    keys.BATCH_CPU: (1000, "core"),
    keys.BATCH_MEMORY: (1, "byte"),
    keys.MID_CPU: (1000, "core"),
    keys.MID_MEMORY: (1, "byte"),
}


def families(tick: Tick, *, per_cpu: bool) -> Iterator[Metric]:
    """All families; no series for what is not known yet, or the kernel does not report. `per_cpu`: also a series for
    each CPU of the two pools, which are many."""
    snapshot = tick.snapshot
    meaning = "What pods may request"
    yield gauge("koordlet_node_resource_allocatable", meaning, _USE, _offered(tick))
    yield batch_terms(tick)
    yield from _usage(snapshot)
    yield from _predicted(snapshot)
    pools = {"cpuset_share_pool": tick.ls_pool, "cpuset_be_share_pool": tick.be_pool} if per_cpu else {}
    for name, cpus in pools.items():
        samples = (([str(cpu)], 1.0) for cpu in pool(cpus) or ())
        yield gauge(f"koordlet_{name}_info", "The CPUs of the pool", ("cpu",), samples)
    yield from cache_use(tick.cache_use)
    yield from _pressure(tick)
    memory = (
        ([subject, str(zone)], used) for subject, by_zone in tick.numa_memory.items() for zone, used in by_zone.items()
    )
    meaning = "Memory in use on a NUMA node"
    yield gauge("koordlite_numa_memory_used_bytes", meaning, ("subject", "numa_node"), memory)
    # Over the averaging time of the ConfigMap (`metricAggregateDurationSeconds`).
    meaning, uses = "use that this percentage of samples does not exceed", snapshot.node_percentiles.items()
    cores = (([str(percent)], use.cpu / 1000) for percent, use in uses)
    yield gauge("koordlite_node_used_cpu_cores_percentile", f"CPU {meaning}", ("percent",), cores)
    sizes = (([str(percent)], use.memory) for percent, use in uses)
    yield gauge("koordlite_node_used_memory_bytes_percentile", f"Memory {meaning}", ("percent",), sizes)


def pool(text: str) -> cpuset.CPUSet | None:
    """CPUs of a pool; None where another writer broke the annotation."""
    try:
        return cpuset.CPUSet.parse(text)
    except ValueError:
        return None


def _offered(tick: Tick) -> Iterator[Sample]:
    """Batch as it is after the tick, mid as the Node holds it. Koordinator gives CPU in cores, memory in bytes."""
    now = {keys.BATCH_CPU: tick.figures.batch_cpu, keys.BATCH_MEMORY: tick.figures.batch_memory}
    amounts = {**tick.snapshot.published.node_resources, **now}
    for resource, (scale, unit) in _OFFERED.items():
        amount = amounts.get(resource)
        if amount is not None:
            yield [resource, unit], amount / scale


def _usage(snapshot: Snapshot) -> Iterator[Metric]:
    average = snapshot.average
    if average.node is not None:
        system = allocatable.system_use(
            node=average.node, pods=average.pods.values(), host_apps=average.host_apps.values()
        )
        yield gauge("koordlet_node_metric_node_usage", "Mean use of the node", _USE, _use(average.node))
        yield gauge("koordlet_node_metric_system_usage", "Mean use beside pods", _USE, _use(system))
        # As in a NodeMetric, the CPU of the system is divided as all use is.
        shares = measured.system_cpu_by_numa(system.cpu, {at: each.node.cpu for at, each in snapshot.numa_use.items()})
        samples = (
            sample
            for at, each in snapshot.numa_use.items()
            if each.system_memory is not None
            for sample in _use(Use(shares[at], each.system_memory), str(at))
        )
        meaning = "Mean use beside pods on a NUMA node"
        yield gauge("koordlet_node_metric_numa_system_usage", meaning, _NUMA_USE, samples)
    by_numa = [sample for at, each in snapshot.numa_use.items() for sample in _use(each.node, str(at))]
    if not by_numa:
        by_numa = [([str(at), "memory", "byte"], used) for at, used in snapshot.numa_memory.get("", {}).items()]
    meaning = "Use of a NUMA node: mean, as in a NodeMetric, or memory at this moment"
    yield gauge("koordlet_node_metric_numa_node_usage", meaning, _NUMA_USE, by_numa)
    hosts = (
        ([app.name, resource, str(app.priority), str(app.qos)], amount)
        for app in snapshot.slo.host_applications
        if (use := snapshot.usage.host_apps.get(app.name)) is not None
        for resource, amount in (("cpu", use.cpu / 1000), ("memory", use.memory))
    )
    meaning = "Use of a process group outside Kubernetes: cores, bytes"
    yield gauge("koordlet_host_application_resource_usage", meaning, _HOST, hosts)


def _predicted(snapshot: Snapshot) -> Iterator[Metric]:
    """Requests of prod pods that they are not expected to use; without series while nothing is predicted."""
    forecast, prod = None, str(PriorityClass.PROD)
    if has_node(snapshot):
        offered = allocatable.amounts(snapshot.notes.kubelet_allocatable(snapshot.node))
        forecast = prediction.reclaimable(prediction=snapshot.prediction, pods=snapshot.pods, offered=offered)
    spare: list[Sample] = []
    peaks: list[Sample] = []
    of_prod: list[Sample] = []
    if forecast:
        for name, each in ((prediction.POD, forecast.by_pod), (prediction.PRIORITY, forecast.by_priority)):
            spare += _use(each.reclaimable, name)
            peaks += _use(each.peak, name)
        spare += _use(forecast.least, prediction.LEAST)
        peaks += _use(forecast.peak, prediction.LEAST)
        of_prod += _use(forecast.least, prod)
    meaning, labels = "What prod pods requested and are not expected to use: cores, bytes", ("predictor", *_USE)
    yield gauge("koordlet_node_predicted_resource_reclaimable", meaning, labels, spare)
    meaning = "What prod pods and the system are expected to need: cores, bytes"
    yield gauge("koordlet_node_predicted_resource_peak", meaning, labels, peaks)
    meaning = "What pods of a priority requested and can be offered again: cores, bytes"
    yield gauge("koordlet_node_priority_resource_reclaimable", meaning, ("priority", *_USE), of_prod)
    cold = [] if snapshot.prediction is None else [([prod], float(forecast is None))]
    meaning = "1 while too little is known to predict, else 0"
    yield gauge("koordlet_node_resource_priority_reclaimable_status", meaning, ("priority",), cold)


def _use(use: Use, *whose: str) -> Iterator[Sample]:
    yield [*whose, "cpu", "core"], use.cpu / 1000
    yield [*whose, "memory", "byte"], use.memory


def _pressure(tick: Tick) -> Iterator[Metric]:
    """Each line of a pressure file; the kernel has no `full` of CPU for the machine."""
    stalls = [
        ([subject, resource, degree], stall)
        for subject, resources in tick.pressure.items()
        for resource, each in resources.items()
        for degree, stall in (("some", each.some), ("full", each.full))
        if stall is not None
    ]
    meaning = "Part of the last 10, 60 or 300 seconds that work waited for a resource"
    shares = (
        ([*labels, seconds], getattr(stall, field) / 100) for labels, stall in stalls for seconds, field in _WINDOWS
    )
    yield gauge("koordlite_pressure_ratio", meaning, (*_STALLED, "seconds"), shares)
    waited = ((labels, stall.total_us / 1e6) for labels, stall in stalls)
    yield counter("koordlite_pressure_seconds", "Time that work has waited for a resource", _STALLED, waited)


def cache_use(rows: Sequence[OwnedUse]) -> Iterator[Metric]:
    """Four gauges: two of classes, two of pods. A value the hardware could not give has no series."""
    classes = [([str(row.cache), row.qos], row.use) for row in rows if not row.pod]
    pods = [([str(row.cache), row.namespace, row.pod], row.use) for row in rows if row.pod]
    for occupancy, bandwidth, whose, labels, owned in (
        ("koordlet_resctrl_llc_occupancy", "koordlet_resctrl_memory_bandwidth", "a class", _OF_CLASS, classes),
        ("koordlite_resctrl_pod_llc_occupancy_bytes", "koordlite_resctrl_pod_memory_bandwidth", "a pod", _OF_POD, pods),
    ):
        sizes = ((owner, size) for owner, use in owned if (size := use.occupancy_bytes) is not None)
        yield gauge(occupancy, f"Bytes of the last cache {whose} holds", labels, sizes)
        rates = (([*owner, word], rate) for owner, use in owned for word, rate in node_figures.bandwidths(use))
        yield gauge(bandwidth, f"Bytes per second {whose} moves", (*labels, "mb_type"), rates)


BATCH_TERMS = ("capacity", "margin", "system", "hp", "result")
"""Terms of docs/formulas.md, "BE allocatable": by use, the result is capacity − margin − system − hp."""
_MILLI_PER_CORE = 1000
_BATCH_SUBJECTS = {f"node/{keys.BATCH_CPU}": _MILLI_PER_CORE, f"node/{keys.BATCH_MEMORY}": 1}


def batch_terms(tick: Tick) -> Metric:
    """CPU in cores, memory in bytes; no series while nothing is worked out."""
    samples = (
        ([decision.name, name], value / divisor)
        for decision in tick.decisions
        if decision.reason == "BatchAllocatable" and (divisor := _BATCH_SUBJECTS.get(decision.subject))
        for name in BATCH_TERMS
        if isinstance(value := decision.evidence.get(name), int | float)
    )
    meaning = "A term of what best-effort pods may request"
    return gauge("koordlite_batch_allocatable_term", meaning, ("resource", "term"), samples)
