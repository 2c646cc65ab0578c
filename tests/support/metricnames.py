"""Every metric that agent and descheduler export, as docs/metrics.md lists them.

`PYTHONPATH=tests/support python tests/support/metricnames.py > docs/metrics.md` writes the page again.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import cast

from emulated import Emulated
from kubernetes.client.configuration import Configuration
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from reported import tick_with

from descheduler.serve.metrics import Metrics as DeschedulerMetrics
from koordlite import changes
from koordlite.changes.core_cookie import CoreCookieChange
from koordlite.kube.client.access import Api
from koordlite.kube.client.credentials import Transport
from koordlite.model.decision import Decision
from koordlite.model.status import AppliedStep, WatchState
from koordlite.model.topology import Topology
from koordlite.observe import numa
from koordlite.report.metrics.collector import Metrics as AgentMetrics
from koordlite.report.metrics.families import NodeRegistry
from koordlite.report.metrics.numa import NumaMetrics
from koordlite.reservation.controller import Controller, ReservationMetrics
from koordlite.reservation.placeholder import PlaceholderSettings as Placeholders
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import Binder, Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.numa_api.service import NumaService
from koordlite.scheduler.promises import Promises
from koordlite.scheduler.retries import Retries
from koordlite.scheduler.service import ExtenderMetrics

_WATCH = WatchState(name="pods", age_seconds=0.0)
_OWN_NUMA = ("numa_node_", "numa_container_", "numa_pod_")
_SUFFIXES = {"counter": "_total", "histogram": ""}
HEAD = """# Metrics

What `/metrics` of the agent (port 9316), of the descheduler (port 10258), of the scheduler extender (port 9319) and of
the NUMA exporter (port 9201) shows.
Names under `koordlet_`, and most under `descheduler_`, are Koordinator's and upstream's, with their labels, so that
existing dashboards keep working; names under `koordlite_` are ours. A series whose subject is gone is missing from the
next scrape. Every series of the agent has the label `node`. A histogram `x` is scraped as `x_bucket`, `x_sum` and
`x_count`.

On loopback everyone may read them. On any other address agent and descheduler want a token that may `get` the
non-resource URL `/metrics` ([kubernetes.md](kubernetes.md#who-may-ask-the-agent)); the NUMA exporter
wants none ([numa.md](numa.md)). Dashboards and alerts that use them are in
[manifests/monitoring](../manifests/monitoring).

`/external-metrics` and `/internal-metrics` of the agent are koordlet's two halves of its `/metrics`. External are
`koordlet_container_cpi`, `koordlet_container_psi`, `koordlet_container_resource_limits`,
`koordlet_container_resource_requests`, `koordlet_node_priority_resource_reclaimable`,
`koordlet_node_resource_allocatable`, `koordlet_node_resource_priority_reclaimable_status`, `koordlet_pod_psi`,
`koordlet_resctrl_llc_occupancy` and `koordlet_resctrl_memory_bandwidth`; all others are internal. Each path is a
non-resource URL of its own.

Section `metrics` of `koordlite.yaml` switches on what costs more. All of it is off by default:

- `containerPsi`: `koordlet_container_psi`, and of `koordlet_pod_psi` the values `avg60` and `avg300` of
  `psi_precision`. On cgroup v2 only.
- `containerCpi`: `koordlet_container_cpi`. `cpi_field` is `cycles` or `instructions`, counted for `cpiWindowSeconds`
  (10) each `cpiIntervalSeconds` (60). Cycles divided by instructions is the CPI. It takes the capability PERFMON and
  hardware counters; `status` says what is missing. At most 16,384 counters are open at a time, two for each container
  and CPU: beyond that containers take turns, and the series of a container is that of its last window. A container is
  without series when other programs held the counters of a CPU on which it ran.
- `numaSystemUsage`: `koordlet_node_metric_numa_system_usage`, and CPU in `koordlet_node_metric_numa_node_usage`, as
  means over the aggregation time. They are there as well while a NodeMetric is published.
"""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Exported:
    """One metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def agent() -> tuple[Exported, ...]:
    """Of an agent that has worked for some seconds on an emulated node."""
    metrics = AgentMetrics(started=1.0, per_cpu=True)
    with tempfile.TemporaryDirectory() as folder:
        node = Emulated("intel-2s-ht", pathlib.Path(folder))
        node.node(reservation='{"reservedCPUs":"0"}')
        node.slo(resctrl=True)
        node.pod("web", "LS", "1")
        node.pod("crunch", "BE", "greedy")
        for tick in node.ticks(node.agent(node.journal()), 15):
            metrics.observe_tick(tick)
        evicted = AppliedStep(changes.parse("pod/default/crunch/uid"), "evicted")
        joined = CoreCookieChange("kubepods/pod1/c", "default")
        decided = Decision("pod/ns/web", "set", "CoreSchedGroup", changes=(joined,))
        applied = (evicted, AppliedStep(joined.place, "1 processes"))
        decisions = (*tick.decisions, decided)
        metrics.observe_tick(tick_with(tick, watches=(_WATCH,), applied=applied, decisions=decisions))
    return tuple(_exported(metrics.registry))


def descheduler() -> tuple[Exported, ...]:
    """Of a descheduler that has done nothing yet."""
    return tuple(_exported(DeschedulerMetrics().registry))


def extender() -> tuple[Exported, ...]:
    """Of a scheduler extender that knows no cluster."""
    cluster = Cluster(JudgeSettings(), monotonic=time.monotonic)
    idle = Extender(cluster, wall=time.time)
    promises = Promises(idle, cast("Binder", None))
    retries = Retries(idle, lambda pod, annotations: None, wall=time.time)
    return tuple(_exported(ExtenderMetrics(idle, promises, retries).registry))


def reservation_controller() -> tuple[Exported, ...]:
    """Of a controller that never reached its cluster."""
    registry, nowhere = CollectorRegistry(), Api(Transport(Configuration(), "none"))
    judge = Cluster(JudgeSettings(), monotonic=time.monotonic)
    controller = Controller(nowhere, Placeholders(), leads=lambda: False, tell=print, judge=judge, feeds_judge=False)
    registry.register(ReservationMetrics(controller))
    return tuple(_exported(registry))


def numa_api() -> tuple[Exported, ...]:
    """Of a NUMA API that knows no cluster."""
    cluster = Cluster(JudgeSettings(), monotonic=time.monotonic)
    return tuple(_exported(NumaService(cluster, wall=time.time, not_ready=str).metrics))


def numa_exporter() -> tuple[Exported, ...]:
    """Of a NUMA exporter beside an agent on an emulated node, with the names of others."""
    with tempfile.TemporaryDirectory() as folder:
        node = Emulated("intel-2s-ht", pathlib.Path(folder))
        node.node()
        node.pod("web", "LS", "1")
        metrics = NumaMetrics(lambda machine: numa.counters(node.host().files, machine), _no_machine, node="")
        metrics.other_names = True
        *_, tick = node.ticks(node.agent(None), 3)
        metrics.snapshot = tick.snapshot
        return tuple(_exported(metrics.registry))


def _no_machine() -> Topology:
    return Topology((), ())


def _exported(registry: CollectorRegistry) -> Iterator[Exported]:
    found: dict[str, Exported] = {}
    for family in registry.collect():
        name = f"{family.name}{_SUFFIXES.get(family.type, '')}"
        assert name not in found, f"{name} is exported twice in one scrape"
        found[name] = Exported(name, family.type, _labels(registry, family), family.documentation)
    yield from sorted(found.values())


def _labels(registry: CollectorRegistry, family: Metric) -> tuple[str, ...]:
    """From the family, from the collector that made it, or from a sample; with the one that the agent's registry gives
    to all."""
    labels = _own_labels(registry, family)
    return ("node", *labels) if isinstance(registry, NodeRegistry) and "node" not in labels else labels


def _own_labels(registry: CollectorRegistry, family: Metric) -> tuple[str, ...]:
    for source in (family, *registry._collector_to_names):
        names = getattr(source, "_labelnames", None)
        if names is not None and (source is family or getattr(source, "_name", "") == family.name):
            return tuple(names)
    return tuple(dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le"))


def page() -> str:
    """docs/metrics.md."""
    return "\n".join(
        [
            HEAD,
            *_table("The agent", agent(), of_all="node"),
            *_table("The descheduler", descheduler()),
            *_table("The scheduler extender", extender()),
            *_reservations(),
            *_table("The NUMA API", numa_api()),
            *_numa(),
        ]
    )


def _reservations() -> Iterator[str]:
    title, head, *rows = _table("The reservation controller", reservation_controller())
    yield from (title, "Also served by an extender with `--reservation-controller`.\n", head, *rows)


def _numa() -> Iterator[str]:
    names = numa_exporter()
    own = [each for each in names if each.name.startswith(_OWN_NUMA)]
    yield from _table("The NUMA exporter", own)
    yield "With `numaExporter.otherNames` also these, which dashboards of other exporters ask for:\n"
    yield from list(_table("", [each for each in names if each not in own]))[1:]


def _table(title: str, metrics: Iterable[Exported], *, of_all: str = "") -> Iterator[str]:
    """`of_all` is a label of each of them, which HEAD says."""
    yield f"## {title}\n"
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for each in metrics:
        labels = " ".join(f"`{label}`" for label in each.labels if label != of_all)
        yield f"| `{each.name}` | {each.kind} | {labels} | {each.help.rstrip('.')} |"
    yield ""


if __name__ == "__main__":
    print(page().rstrip("\n"))
