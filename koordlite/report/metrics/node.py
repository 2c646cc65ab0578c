"""The node as Prometheus metrics beyond the last tick's numbers: means, NUMA nodes, host applications, single CPUs,
and the terms behind batch-cpu and batch-memory.

Names and labels are Koordinator's (`pkg/koordlet/metrics`: node_metric, host_application, cpuset_share_pool).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable, prediction
from koordlite.formulas.allocatable.prediction import Reclaimable
from koordlite.model import cpuset, keys
from koordlite.model.picture.usage import Use
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.snapshot import Snapshot, has_node
from koordlite.report.metrics.families import Sample, gauge
from koordlite.report.tick import Tick

_USE = ("resource", "unit")
_NUMA_USE = ("numa_node_id", "resource", "unit")
_HOST = ("host_application_name", "resource", "priority_class", "qos")
_PREDICTOR = ("predictor", "resource", "unit")
_PRIORITY = ("priority", "resource", "unit")
_OFFERED = {
    keys.BATCH_CPU: (1000, "core"),
    keys.BATCH_MEMORY: (1, "byte"),
    keys.MID_CPU: (1000, "core"),
    keys.MID_MEMORY: (1, "byte"),
}


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """All families; no series for what is not known yet."""
    average = snapshot.average
    if average.node is not None:
        rest = allocatable.system_use(
            node=average.node, pods=average.pods.values(), host_apps=average.host_apps.values()
        )
        yield gauge("koordlet_node_metric_node_usage", "Mean use of the node", _USE, _use(average.node))
        yield gauge("koordlet_node_metric_system_usage", "Mean use beside pods", _USE, _use(rest))
        system = _system_by_numa(snapshot, rest.cpu)
        yield gauge("koordlet_node_metric_numa_system_usage", "Mean use beside pods on a NUMA node", _NUMA_USE, system)
    meaning = "Use of a NUMA node: mean, as in a NodeMetric, or memory at this moment"
    yield gauge("koordlet_node_metric_numa_node_usage", meaning, _NUMA_USE, _by_numa(snapshot))
    meaning = "Use of a process group outside Kubernetes: cores, bytes"
    yield gauge("koordlet_host_application_resource_usage", meaning, _HOST, _hosts(snapshot))


def offer(tick: Tick) -> Metric:
    """Batch as it is after the tick, mid as the Node holds it. Koordinator gives CPU in cores, memory in bytes."""
    return gauge("koordlet_node_resource_allocatable", "What pods may request", _USE, _offered(tick))


def predicted(snapshot: Snapshot) -> Iterator[Metric]:
    """Requests of prod pods that they are not expected to use; without series while nothing is predicted."""
    found = None
    if has_node(snapshot):
        offered = allocatable.amounts(snapshot.notes.kubelet_allocatable(snapshot.node))
        found = prediction.reclaimable(prediction=snapshot.prediction, pods=snapshot.pods, offered=offered)
    by_name = {} if found is None else _predictors(found)
    spare, peaks = ([(name, each[which]) for name, each in by_name.items()] for which in (0, 1))
    meaning = "What prod pods requested and are not expected to use: cores, bytes"
    yield gauge("koordlet_node_predicted_resource_reclaimable", meaning, _PREDICTOR, _each(spare))
    meaning = "What prod pods and the system are expected to need: cores, bytes"
    yield gauge("koordlet_node_predicted_resource_peak", meaning, _PREDICTOR, _each(peaks))
    known = [] if snapshot.prediction is None else [([str(PriorityClass.PROD)], float(found is None))]
    meaning = "1 while too little is known to predict, else 0"
    yield gauge("koordlet_node_resource_priority_reclaimable_status", meaning, ("priority",), known)
    offered_again = [] if found is None else [(str(PriorityClass.PROD), found.least)]
    meaning = "What pods of a priority requested and can be offered again: cores, bytes"
    yield gauge("koordlet_node_priority_resource_reclaimable", meaning, _PRIORITY, _each(offered_again))


def _predictors(found: Reclaimable) -> dict[str, tuple[Use, Use]]:
    return {
        prediction.POD: (found.by_pod.reclaimable, found.by_pod.peak),
        prediction.PRIORITY: (found.by_priority.reclaimable, found.by_priority.peak),
        prediction.LEAST: (found.least, found.peak),
    }


def _each(uses: Iterable[tuple[str, Use]]) -> Iterator[Sample]:
    for name, use in uses:
        yield from _use(use, name)


def single_cpus(tick: Tick) -> Iterator[Metric]:
    """A series for each CPU of the two pools: many, and only for who asks for them."""
    for name, pool in (("cpuset_share_pool", tick.ls_pool), ("cpuset_be_share_pool", tick.be_pool)):
        samples = (([str(cpu)], 1.0) for cpu in _cpus(pool))
        yield gauge(f"koordlet_{name}_info", "The CPUs of the pool", ("cpu",), samples)


def _offered(tick: Tick) -> Iterator[Sample]:
    now = {keys.BATCH_CPU: tick.figures.batch_cpu, keys.BATCH_MEMORY: tick.figures.batch_memory}
    amounts = {**tick.snapshot.published.node_resources, **now}
    for resource, (scale, unit) in _OFFERED.items():
        amount = amounts.get(resource)
        if amount is not None:
            yield [resource, unit], amount / scale


def _use(use: Use, *whose: str) -> Iterator[Sample]:
    yield [*whose, "cpu", "core"], use.cpu / 1000
    yield [*whose, "memory", "byte"], use.memory


def _by_numa(snapshot: Snapshot) -> Iterator[Sample]:
    for numa, each in snapshot.numa_use.items():
        yield from _use(each.node, str(numa))
    if not snapshot.numa_use:
        for numa, used in snapshot.numa_memory.get("", {}).items():
            yield [str(numa), "memory", "byte"], used


def _system_by_numa(snapshot: Snapshot, cpu: int) -> Iterator[Sample]:
    """`cpu` is what the system uses on all NUMA nodes. As in a NodeMetric, it is divided as all use is."""
    shares = measured.system_cpu_by_numa(cpu, {numa: each.node.cpu for numa, each in snapshot.numa_use.items()})
    for numa, each in snapshot.numa_use.items():
        if each.system_memory is not None:
            yield from _use(Use(shares[numa], each.system_memory), str(numa))


def _hosts(snapshot: Snapshot) -> Iterator[Sample]:
    for app in snapshot.slo.host_applications:
        use = snapshot.usage.host_apps.get(app.name)
        if use is not None:
            classes = [str(app.priority), str(app.qos)]
            yield [app.name, "cpu", *classes], use.cpu / 1000
            yield [app.name, "memory", *classes], use.memory


def _cpus(pool: str) -> Iterator[int]:
    try:
        yield from cpuset.CPUSet.parse(pool)
    except ValueError:
        return  # The annotation was broken by another writer.


BATCH_TERMS = ("capacity", "margin", "system", "hp", "result")
"""As in docs/formulas.md, "BE allocatable": by use, the result is capacity − margin − system − hp."""
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
