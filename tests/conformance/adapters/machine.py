"""Reading and writing the machine: cgroup files, names of groups, use, and what an executor writes."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from koordlite import plan
from koordlite.formulas import host_place, measured
from koordlite.host import cgroup_fields, cgroup_names, procfs
from koordlite.host.cgroup_fields import NUMBERS
from koordlite.host.cgroup_versions import Version
from koordlite.host.cgroupfs import Cgroups
from koordlite.model import keys, pod, slo_config, wire
from koordlite.model.decision import CgroupChange
from koordlite.model.qos import KubeQoS, QoSClass
from koordlite.model.snapshot import Cgroup, Layout
from koordlite.observe.counters import Counter, Throttling
from tests.conformance.adapters import NotCovered, adapter

GROUP = "kubepods/g"
FIELDS = {"cpu.cfs_quota_us": "cpu.quota", "cpu.cfs_burst_us": "cpu.burst"}


class Memory:
    """Files by path, in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.written: list[str] = []

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.files[path]

    def write(self, path: str, data: bytes) -> None:
        self.read(path)
        self.files[path] = data
        self.written.append(path)

    def list(self, path: str) -> Sequence[str]:
        if not any(file.startswith(f"{path}/") for file in self.files):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return ()

    def mkdir(self, path: str) -> None:
        raise NotImplementedError

    def rmdir(self, path: str) -> None:
        raise NotImplementedError


def layout(version: int, driver: str = "cgroupfs") -> Layout:
    return cgroup_names.layout(version, "kubepods.slice" if driver == "systemd" else "kubepods")


def cgroups(version: int, files: dict[str, str]) -> tuple[Cgroups, Memory]:
    """A machine whose one group holds these files, whatever controller they are of."""
    points = dict.fromkeys(("", "cpu", "cpuacct", "cpuset", "memory"), "/c")
    memory = Memory({f"/c/{GROUP}/{name}": text.encode() for name, text in files.items()})
    return Cgroups(memory, layout(version), points), memory


def attempt(read: Any, failed: Any) -> Any:
    try:
        return {"value": read(), "error": False}
    except (OSError, ValueError, IndexError):
        return {"value": failed, "error": True}


def _field(resource: str) -> str:
    field = FIELDS.get(resource, resource)
    if field not in NUMBERS and field not in ("cpu.quota", "cpuset.cpus"):
        raise NotCovered
    return field


@adapter("reader.ReadCPUAcctUsage")
def usage(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: seen.cpu_usage_ns(GROUP), expect["value"] if expect["error"] else None), expect


@adapter("reader.ReadCPUQuota")
def quota(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: _known(_state(seen).quota_us), -1), expect


@adapter("reader.ReadCPUSet")
def cpus(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: str(_known(_state(seen).effective)), None), expect


@adapter("reader.ReadCPUShares")
def shares(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: seen.decode("cpu.shares", seen.read_raw(GROUP, "cpu.shares")), -1), expect


@adapter("reader.ReadMemoryUsage")
def memory_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: int(seen.read_raw(GROUP, "memory.current")), 0), expect


@adapter("reader.ReadCPUStat", "parse.cpu_stat_v1", "parse.cpu_stat_v2")
def stat(given: Any, expect: Any) -> tuple[Any, Any]:
    files = given.get("files", {"cpu.stat": given.get("input", "")})
    seen, _ = cgroups(given.get("cgroupVersion", 1 if "throttled_time" in files.get("cpu.stat", "") else 2), files)
    return attempt(lambda: _periods(seen), None), expect


def _periods(seen: Cgroups) -> dict[str, int]:
    found = seen.throttling(GROUP)
    times = {"throttledNanoSeconds": found.time_ns}
    return {"nrPeriods": found.periods, "nrThrottled": found.throttled, **times}


def _state(seen: Cgroups) -> Cgroup:
    return seen.state(GROUP)


def _known(value: Any) -> Any:
    if value is None:
        raise FileNotFoundError
    return value


@adapter("parse.cpu_max_quota_v2")
def quota_v2(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(2, {"cpu.max": given["input"]})
    return attempt(lambda: _state(seen).quota_us, -1), expect


@adapter("parse.cpuacct_usage_v2_ns")
def usage_v2(given: Any, expect: Any) -> tuple[Any, Any]:
    return attempt(lambda: Version(2).usage_ns(given["input"].encode()), 0), expect


@adapter("parse.shares_to_weight")
def weight(given: Any, expect: Any) -> tuple[Any, Any]:
    return attempt(lambda: cgroup_fields.weight_of_shares(int(given["input"])), expect["value"]), expect


@adapter("parse.weight_to_shares")
def shares_again(given: Any, expect: Any) -> tuple[Any, Any]:
    return attempt(lambda: cgroup_fields.shares_of_weight(given["input"]), None), expect


@adapter("parse.throttled_ratio")
def ratio(given: Any, expect: Any) -> tuple[Any, Any]:
    return {"ratio": _ratio(given["previous"], given["current"])}, expect


@adapter("metric.throttled_ratio")
def ratio_of_file(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(1, given["files"])
    return {"ratio": _ratio(given["last"], _periods(seen))}, expect


def _ratio(before: Any, after: Any) -> float | None:
    counter = Throttling()
    counter.ratio(before["nrPeriods"], before["nrThrottled"])
    return counter.ratio(after["nrPeriods"], after["nrThrottled"])


@adapter("metric.percentile")
def percentile(given: Any, expect: Any) -> tuple[Any, Any]:
    return attempt(lambda: measured.percentile(given["values"], given["percentile"]), 0), expect


@adapter("validate.range")
def valid(given: Any, expect: Any) -> tuple[Any, Any]:
    number = cgroup_fields.Number(v1=None, v2="x", minimum=given["min"], maximum=given["max"])
    found = attempt(lambda: number.allows(int(given["value"])), None)
    return {"valid": bool(found["value"])}, expect


@adapter("parse.proc_stat_total_ticks")
def ticks(given: Any, expect: Any) -> tuple[Any, Any]:
    files = Memory({"/proc/stat": given["content"].encode()})
    found = attempt(lambda: procfs.node_cpu_ticks(files).busy, 0)
    return next(iter(found.values())), expect.get("value", next(iter(expect.values())))


@adapter("metric.node_usage")
def node_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    files = Memory({"/proc/stat": given["procStat"].encode(), "/proc/meminfo": given["procMeminfo"].encode()})
    counter, memory = Counter(), procfs.memory(files)
    counter.rate(0, given["lastTicks"])
    rate = counter.rate(given["elapsedSeconds"], procfs.node_cpu_ticks(files).busy)
    cores = None if rate is None else rate * given["jiffyMs"] / 1000
    return {"cpuCores": cores, "memoryBytes": memory.total - memory.available}, expect


@adapter("metric.host_app_usage")
def host_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    """Memory is that without page cache: no other policy is built."""
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    counter = Counter()
    counter.rate(0, given["lastCPUUsageNs"])
    names = ("cpuCores", "memoryBytes")
    wanted = {name: expect[name] for name in names}
    try:
        used, memory = seen.cpu_usage_ns(GROUP), seen.memory(GROUP)
    except (OSError, ValueError):
        return dict.fromkeys(names), wanted
    rate = counter.rate(given["elapsedSeconds"], used)
    return {"cpuCores": None if rate is None else rate / 1e9, "memoryBytes": memory}, wanted


@adapter("metric.be_real_limit_milli")
def limit(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["beRootFiles"])
    root = _state(seen)
    found = measured.be_limit_milli(
        cpus=len(_known(root.effective)), quota_us=_known(root.quota_us), period_us=root.period_us
    )
    return {"milliLimit": found}, expect


@adapter("metric.be_request_milli")
def request(given: Any, expect: Any) -> tuple[Any, Any]:
    pods = [pod.from_wire(msgspec.convert(each, wire.PodObject)) for each in given["pods"]]
    asked = sum(each.request_value(keys.BATCH_CPU) for each in pods if each.raw_qos is QoSClass.BE)
    return {"milliRequest": asked}, expect


@adapter("cgroup.pod_parent_dir")
def pod_dir(given: Any, expect: Any) -> tuple[Any, Any]:
    names = layout(1, given["driver"])
    return {"dir": cgroup_names.pod_group(names, given["uid"], KubeQoS(given["kubeQoS"]))}, expect


@adapter("cgroup.container_parent_dir")
def container_dir(given: Any, expect: Any) -> tuple[Any, Any]:
    parent = given["podParentDir"].rstrip("/")
    found = attempt(lambda: cgroup_names.container_group(layout(1, given["driver"]), parent, given["containerID"]), "")
    return {"dir": found["value"], "error": found["error"]}, expect


@adapter("cgroup.container_dir_name")
def container_name(given: Any, expect: Any) -> tuple[Any, Any]:
    names, wanted = layout(1, given["driver"]), {name: expect[name] for name in ("dirName", "error")}
    found = attempt(lambda: cgroup_names.container_group(names, "p", given["containerID"]), "")
    return {"dirName": found["value"].rpartition("/")[2], "error": found["error"]}, wanted


@adapter("cgroup.host_app_dir")
def host_dir(given: Any, expect: Any) -> tuple[Any, Any]:
    document = {"applications": [given["hostApplication"]]}
    data = {"host-application-config": json.dumps(document)}
    held = slo_config.effective(data, labels={}, annotations={}, previous=None, node_owner="node")
    names = layout(1, given["driver"])
    return {"dir": "".join(host_place.group(one, names) for one in held.host_applications)}, expect


@adapter("executor.merge_update")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    """Growth is written on the way down, the value itself on the way up: the two halves of a plan."""
    version, field = Version(given["cgroupVersion"]), _field(given["resource"])
    name = version.files[field][1]
    seen, memory = cgroups(version.number, {name: given["fileBefore"]})
    path = f"/c/{GROUP}/{name}"
    names = ("error", "fileAfterMergePass", "fileAfterFinalPass")
    try:
        wanted = _parsed(version, field, given["value"])
        present = seen.state(GROUP, [field] if field in NUMBERS else [])
    except (OSError, ValueError):
        return dict(zip(names, (True, None, None), strict=True)), expect
    change = CgroupChange(GROUP, field, wanted)  # type: ignore[arg-type]
    steps = plan.order([change], {GROUP: present})
    first = steps[0]
    grows = field == "cpuset.cpus" or _grows(change, present)
    if grows:
        seen.write(GROUP, first.field, first.value)  # type: ignore[union-attr]
    after = memory.files[path].decode()
    seen.write(GROUP, change.field, wanted)
    return dict(zip(names, (False, after, memory.files[path].decode()), strict=True)), expect


def _grows(change: CgroupChange, present: Cgroup) -> bool:
    """A change that grows comes before a burst that would need it."""
    burst = CgroupChange(GROUP, "cpu.burst", 0)
    if change.field == "cpu.quota":
        return plan.order([burst, change], {GROUP: present})[0] == change
    return int(change.value) > present.values[change.field]  # type: ignore[arg-type]


def _parsed(version: Version, field: str, text: str) -> Any:
    """A value as Koordinator writes it down: -1 for no limit."""
    return version.cpus(text.encode()) if field == "cpuset.cpus" else int(text)


@adapter("executor.cgroup_update")
def updated(given: Any, expect: Any) -> tuple[Any, Any]:
    version, field = Version(given["cgroupVersion"]), _field(given["resource"])
    name = version.files[field][1]
    before = given["fileBefore"]
    seen, memory = cgroups(version.number, {} if before is None else {name: before})
    found = attempt(lambda: seen.write(GROUP, field, _parsed(version, field, given["value"])), None)  # type: ignore[arg-type]
    after = memory.files.get(f"/c/{GROUP}/{name}")
    return {"error": found["error"], "fileAfter": None if after is None else after.decode()}, expect


@adapter("executor.read_int")
def integer(given: Any, expect: Any) -> tuple[Any, Any]:
    """No limit is -1 with us, where Koordinator has the greatest number."""
    field = _field(given["resource"])
    version = Version(1)
    name = version.files[field][1]
    seen, _ = cgroups(1, {name: given["fileContent"]} if given["supported"] else {})
    found = attempt(lambda: version.integer(field, seen.read_raw(GROUP, field)), None)
    if found["value"] == cgroup_fields.UNLIMITED:
        found["value"] = (1 << 63) - 1
    return found, expect
