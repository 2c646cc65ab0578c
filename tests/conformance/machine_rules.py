"""Rules that explain differences about files of the kernel: each asserts what ours says instead."""

from __future__ import annotations

import re
from typing import Any

from koordlite.model.cpuset import CPUSet
from tests.conformance.adapters import kernel_files
from tests.conformance.deviations import deviation

_MEMORY = ("inactive_anon", "active_anon", "unevictable")
_PAGE = 4096
_REFUSED = {"value": 0, "error": True}


@deviation(
    "memory-stat-lines: only the lines that make up the use without page cache are read",
    "parse.memory_stat_v1",
    "parse.memory_stat_v2",
    "reader.ReadMemoryStat",
)
def memory_lines(given: Any, wanted: Any, found: Any) -> bool:
    """The sum of the lines that count; a file that lacks others is still read."""
    if wanted["error"]:
        text = given.get("input") or "".join(given.get("files", {}).values())
        return not found["error"] and all(name in text for name in _MEMORY)
    return bool(found == {"value": sum(wanted["value"][name] for name in _MEMORY), "error": False})


@deviation("cpu-stat-lines: user and system time are not told apart", "parse.cpu_stat_v2_full")
def stat_lines(given: Any, wanted: Any, found: Any) -> bool:
    """All but user and system time."""
    if wanted["error"]:
        read = set(re.findall(r"^(user|system)_usec \d+$", given["input"], re.MULTILINE))
        return not found["error"] and read != {"user", "system"}
    rest = {name: value for name, value in wanted["value"].items() if name not in ("userUsec", "systemUSec")}
    return bool(found == {"value": rest, "error": False})


@deviation("cpu-max-period: a cpu.max whose period is no number is refused", "parse.cpu_max_quota_v2")
def period_unread(given: Any, wanted: Any, found: Any) -> bool:
    """The whole of cpu.max is refused when its period is no number."""
    period = given["input"].split()[1:]
    return bool(period and not period[0].isdigit() and found == {"value": -1, "error": True})


@deviation(
    "numa-memory-bytes: bytes are added as they are, and node ids may have gaps",
    "parse.memory_numa_stat_v2",
    "reader.ReadMemoryNumaStat",
)
def numa_bytes(given: Any, wanted: Any, found: Any) -> bool:
    """Bytes are added before they are counted in pages, and ids may have gaps."""
    text = given.get("input") or (given.get("files") or {}).get("memory.numa_stat", "")
    rows = re.findall(r"^(?:anon|file) (.*)$", text, re.MULTILINE)
    used: dict[int, int] = {}
    for node, amount in re.findall(r"N(\d+)=(\d+)", " ".join(rows)):
        used[int(node)] = used.get(int(node), 0) + int(amount)
    pages = [{"numaId": node, "pagesNum": used[node] // _PAGE} for node in sorted(used)]
    return len(rows) == 2 and bool(found == {"value": pages, "error": False})


@deviation(
    "evict-be-limit: the set and the quota of the besteffort group count, not the smallest container",
    "metric.be_real_limit_milli",
)
def group_limit(given: Any, wanted: Any, found: Any) -> bool:
    """All CPUs of the group, or its quota where that is less."""
    files = given["beRootFiles"]
    cpus = CPUSet.parse(files.get("cpuset.cpus.effective") or files["cpuset.cpus"])
    quota, period = (files.get("cpu.max") or f"{files['cpu.cfs_quota_us']} {files.get('cpu.cfs_period_us', 1)}").split()
    bounds = [len(cpus) * 1000, *([] if quota in ("max", "-1") else [int(quota) * 1000 // int(period)])]
    return bool(given["beContainers"]) and found == {"milliLimit": min(bounds)}


@deviation("cold-pages: kidled is not read", "reader.ReadColdPageUsage")
def cold_pages(given: Any, wanted: Any, found: Any) -> bool:
    """There is no such field."""
    return bool(found == _REFUSED)


@deviation(
    "network-class: net_cls is not written",
    "validate.net_cls_classid",
    "executor.update",
    "executor.cgroup_update",
    "executor.write_if_different",
)
def network_class(given: Any, wanted: Any, found: Any) -> bool:
    """There is no such field."""
    if "resource" in given:
        return given["resource"] == "net_cls.classid" and _is_refused(given, found)
    return bool(found == {"valid": False})


def _is_refused(given: Any, found: Any) -> bool:
    """An error, and nothing was written."""
    unchanged = found.get("fileAfter", given.get("fileBefore")) == given.get("fileBefore")
    return bool(found["error"] and unchanged and not found.get("updated") and not found.get("written"))


@deviation(
    "metric-one-instant: all parts are of one sample, and what has none counts as nothing", "metric.system_usage"
)
def one_instant(given: Any, wanted: Any, found: Any) -> bool:
    """What has no sample counts as nothing; only without the node's own is there no answer."""
    parts = [*(given["podsByCollector"] or {}).values(), given["hostApps"]]
    fresh = [part for part in parts if part and part["ageSeconds"] <= given["outdatedIntervalSeconds"]]
    names = ("cpuCores", "memoryBytes")
    left = {name: round(max(given["node"][name] - sum(part[name] for part in fresh), 0), 9) for name in names}
    whole = len(fresh) == len(parts) and given["podsByCollector"]
    return not whole and wanted == {"system": None} and bool(found == {"system": left})


@deviation("executor-cache: there is no cache that has to be started first", "executor.update")
def written_outright(given: Any, wanted: Any, found: Any) -> bool:
    """No cache that has to be started: what can be written is."""
    return not given["gcStarted"] and bool(found == {"updated": True, "error": False})


@deviation(
    "executor-kubelet-fields: a container's memory limit is kubelet's alone",
    "executor.update",
    "executor.cgroup_update",
    "executor.write_if_different",
)
def kubelet_field(given: Any, wanted: Any, found: Any) -> bool:
    """A file that only kubelet writes."""
    return given["resource"] == "memory.limit_in_bytes" and _is_refused(given, found)


@deviation("executor-gone: a file that is not there was not updated", "executor.update")
def gone_told(given: Any, wanted: Any, found: Any) -> bool:
    """A group that is not there was not updated, and that is no error."""
    return not given["pathExists"] and bool(found == {"updated": False, "error": False})


@deviation("cpu-without-cache: a CPU without a known L3 is a CPU, and its L3 is not number 0", "cpuinfo.lscpu_parse")
def without_cache(given: Any, wanted: Any, found: Any) -> bool:
    """Every CPU of the table is there, and has no cache where the table names none."""
    rows = filter(kernel_files.is_online, kernel_files.rows(given["lscpu"]))
    named = {int(row[0]): row[4].split(":")[3] if row[4].count(":") == 3 else "" for row in rows}
    caches = {cpu: int(text) if text.isdigit() else None for cpu, text in named.items()}
    seen = {row["cpu"]: row["l3"] for row in found["processors"] or ()}
    return None in caches.values() and seen == caches and not found["error"]


@deviation("host-app-memory: use with page cache is not read, and cannot spoil the rest", "metric.host_app_usage")
def host_memory(given: Any, wanted: Any, found: Any) -> bool:
    """The sum with the page cache is not read, so that it cannot fail."""
    name = "memory.usage_in_bytes" if given["cgroupVersion"] == 1 else "memory.current"
    unread = not re.fullmatch(r"\d+\s*", given["files"].get(name, ""))
    return unread and set(wanted.values()) == {None} and None not in found.values()


@deviation("counter-back: a counter that went back gives no value", "parse.throttled_ratio", "metric.throttled_ratio")
def counter_back(given: Any, wanted: Any, found: Any) -> bool:
    """A counter that went back says nothing."""
    before = given.get("previous") or given.get("last")
    now = given.get("current") or dict(re.findall(r"(\w+) (\d+)", given.get("files", {}).get("cpu.stat", "")))
    names = (("nrPeriods", "nr_periods"), ("nrThrottled", "nr_throttled"))
    back = any(int(now.get(ours, now.get(kernels, 0))) < before[ours] for ours, kernels in names)
    return back and bool(found == {"ratio": None})


@deviation(
    "metric-shortest: times are what is configured, without a least one",
    "nodemetric.window",
    "nodemetric.report_interval",
)
def shortest_times(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator takes no less than a minute to average and half a minute to report; ours what is configured."""
    (asked,), (told,), (least,) = given.values(), found.values(), wanted.values()
    usual = {30: 60, 60: 300}.get(least)
    return bool(usual and asked < least and told == (asked if asked > 0 else usual))


@deviation("idle-weight: weight 0 is what the kernel prints for an idle group", "reader.ReadCPUShares")
def idle_weight(given: Any, wanted: Any, found: Any) -> bool:
    """The kernel prints weight 0 for an idle group."""
    return given["files"].get("cpu.weight", "").strip() == "0" and bool(found == {"value": 2, "error": False})


@deviation(
    "container-any-runtime: the name of a scope ends with the container's id, whatever runtime made it",
    "cgroup.parse_container_id",
)
def any_runtime(given: Any, wanted: Any, found: Any) -> bool:
    """What follows the last dash of a scope is the id, whatever runtime made it."""
    match = re.fullmatch(r"([\w-]+)-(\w+)\.scope", given["basename"])
    known = match and match[1] in ("docker", "cri-containerd", "crio")
    return bool(wanted["error"] and match and not known and found == {"id": match[2], "error": False})


@deviation("config-host-path: a path that leads out of its base is left out", "cgroup.host_app_dir")
def path_inside(given: Any, wanted: Any, found: Any) -> bool:
    """A path that leads out of its base is refused."""
    path = (given["hostApplication"] or {}).get("cgroupPath") or {}
    return ".." in "/".join(str(path.get(name)) for name in ("parentDir", "relativePath")) and found == {"dir": ""}
