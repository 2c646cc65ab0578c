"""Reading and writing the machine: cgroup files, names of groups, use, and what an executor writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from memory_files import MemoryFiles

from koordlite.formulas import measured
from koordlite.formulas.cpu import pools
from koordlite.host import procfs
from koordlite.host.cgroups import fields
from koordlite.host.cgroups import names as cgroup_names
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.cgroups.versions import Version
from koordlite.model import cgroup_fields, keys
from koordlite.model.picture.groups import Cgroup, Layout
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.slo import config
from koordlite.model.wire import objects
from koordlite.observe.usage import Counter, Throttling
from tests.conformance.adapters import adapter, mappings

GROUP = "kubepods/g"
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def layout(version: int, driver: str = "cgroupfs") -> Layout:
    return cgroup_names.layout(version, "kubepods.slice" if driver == "systemd" else "kubepods")


def of_texts(texts: Mapping[str, str | None]) -> MemoryFiles:
    """Files by path; one without a text is absent."""
    return MemoryFiles(texts)


def cgroups(version: int, files: dict[str, str | None] | None) -> tuple[Cgroups, MemoryFiles]:
    """A machine whose one group holds these files, whatever controller they are of; one without a text is absent."""
    points = dict.fromkeys(("", "cpu", "cpuacct", "cpuset", "memory"), "/c")
    memory = of_texts({f"/c/{GROUP}/{name}": text for name, text in (files or {}).items()})
    return Cgroups(memory, layout(version), points), memory


def attempt(read: Any, failed: Any) -> Any:
    try:
        return {"value": read(), "error": False}
    except (OSError, ValueError, IndexError):
        return {"value": failed, "error": True}


@adapter("reader.ReadCPUAcctUsage")
def usage(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: seen.cpu_usage_ns(GROUP), expect["value"] if expect["error"] else None), expect


@adapter("reader.ReadCPUQuota")
def quota(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: _known(_state(seen).quota_us), -1), expect


@adapter("reader.ReadCPUPeriod")
def period(given: Any, expect: Any) -> tuple[Any, Any]:
    version, (seen, _) = Version(given["cgroupVersion"]), cgroups(given["cgroupVersion"], given["files"])
    return attempt(lambda: version.period_us(seen.read_raw(GROUP, "cpu.period")), -1), expect


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


mappings(
    {
        "reader.ReadCPUStat": lambda given: _stat(given["cgroupVersion"], given["files"]),
        "parse.cpu_stat_v1": lambda given: _stat(1, {"cpu.stat": given["input"]}),
        "parse.cpu_stat_v2": lambda given: _stat(2, {"cpu.stat": given["input"]}),
        "parse.cpuacct_usage_v2_ns": lambda given: attempt(lambda: Version(2).usage_ns(given["input"].encode()), 0),
        "parse.weight_to_shares": lambda given: attempt(lambda: cgroup_fields.shares_of_weight(given["input"]), None),
        "parse.throttled_ratio": lambda given: {"ratio": _ratio(given["previous"], given["current"])},
        "metric.percentile": lambda given: attempt(
            lambda: measured.percentile(given["values"], given["percentile"]), 0
        ),
    }
)


def _stat(version: int, files: dict[str, str | None]) -> Any:
    seen, _ = cgroups(version, files)
    return attempt(lambda: _periods(seen), None)


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


@adapter("parse.shares_to_weight")
def weight(given: Any, expect: Any) -> tuple[Any, Any]:
    return attempt(lambda: cgroup_fields.weight_of_shares(int(given["input"])), expect["value"]), expect


@adapter("metric.throttled_ratio")
def ratio_of_file(given: Any, expect: Any) -> tuple[Any, Any]:
    """Which version printed the file, its lines say."""
    text = (given["files"] or {}).get("cpu.stat") or ""
    seen, _ = cgroups(given.get("cgroupVersion") or (2 if "throttled_usec" in text else 1), given["files"])
    return {"ratio": attempt(lambda: _ratio(given["last"], _periods(seen)), None)["value"]}, expect


def _ratio(before: Any, after: Any) -> float | None:
    counter = Throttling()
    if before is not None:
        counter.ratio(before["nrPeriods"], before["nrThrottled"])
    return counter.ratio(after["nrPeriods"], after["nrThrottled"])


@adapter("validate.range")
def valid(given: Any, expect: Any) -> tuple[Any, Any]:
    number = fields.Number(given["min"], given["max"])
    found = attempt(lambda: INTEGER.fullmatch(given["value"]) and number.allows(int(given["value"])), None)
    return {"valid": bool(found["value"])}, expect


@adapter("parse.proc_stat_total_ticks")
def ticks(given: Any, expect: Any) -> tuple[Any, Any]:
    files = of_texts({"/proc/stat": given["content"]})
    found = attempt(lambda: procfs.node_cpu_ticks(files), expect["usedTicks"] or None)
    told = {"usedTicks": found["value"], "error": found["error"]}
    # Without ticks there is none: 0 and null are the same answer.
    return told, {"usedTicks": expect["usedTicks"] or None, "error": expect.get("error", not expect["usedTicks"])}


@adapter("meminfo.usage")
def memory_in_use(given: Any, expect: Any) -> tuple[Any, Any]:
    """Use without page cache: with it, it is asked for nowhere here."""
    try:
        seen = procfs.memory(of_texts({"/proc/meminfo": given["meminfo"]}))
    except (OSError, ValueError):
        return {"error": True}, {"error": expect.get("error", False)}
    return seen.total - seen.available, expect["usedBytesWithoutCache"]


@adapter("metric.node_usage")
def node_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    """A sample is whole or none: without a rate there is no memory either."""
    texts = {"/proc/stat": given["procStat"], "/proc/meminfo": given["procMeminfo"]}
    files = of_texts(texts)
    try:
        busy, memory = procfs.node_cpu_ticks(files), procfs.memory(files)
    except (OSError, ValueError):
        return _sample(None, 0), _rounded(expect)
    rate = rate_of(given["lastTicks"], busy, given["elapsedSeconds"])
    cores = None if rate is None else rate * given["jiffyMs"] / 1000
    return _sample(cores, memory.total - memory.available), _rounded(expect)


def rate_of(before: float | None, after: float, seconds: float) -> float | None:
    """What a counter says; None where nothing was seen before."""
    counter = Counter()
    if before is not None:
        counter.rate(0, before)
    return counter.rate(seconds, after)


def _sample(cores: float | None, memory: int) -> dict[str, float | None]:
    return _rounded({"cpuCores": cores, "memoryBytes": None if cores is None else memory})


def _rounded(sample: Any) -> Any:
    """Cores without the noise of doubles."""
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in sample.items()}


@adapter("metric.host_app_usage")
def host_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    """Memory is that without page cache: no other policy is built."""
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    wanted = _rounded({name: expect[name] for name in ("cpuCores", "memoryBytes")})
    try:
        used, memory = seen.cpu_usage_ns(GROUP), seen.memory(GROUP)
    except (OSError, ValueError):
        return _sample(None, 0), wanted
    rate = rate_of(given["lastCPUUsageNs"], used, given["elapsedSeconds"])
    return _sample(None if rate is None else rate / 1e9, memory), wanted


@adapter("metric.be_usage_milli")
def be_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    """A first look, or no time in between, gives no value, and that is no error."""
    rate = rate_of(given.get("lastCPUUsageNs"), given["cpuacctUsageNs"], given.get("elapsedSeconds") or 0)
    return {"usedMilliCores": None if rate is None else round(rate / 1e6), "error": False}, expect


@adapter("metric.pod_usage")
def pod_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    """CPU and memory as each is read; a sample of a pod needs both."""
    seen, _ = cgroups(given["cgroupVersion"], given["files"])
    wanted = _rounded({name: expect[name] for name in ("cpuCores", "memoryBytes")})
    try:
        used, memory = seen.cpu_usage_ns(GROUP), seen.memory(GROUP)
    except (OSError, ValueError):
        return _sample(None, 0), wanted
    rate = rate_of(given.get("lastCPUUsageNs"), used, given.get("elapsedSeconds") or 0)
    return _rounded({"cpuCores": None if rate is None else rate / 1e9, "memoryBytes": memory}), wanted


@adapter("metric.be_real_limit_milli")
def limit(given: Any, expect: Any) -> tuple[Any, Any]:
    seen, _ = cgroups(given["cgroupVersion"], given["beRootFiles"])

    def read() -> int:
        root = _state(seen)
        cpus, quota = len(_known(root.effective)), _known(root.quota_us)
        return measured.be_limit_milli(cpus=cpus, quota_us=quota, period_us=root.period_us)

    return {"milliLimit": attempt(read, None)["value"]}, expect


@adapter("metric.be_request_milli")
def request(given: Any, expect: Any) -> tuple[Any, Any]:
    pods = [pod_reader.from_wire(msgspec.convert(each, objects.PodObject)) for each in given["pods"] or []]
    asked = sum(each.request_value(keys.BATCH_CPU) for each in pods if each.raw_qos is QoSClass.BE)
    return {"milliRequest": asked}, expect


@adapter("cgroup.pod_parent_dir")
def pod_dir(given: Any, expect: Any) -> tuple[Any, Any]:
    names = layout(1, given["driver"])
    return {"dir": cgroup_names.pod_group(names, given["uid"], KubeQoS(given["kubeQoS"]))}, expect


@adapter("cgroup.container_parent_dir")
def container_dir(given: Any, expect: Any) -> tuple[Any, Any]:
    parent = given["podParentDir"].rstrip("/")
    found = _container_group(given["driver"], parent, given["containerID"])
    return {"dir": found["value"], "error": found["error"]}, expect


@adapter("cgroup.container_dir_name")
def container_name(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = {name: expect[name] for name in ("dirName", "error")}
    found = _container_group(given["driver"], "p", given["containerID"])
    return {"dirName": found["value"].rpartition("/")[2], "error": found["error"]}, wanted


def _container_group(driver: str, parent: str, container: str) -> Any:
    """A container that was not made yet has no group, and no error."""
    return attempt(lambda: _known(cgroup_names.container_group(layout(1, driver), parent, container)), "")


@adapter("cgroup.host_app_dir")
def host_dir(given: Any, expect: Any) -> tuple[Any, Any]:
    document = {"applications": [given.get("hostApplication")]}
    data = {"host-application-config": json.dumps(document)}
    held = config.effective(data, labels={}, annotations={}, previous=None, node_owner="node")
    names = layout(1, given["driver"])
    return {"dir": "".join(pools.host_group(one, names) for one in held.host_applications)}, expect
