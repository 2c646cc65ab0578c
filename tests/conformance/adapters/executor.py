"""What an executor does with a file, and what measuring was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from memory_files import MemoryFiles

from koordlite import plan
from koordlite.apply.kind import GONE
from koordlite.apply.kinds import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.clock import RealClock
from koordlite.formulas import system_settings
from koordlite.host import bundle, system_files
from koordlite.host.cgroups import fields
from koordlite.host.cgroups.fields import NUMBERS
from koordlite.host.cgroups.versions import Version
from koordlite.host.core_scheduling import Cookies, NoCoreScheduling
from koordlite.model import duration
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod import pod_reader
from koordlite.model.quantity import Quantity
from koordlite.model.slo import settings
from koordlite.model.wire import objects
from tests.conformance.adapters import NotCovered, adapter, machine, mappings

SETTING = system_settings.MIN_FREE
POLICY = {
    "aggregateDurationSeconds": "metric_aggregate_duration_seconds",
    "reportIntervalSeconds": "metric_report_interval_seconds",
    "nodeMemoryCollectPolicy": "metric_memory_collect_policy",
}
FIELDS = {"cpu.cfs_quota_us": "cpu.quota", "cpu.cfs_burst_us": "cpu.burst"}
PROTECTIONS = ("memory.min", "memory.low", "memory.high")
NEVER_WRITTEN = ("memory.limit_in_bytes", "net_cls.classid")
LIMITS: Mapping[str, Callable[[bytes], int]] = {
    "memory.limit_in_bytes": fields.parse_bytes,
    "memory.usage_in_bytes": int,
    "cpuacct.usage": Version(1).usage_ns,
}
_GREATEST = (1 << 63) - 1


@adapter("executor.file_update")
def file(given: Any, expect: Any) -> tuple[Any, Any]:
    """Any file that is no cgroup's: a setting of the kernel."""
    (path,), before = system_settings.PATHS[SETTING], given["fileBefore"]
    memory = MemoryFiles({path: before})
    found = machine.attempt(lambda: system_files.write(memory, SETTING, given["value"]), None)
    after = memory.files.get(path)
    return {"error": found["error"], "fileAfter": None if after is None else after.decode()}, expect


@adapter("executor.update")
def update(given: Any, expect: Any) -> tuple[Any, Any]:
    version = Version(given.get("cgroupVersion") or 1)
    field = FIELDS.get(given["resource"], given["resource"])
    if field not in NEVER_WRITTEN:
        field = field_of(given["resource"])
    name = version.files[field][1] if version.has(field) else field
    seen, memory = machine.cgroups(version.number, {name: ""} if given["pathExists"] else {})
    try:
        value = parsed(version, field, given["value"])
    except ValueError:
        return {"updated": False, "error": True}, expect
    host = bundle.Host(memory, RealClock(), seen, bundle.resctrl(memory), Cookies(NoCoreScheduling(), seen, memory))
    step = cgroup.KIND.put(host, CgroupChange(machine.GROUP, field, value))
    return {"updated": step.ok and step.value != GONE, "error": not step.ok}, expect


@adapter("executor.write_if_different")
def different(given: Any, expect: Any) -> tuple[Any, Any]:
    """A value that stands there already is no step worth taking."""
    before, version = given["fileBefore"], Version(given.get("cgroupVersion") or 1)
    field = given["resource"] if given["resource"] in NEVER_WRITTEN else field_of(given["resource"])
    name = version.files[field][1] if version.has(field) else field
    seen, memory = machine.cgroups(version.number, {} if before is None else {name: before})
    host = bundle.Host(memory, RealClock(), seen, bundle.resctrl(memory), Cookies(NoCoreScheduling(), seen, memory))
    try:
        change = CgroupChange(machine.GROUP, field, parsed(version, field, given["value"]))
        due = not _stands(host, change, seen.state(machine.GROUP, [field] if field in NUMBERS else []))
    except (OSError, ValueError):
        return {"written": False, "error": True}, expect
    step = cgroup.KIND.put(host, change) if due else None
    return {"written": bool(memory.writes), "error": bool(step and not step.ok)}, expect


def _stands(host: bundle.Host, change: CgroupChange, present: Cgroup) -> bool:
    """Sets and quotas are compared by the rules that want them."""
    values = {"cpuset.cpus": present.cpuset, "cpu.quota": present.quota_us}
    return cgroup.stands(host, change, present) or values.get(change.field) == change.value


@adapter("executor.merge_update")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    """Growth is written on the way down, the value itself on the way up: the two halves of a plan."""
    version, field = Version(given["cgroupVersion"]), field_of(given["resource"])
    name = version.files[field][1]
    seen, memory = machine.cgroups(version.number, _there(name, given["fileBefore"]))
    path = f"/c/{machine.GROUP}/{name}"
    names = ("error", "fileAfterMergePass", "fileAfterFinalPass")
    try:
        wanted = parsed(version, field, given["value"])
        present = seen.state(machine.GROUP, [field] if field in NUMBERS else [])
    except (OSError, ValueError):
        return dict(zip(names, (True, None, None), strict=True)), expect
    change = CgroupChange(machine.GROUP, field, wanted)  # type: ignore[arg-type]
    first = plan.order([change], {machine.GROUP: present})[0]
    if _grows(change, present):
        seen.write(machine.GROUP, first.field, first.value)  # type: ignore[union-attr]
    after = memory.files[path].decode()
    seen.write(machine.GROUP, change.field, wanted)
    return dict(zip(names, (False, after, memory.files[path].decode()), strict=True)), expect


def _grows(change: CgroupChange, present: Cgroup) -> bool:
    """Whether the change has to come from the top; one that changes nothing is never planned."""
    if isinstance(change.value, CPUSet):
        return not change.value <= (present.cpuset or EMPTY)
    before = present.quota_us if change.field == "cpu.quota" else present.values[change.field]
    if change.value == before:
        return False
    if change.field == "cpu.quota":  # A quota that grows comes before a burst that would need it.
        return plan.order([CgroupChange(machine.GROUP, "cpu.burst", 0), change], {machine.GROUP: present})[0] == change
    # Levels that shrink come before those that grow.
    other = CgroupChange(machine.GROUP.partition("/")[0], change.field, 0)
    levels = {machine.GROUP: present, other.group: Cgroup(values={change.field: 1})}
    return plan.order([change, other], levels)[-1] == change


def _there(name: str, text: str | None) -> dict[str, str]:
    return {} if text is None else {name: text}


def parsed(version: Version, field: str, text: str) -> Any:
    """A value as Koordinator writes it down: -1 for no quota, the greatest number for no limit on memory."""
    if field == "cpuset.cpus":
        return CPUSet.parse(text)
    value = int(text)
    if field in PROTECTIONS and value < 0:
        raise ValueError(f"{value} are no bytes")
    return fields.UNLIMITED if field in PROTECTIONS and value == _GREATEST else value


@adapter("executor.cgroup_update")
def updated(given: Any, expect: Any) -> tuple[Any, Any]:
    version, refused = Version(given["cgroupVersion"]), given["resource"] in NEVER_WRITTEN
    field = given["resource"] if refused else field_of(given["resource"])
    name = field if refused else version.files[field][1]
    seen, memory = machine.cgroups(version.number, _there(name, given["fileBefore"]))
    found = machine.attempt(lambda: seen.write(machine.GROUP, field, parsed(version, field, given["value"])), None)  # type: ignore[arg-type]
    after = memory.files.get(f"/c/{machine.GROUP}/{name}")
    return {"error": found["error"], "fileAfter": None if after is None else after.decode()}, expect


@adapter("executor.read_int")
def integer(given: Any, expect: Any) -> tuple[Any, Any]:
    """No limit on memory is -1 with us, where Koordinator has the number as it stands."""
    version = Version(given.get("cgroupVersion") or 1)
    if given["resource"] in LIMITS:
        name, read = given["resource"], LIMITS[given["resource"]]
    else:
        field = field_of(given["resource"])
        name = version.files[field][1]
        read = version.quota_us if field == "cpu.quota" else lambda raw: version.integer(field, raw)
    files = _file(name, given)
    found = machine.attempt(lambda: read(files.read(name)), None)
    limited = given["resource"] in PROTECTIONS or given["resource"] == "memory.limit_in_bytes"
    return _without_end(found, limited), _without_end(expect, limited)


def _file(name: str, given: Any) -> MemoryFiles:
    """The one file of a case."""
    return MemoryFiles({name: given["fileContent"]} if given.get("supported", True) else {})


def _without_end(answer: Any, limited: bool) -> Any:
    """Every way to write "no limit" as one."""
    value = answer["value"]
    no_limit = limited and value is not None and not 0 <= value < fields.UNLIMITED_BYTES
    return {**answer, "value": "no limit" if no_limit else value}


def field_of(resource: str) -> Any:
    """Our name of a file of v1; NotCovered for one we never write."""
    field = FIELDS.get(resource, resource)
    if field not in NUMBERS and field not in ("cpu.quota", "cpuset.cpus"):
        raise NotCovered
    return field


mappings(
    {
        "nodemetric.window": lambda given: {"windowSeconds": _policy(given).metric_aggregate_duration_seconds},
        "nodemetric.report_interval": lambda given: {"seconds": _policy(given).metric_report_interval_seconds},
    }
)


@adapter("nodemetric.spec_merge")
def spec(given: Any, expect: Any) -> tuple[Any, Any]:
    found = _policy((given["spec"] or {}).get("metricCollectPolicy") or {})
    values = {name: getattr(found, ours) for name, ours in POLICY.items()}
    durations = [duration.show(each) for each in found.metric_aggregate_policy.durations]
    return {"spec": {"metricCollectPolicy": {**values, "nodeAggregatePolicy": {"durations": durations}}}}, expect


@adapter("nodemetric.pod_entry")
def entry(given: Any, expect: Any) -> tuple[Any, Any]:
    """The classes of the pod are judged; its use is the case's own."""
    seen = pod_reader.from_wire(msgspec.convert(given["pod"], objects.PodObject))
    cores, memory = given["cpuUsageCores"], given["memoryUsedBytes"]
    resources = {"cpu": str(Quantity.of_milli(round(cores * 1000))), "memory": str(memory)}
    names = {"name": seen.name, "namespace": seen.namespace}
    classes = {"priority": str(seen.priority_class), "qos": str(seen.qos_class)}
    return {**names, **classes, "podUsage": {"resources": resources}}, expect


def _policy(wish: Any) -> settings.Colocation:
    """What is out of range is refused, so that the default stays."""
    wishes = {ours: wish[name] for name, ours in POLICY.items() if wish.get(name) is not None}
    values = {name: value for name, value in wishes.items() if not isinstance(value, int) or value > 0}
    return settings.collect_policy(settings.Colocation(enable=True, **values))
