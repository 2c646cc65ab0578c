"""Memory QoS: values of pods, containers and QoS levels, page cache limits, annotations, order of the files."""

from __future__ import annotations

from typing import Any

from koordlite.formulas import memory_qos
from koordlite.host.cgroups.versions import Version
from koordlite.model import keys
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.reading.declared import flatten, settings, values
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.qos import MemoryQOS
from koordlite.strategies import memory_qos as strategy
from tests.conformance.adapters import adapter, shapes

NO_HIGH = 2**63 - 1
_OF = {QoSClass.LSE: "lsrClass", QoSClass.LSR: "lsrClass", QoSClass.LS: "lsClass", QoSClass.BE: "beClass"}
_MERGED = ("memory.min", "memory.low", "memory.high")
_SOURCES = {
    "memory.min": "minLimitPercent",
    "memory.low": "lowLimitPercent",
    "memory.high": "throttlingPercent",
    "memory.wmark_ratio": "wmarkRatio",
    "memory.wmark_scale_factor": "wmarkScalePermill",
    "memory.wmark_min_adj": "wmarkMinAdj",
    "memory.priority": "priority",
    "memory.use_priority_oom": "priorityEnable",
    "memory.oom.group": "oomKillGroup",
}
"""The setting behind a file: where nobody wrote it, the vectors expect nothing; we always have a default."""


@adapter("cgroup_reconcile.page_cache_limit")
def page_cache(given: Any, expect: Any) -> tuple[Any, Any]:
    found = memory_qos.page_cache(_settings(given["memoryQOS"]), limit=given["podMemoryLimitBytes"] or 0)
    return {name: str(found[name]) if name in found else None for name in expect}, expect  # type: ignore[index]


@adapter("cgroup_reconcile.merged_pod_qos")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    node_class = given["nodeClassMemoryQOS"]
    found, _ = pod_overrides.memory_qos(shapes.pod_of(given["pod"]), _settings(node_class))
    shown = {path[0]: value for path, value in flatten(found)}
    # A quantity is shown as text.
    wanted = {
        name: str(value) if name == "pageCacheLimitSize" else value
        for name, value in (expect["memoryQOS"] or {}).items()
        if value is not None
    }
    return {"memoryQOS": {name: shown[name] for name in wanted}}, {"memoryQOS": wanted}


@adapter("cgroup_reconcile.make_updaters")
def order(given: Any, expect: Any) -> tuple[Any, Any]:
    """Our fields stand in Koordinator's order."""
    values = {name: value for name, value in (given["values"] or {}).items() if value is not None}
    # Files that a version of cgroups does not have are not written.
    names = [name for name in strategy.FIELDS if name in values and Version(given["cgroupVersion"]).has(name)]
    return {"updaters": [_updater(name, values[name]) for name in names]}, expect


@adapter("cgroup_reconcile.calculate")
def calculate(given: Any, expect: Any) -> tuple[Any, Any]:
    written = given["nodeResourceQOSStrategy"] or {}
    pods = [shapes.pod_of(item) for item in given["pods"] or ()]
    allocatable = shapes.node_of(given["node"]).allocatable if given["node"] else {}
    memory = allocatable["memory"].value if "memory" in allocatable else 0
    judged = [_Judged(pod, written, memory) for pod in pods if pod.active]
    found = {
        "qosLevel": list(_levels(judged, written)),
        "podLevel": [{"podQoS": j.qos, **row} for j in judged for row in j.of_pod()],
        "containerLevel": [
            {"podQoS": j.qos, **row, "container": c.name} for j in judged for c in j.containers for row in j.of(c)
        ],
    }
    # Files that a version of cgroups does not have are not written.
    has = Version(given["cgroupVersion"]).has
    return {level: [row for row in rows if has(row["resource"])] for level, rows in found.items()}, expect


class _Judged:
    """One pod with the settings that hold for it, and which of them somebody wrote."""

    def __init__(self, pod: Pod, written: Any, allocatable: int) -> None:
        self.pod, self.allocatable = pod, allocatable
        self.qos = str(pod.raw_qos) or str(pod.qos_class)
        of_class = (written.get(_OF.get(pod.qos_class, "systemClass")) or {}).get("memoryQOS")
        self.settings, _ = pod_overrides.memory_qos(pod, _settings(of_class))
        self.given = _named(of_class) | _wished(pod)
        self.resource = memory_qos.resource(pod)
        self.containers = [c for c in pod.containers if c.id]

    @property
    def values(self) -> memory_qos.Values:
        request, limit = memory_qos.pod_amounts(self.pod)
        return memory_qos.pod_values(self.settings, request=request, limit=limit)

    def of_pod(self) -> list[Any]:
        return _rows(self.values, self.given)

    def of(self, container: ContainerInfo) -> list[Any]:
        values = memory_qos.container_values(
            self.settings,
            request=memory_qos.amount(container, self.resource, "requests"),
            limit=memory_qos.amount(container, self.resource, "limits"),
            allocatable=self.allocatable,
        )
        return _rows(values, self.given)


def _levels(judged: list[_Judged], written: Any) -> Any:
    tiers = {tier: [j for j in judged if j.pod.kube_qos is tier] for tier in KubeQoS}
    classes = (KubeQoS.GUARANTEED, "lsrClass"), (KubeQoS.BURSTABLE, "lsClass"), (KubeQoS.BEST_EFFORT, "beClass")
    for tier, name in classes:
        below = [j for pods in tiers.values() for j in pods] if tier is KubeQoS.GUARANTEED else tiers[tier]
        rows = _rows(memory_qos.sums(j.values for j in below), {name for j in below for name in j.given})
        of_class = (written.get(name) or {}).get("memoryQOS")
        rows += _rows(memory_qos.of_class(_settings(of_class)), _named(of_class))
        yield from ({"kubeQoS": str(tier), **row} for row in rows)


def _named(settings: Any) -> set[str]:
    return {name for name, value in (settings or {}).items() if value is not None}


def _wished(pod: Pod) -> set[str]:
    """What the annotation writes: a policy of its own has a value for everything."""
    _, bad = pod_overrides.memory_qos(pod, MemoryQOS())
    text = pod.annotations.get(keys.MEMORY_QOS)
    wish = (
        {path[0]: value for path, value in values(pod_overrides.PodMemoryQOS, text).items()} if text and not bad else {}
    )
    return set(_SOURCES.values()) if wish.get("policy") in ("auto", "none") else _named(wish)


def _rows(values: memory_qos.Values, given: set[str]) -> list[Any]:
    shown = {
        name: value for name, value in values.items() if _SOURCES.get(name, name) in {*given, name} - _unwritten(given)
    }
    return [_updater(name, NO_HIGH if value == memory_qos.UNLIMITED else value) for name, value in shown.items()]


def _unwritten(given: set[str]) -> set[str]:
    return set(_SOURCES.values()) - given


def _updater(name: str, value: int) -> dict[str, Any]:
    return {"resource": name, "value": str(value), "mergeable": name in _MERGED}


def _settings(written: Any) -> MemoryQOS:
    known = settings(MemoryQOS)
    given = {known[name].attribute: value for name, value in (written or {}).items() if value is not None}
    size = given.get("page_cache_limit_size")
    return MemoryQOS(**{**given, **({} if size is None else {"page_cache_limit_size": Quantity.parse(size)})})
