"""What an executor does with a file, and what measuring was asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlite.apply import writer
from koordlite.clock import RealClock
from koordlite.formulas import system_settings
from koordlite.host import bundle, system_files
from koordlite.host.cgroup_versions import Version
from koordlite.model import pod, slo, wire
from koordlite.model.decision import CgroupChange
from koordlite.model.quantity import Quantity
from tests.conformance.adapters import NotCovered, adapter, machine

SETTING = system_settings.MIN_FREE
POLICY = {
    "aggregateDurationSeconds": "metric_aggregate_duration_seconds",
    "reportIntervalSeconds": "metric_report_interval_seconds",
    "nodeMemoryCollectPolicy": "metric_memory_collect_policy",
}


@adapter("executor.file_update")
def file(given: Any, expect: Any) -> tuple[Any, Any]:
    """Any file that is no cgroup's: a setting of the kernel."""
    (path,), before = system_files.PATHS[SETTING], given["fileBefore"]
    memory = machine.Memory({} if before is None else {path: before.encode()})
    found = machine.attempt(lambda: system_files.write(memory, SETTING, given["value"]), None)
    after = memory.files.get(path)
    return {"error": found["error"], "fileAfter": None if after is None else after.decode()}, expect


@adapter("executor.update")
def update(given: Any, expect: Any) -> tuple[Any, Any]:
    version, field = Version(given["cgroupVersion"]), given["resource"]
    name = version.files[field][1] if version.has(field) else field
    seen, memory = machine.cgroups(version.number, {name: ""} if given["pathExists"] else {})
    try:
        value = version.cpus(given["value"].encode()) if field == "cpuset.cpus" else int(given["value"])
    except ValueError:
        return {"updated": False, "error": True}, expect
    host = bundle.Host(memory, RealClock(), seen, bundle.resctrl(memory))
    step = writer.write(host, CgroupChange(machine.GROUP, field, value))
    return {"updated": step.ok and step.value != writer.GONE, "error": not step.ok}, expect


@adapter("executor.write_if_different")
def different(given: Any, expect: Any) -> tuple[Any, Any]:
    """A value that stands there already is no step worth taking."""
    field = given["resource"]
    seen, memory = machine.cgroups(1, {field: given["fileBefore"]})
    host = bundle.Host(memory, RealClock(), seen, bundle.resctrl(memory))
    change = CgroupChange(machine.GROUP, field, int(given["value"]))
    state = seen.state(machine.GROUP, [field])
    due = not writer.stands(host, change, state)
    step = writer.write(host, change) if due else None
    return {"written": bool(memory.written), "error": bool(step and not step.ok)}, expect


@adapter("nodemetric.window")
def window(given: Any, expect: Any) -> tuple[Any, Any]:
    return {"windowSeconds": _policy(given).aggregate_seconds}, expect


@adapter("nodemetric.report_interval")
def interval(given: Any, expect: Any) -> tuple[Any, Any]:
    return {"seconds": _policy(given).report_seconds}, expect


@adapter("nodemetric.spec_merge")
def spec(given: Any, expect: Any) -> tuple[Any, Any]:
    wish = given["spec"].get("metricCollectPolicy") or {}
    if not wish.keys() <= POLICY.keys():
        raise NotCovered
    found = _policy(wish)
    values = (found.aggregate_seconds, found.report_seconds, found.memory_policy)
    return {"spec": {"metricCollectPolicy": dict(zip(POLICY, values, strict=True))}}, expect


@adapter("nodemetric.pod_entry")
def entry(given: Any, expect: Any) -> tuple[Any, Any]:
    """The classes of the pod are judged; its use is the case's own."""
    seen = pod.from_wire(msgspec.convert(given["pod"], wire.PodObject))
    cores, memory = given["cpuUsageCores"], given["memoryUsedBytes"]
    resources = {"cpu": str(Quantity.of_milli(round(cores * 1000))), "memory": str(memory)}
    names = {"name": seen.name, "namespace": seen.namespace}
    classes = {"priority": str(seen.priority_class), "qos": str(seen.qos_class)}
    return {**names, **classes, "podUsage": {"resources": resources}}, expect


def _policy(wish: Any) -> slo.MetricPolicy:
    values = {ours: wish[name] for name, ours in POLICY.items() if wish.get(name) is not None}
    found = slo.metric_policy(slo.Colocation(enable=True, **values))
    assert found is not None
    return found
