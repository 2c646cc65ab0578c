"""Reading and writing the machine: cgroup files, names of groups, use, and what an executor writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
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
from koordlite.model.picture.groups import Layout
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


def attempt(read: Callable[[], Any], failed: Any, name: str = "value") -> dict[str, Any]:
    """What is read, by this name, or what the vectors have beside an error."""
    try:
        return {name: read(), "error": False}
    except (OSError, ValueError, IndexError):
        return {name: failed, "error": True}


def reading(read: Callable[[Cgroups], Any], failed: Any) -> Callable[[Any], Any]:
    """A reader of the one group of a case; `failed` is what the vectors have where nothing can be read."""
    return lambda given: attempt(lambda: read(group_of(given)), failed)


def group_of(given: Any) -> Cgroups:
    """The machine of a case with its one group."""
    return cgroups(given["cgroupVersion"], given["files"])[0]


def of_text(version: int, name: str, text: str) -> Cgroups:
    """A machine whose one group holds this file alone."""
    return cgroups(version, {name: text})[0]


def _stat(version: int) -> Callable[[Any], Any]:
    return lambda given: attempt(lambda: _periods(of_text(version, "cpu.stat", given["input"])), None)


def _periods(seen: Cgroups) -> dict[str, int]:
    found = seen.throttling(GROUP)
    times = {"throttledNanoSeconds": found.time_ns}
    return {"nrPeriods": found.periods, "nrThrottled": found.throttled, **times}


def _known(value: Any) -> Any:
    if value is None:
        raise FileNotFoundError
    return value


mappings(
    {
        "reader.ReadCPUAcctUsage": reading(lambda seen: seen.cpu_usage_ns(GROUP), 0),
        "reader.ReadCPUQuota": reading(lambda seen: _known(seen.state(GROUP).quota_us), -1),
        "reader.ReadCPUPeriod": lambda given: attempt(
            lambda: Version(given["cgroupVersion"]).period_us(group_of(given).read_raw(GROUP, "cpu.period")), -1
        ),
        "reader.ReadCPUSet": reading(lambda seen: str(_known(seen.state(GROUP).effective)), None),
        "reader.ReadCPUShares": reading(lambda seen: seen.decode("cpu.shares", seen.read_raw(GROUP, "cpu.shares")), -1),
        "reader.ReadMemoryUsage": reading(lambda seen: int(seen.read_raw(GROUP, "memory.current")), 0),
        "reader.ReadCPUStat": reading(_periods, None),
        "parse.cpu_stat_v1": _stat(1),
        "parse.cpu_stat_v2": _stat(2),
        "parse.cpu_max_quota_v2": lambda given: attempt(
            lambda: of_text(2, "cpu.max", given["input"]).state(GROUP).quota_us, -1
        ),
        "parse.cpuacct_usage_v2_ns": lambda given: attempt(lambda: Version(2).usage_ns(given["input"].encode()), 0),
        "parse.weight_to_shares": lambda given: attempt(lambda: cgroup_fields.shares_of_weight(given["input"]), None),
        "parse.throttled_ratio": lambda given: {"ratio": _ratio(given["previous"], given["current"])},
        "metric.percentile": lambda given: attempt(
            lambda: measured.percentile(given["values"], given["percentile"]), 0
        ),
        "validate.range": lambda given: {"valid": bool(attempt(lambda: _is_within(given), False)["value"])},
        # A first look, or no time in between, gives no value, and that is no error.
        "metric.be_usage_milli": lambda given: {"usedMilliCores": _be_milli(given), "error": False},
        "metric.be_real_limit_milli": lambda given: {"milliLimit": attempt(lambda: _be_limit(given), None)["value"]},
        "metric.be_request_milli": lambda given: {"milliRequest": _be_request(given["pods"] or ())},
        "cgroup.pod_parent_dir": lambda given: {
            "dir": cgroup_names.pod_group(layout(1, given["driver"]), given["uid"], KubeQoS(given["kubeQoS"]))
        },
        "cgroup.container_parent_dir": lambda given: _container_group(given, given["podParentDir"].rstrip("/"), "dir"),
        "cgroup.host_app_dir": lambda given: {"dir": _host_group(given)},
    }
)


@adapter("parse.shares_to_weight")
def weight(given: Any, expect: Any) -> tuple[Any, Any]:
    """What stands beside an error means nothing."""
    return attempt(lambda: cgroup_fields.weight_of_shares(int(given["input"])), expect["value"]), expect


@adapter("metric.throttled_ratio")
def ratio_of_file(given: Any, expect: Any) -> tuple[Any, Any]:
    """Which version printed the file, its lines say."""
    text = (given["files"] or {}).get("cpu.stat") or ""
    version = given.get("cgroupVersion") or (2 if "throttled_usec" in text else 1)
    return {
        "ratio": reading(lambda seen: _ratio(given["last"], _periods(seen)), None)({**given, "cgroupVersion": version})[
            "value"
        ]
    }, expect


def _ratio(before: Any, after: Any) -> float | None:
    counter = Throttling()
    if before is not None:
        counter.ratio(before["nrPeriods"], before["nrThrottled"])
    return counter.ratio(after["nrPeriods"], after["nrThrottled"])


def _is_within(given: Any) -> bool:
    number = fields.Number(given["min"], given["max"])
    return bool(INTEGER.fullmatch(given["value"])) and number.allows(int(given["value"]))


@adapter("parse.proc_stat_total_ticks")
def ticks(given: Any, expect: Any) -> tuple[Any, Any]:
    files = of_texts({"/proc/stat": given["content"]})
    told = attempt(lambda: procfs.node_cpu_ticks(files), expect["usedTicks"] or None, "usedTicks")
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


@adapter("metric.host_app_usage", "metric.pod_usage")
def group_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    """CPU and memory as each is read; a sample needs both. Memory is that without page cache: no other policy is
    built."""
    wanted = _rounded({name: expect[name] for name in ("cpuCores", "memoryBytes")})
    seen = group_of(given)
    try:
        used, memory = seen.cpu_usage_ns(GROUP), seen.memory(GROUP)
    except (OSError, ValueError):
        return _sample(None, 0), wanted
    rate = rate_of(given.get("lastCPUUsageNs"), used, given.get("elapsedSeconds") or 0)
    return _rounded({"cpuCores": None if rate is None else rate / 1e9, "memoryBytes": memory}), wanted


def _be_milli(given: Any) -> int | None:
    rate = rate_of(given.get("lastCPUUsageNs"), given["cpuacctUsageNs"], given.get("elapsedSeconds") or 0)
    return None if rate is None else round(rate / 1e6)


def _be_limit(given: Any) -> int:
    root = cgroups(given["cgroupVersion"], given["beRootFiles"])[0].state(GROUP)
    cpus, quota = len(_known(root.effective)), _known(root.quota_us)
    return measured.be_limit_milli(cpus=cpus, quota_us=quota, period_us=root.period_us)


def _be_request(listed: Any) -> int:
    pods = (pod_reader.from_wire(msgspec.convert(each, objects.PodObject)) for each in listed)
    return sum(each.request_value(keys.BATCH_CPU) for each in pods if each.raw_qos is QoSClass.BE)


def _container_group(given: Any, parent: str, name: str) -> dict[str, Any]:
    """A container that was not made yet has no group, and no error."""
    names, container = layout(1, given["driver"]), given["containerID"]
    return attempt(lambda: _known(cgroup_names.container_group(names, parent, container)), "", name)


@adapter("cgroup.container_dir_name")
def container_name(given: Any, expect: Any) -> tuple[Any, Any]:
    found = _container_group(given, "p", "dirName")
    return {**found, "dirName": found["dirName"].rpartition("/")[2]}, {name: expect[name] for name in found}


def _host_group(given: Any) -> str:
    data = {"host-application-config": json.dumps({"applications": [given.get("hostApplication")]})}
    held = config.effective(data, labels={}, annotations={}, previous=None, node_owner="node")
    return "".join(pools.host_group(one, layout(1, given["driver"])) for one in held.host_applications)
