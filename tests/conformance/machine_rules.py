"""Rules that explain differences about files of the kernel: each asserts what ours says instead."""

from __future__ import annotations

import re
from typing import Any

from koordlite.model.cpuset import CPUSet

_MEMORY = ("inactive_anon", "active_anon", "unevictable")
_PAGE = 4096
_REFUSED = {"value": 0, "error": True}


def memory_lines(given: Any, wanted: Any, found: Any) -> bool:
    """The sum of the lines that count; a file that lacks others is still read."""
    if wanted["error"]:
        text = given.get("input") or "".join(given.get("files", {}).values())
        return not found["error"] and all(name in text for name in _MEMORY)
    return bool(found == {"value": sum(wanted["value"][name] for name in _MEMORY), "error": False})


def stat_lines(given: Any, wanted: Any, found: Any) -> bool:
    """All but user and system time."""
    if wanted["error"]:
        return not found["error"] and not re.search(r"^(user|system)_usec \d+$", given["input"], re.MULTILINE)
    rest = {name: value for name, value in wanted["value"].items() if name not in ("userUsec", "systemUSec")}
    return bool(found == {"value": rest, "error": False})


def period_unread(given: Any, wanted: Any, found: Any) -> bool:
    """The whole of cpu.max is refused when its period is no number."""
    period = given["input"].split()[1:]
    return bool(period and not period[0].isdigit() and found == {"value": -1, "error": True})


def numa_bytes(given: Any, wanted: Any, found: Any) -> bool:
    """Bytes are added before they are counted in pages, and ids may have gaps."""
    text = given.get("input") or (given.get("files") or {}).get("memory.numa_stat", "")
    rows = re.findall(r"^(?:anon|file) (.*)$", text, re.MULTILINE)
    used: dict[int, int] = {}
    for node, amount in re.findall(r"N(\d+)=(\d+)", " ".join(rows)):
        used[int(node)] = used.get(int(node), 0) + int(amount)
    pages = [{"numaId": node, "pagesNum": used[node] // _PAGE} for node in sorted(used)]
    return len(rows) == 2 and bool(found == {"value": pages, "error": False})


def group_limit(given: Any, wanted: Any, found: Any) -> bool:
    """All CPUs of the group, or its quota where that is less."""
    files = given["beRootFiles"]
    cpus = CPUSet.parse(files.get("cpuset.cpus.effective") or files["cpuset.cpus"])
    quota, period = (files.get("cpu.max") or f"{files['cpu.cfs_quota_us']} {files['cpu.cfs_period_us']}").split()
    bounds = [len(cpus) * 1000, *([] if quota in ("max", "-1") else [int(quota) * 1000 // int(period)])]
    return bool(given["beContainers"]) and found == {"milliLimit": min(bounds)}


def cold_pages(given: Any, wanted: Any, found: Any) -> bool:
    """There is no such field."""
    return bool(found == _REFUSED)


def network_class(given: Any, wanted: Any, found: Any) -> bool:
    """There is no such field."""
    return bool(found == {"valid": False})


def metric_durations(given: Any, wanted: Any, found: Any) -> bool:
    """Everything but the durations of percentiles."""
    policy = dict(wanted["spec"]["metricCollectPolicy"])
    return policy.pop("nodeAggregatePolicy", None) is not None and found == {"spec": {"metricCollectPolicy": policy}}


def one_instant(given: Any, wanted: Any, found: Any) -> bool:
    """What has no sample counts as nothing; only without the node's own is there no answer."""
    parts = [*(given["podsByCollector"] or {}).values(), given["hostApps"]]
    fresh = [part for part in parts if part and part["ageSeconds"] <= given["outdatedIntervalSeconds"]]
    names = ("cpuCores", "memoryBytes")
    left = {name: max(given["node"][name] - sum(part[name] for part in fresh), 0) for name in names}
    return len(fresh) < len(parts) and wanted == {"system": None} and bool(found == {"system": left})


def written_outright(given: Any, wanted: Any, found: Any) -> bool:
    """No cache that has to be started: what can be written is."""
    return not given["gcStarted"] and bool(found == {"updated": True, "error": False})


def kubelet_field(given: Any, wanted: Any, found: Any) -> bool:
    """A file that only kubelet writes."""
    return given["resource"] == "memory.limit_in_bytes" and bool(found == {"updated": False, "error": True})


def gone_told(given: Any, wanted: Any, found: Any) -> bool:
    """A group that is not there was not updated, and that is no error."""
    return not given["pathExists"] and bool(found == {"updated": False, "error": False})


def without_cache(given: Any, wanted: Any, found: Any) -> bool:
    """Every CPU of the table is there, and has no cache where the table names none."""
    rows = [line.split() for line in given["lscpu"].strip().splitlines()[1:]]
    named = {int(row[0]): row[4].split(":")[3] if row[4].count(":") == 3 else "" for row in rows}
    caches = {cpu: int(text) if text.isdigit() else None for cpu, text in named.items()}
    seen = {row["cpu"]: row["l3"] for row in found["processors"] or ()}
    return None in caches.values() and seen == caches and not found["error"]


def system_as_a_whole(given: Any, wanted: Any, found: Any) -> bool:
    """There is something to tell by NUMA node, and ours tells nothing of it."""
    return bool(given["nodeNUMAMemory"] and not found["cpu"] and not found["memory"])
