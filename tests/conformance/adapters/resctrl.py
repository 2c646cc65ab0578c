"""Cache masks, bandwidth values, schemata lines, what is written into groups and read out of them."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import msgspec
from memory_files import MemoryFiles

from koordlite.changes.resctrl import TasksChange
from koordlite.host import procfs
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.qos import QoSClass
from koordlite.model.slo.qos import ClassQOS, ResctrlQOS, ResourceQOS
from koordlite.model.slo.settings import SLO
from koordlite.resctrl import bandwidth as schemata_bandwidth
from koordlite.resctrl import info as resctrl_info
from koordlite.resctrl import masks, schemata, shares
from koordlite.resctrl.filesystem import ResctrlFS
from koordlite.resctrl.shares import Shares
from koordlite.resctrl.values import CACHES, BandwidthCapability, CacheCapability, ControlGroup, Resctrl
from koordlite.strategies import resctrl
from tests.conformance import overlay
from tests.conformance.adapters import adapter, shapes

ROOT = "/sys/fs/resctrl"
_ANY_BANDWIDTH = {"min_bandwidth": "10", "bandwidth_gran": "10", "num_closids": "8"}
_ANY_CACHE = {"cbm_mask": "f", "min_cbm_bits": "1", "num_closids": "4"}
_UNREAD = ({"mbm_local_bytes": None, "mbm_total_bytes": None},)
INTEL = BandwidthCapability(10, 10, 100)
AMD = BandwidthCapability(0, 1, 2048, delay_linear=False)


@adapter("resctrl.l3_mask")
def mask(given: Any, expect: Any) -> tuple[Any, Any]:
    return _mask(given["cbm"] or 0, given["startPercent"] or 0, given["endPercent"] or 0), expect["mask"] or ""


@adapter("koord_cat_l3_mask")
def recorded_mask(given: Any, expect: Any) -> tuple[Any, Any]:
    return _mask(int(given["cbm"], 16), given["start"], given["end"]), expect


def _mask(cbm: int, start: int, end: int) -> str:
    try:
        cap = CacheCapability(cbm_mask=cbm, min_cbm_bits=1)
        return f"{masks.cache_mask(start_percent=start, end_percent=end, cap=cap):x}"
    except ValueError:
        return ""


@adapter("goresctrl_overlay")
def part_of_a_part(given: Any, expect: Any) -> tuple[Any, Any]:
    base, least = int(given["base"], 16), given["min_bits"]
    try:
        if "absolute" in given:
            found = overlay.absolute_part(base=base, mask=int(given["absolute"], 16), min_bits=least)
        else:
            found = overlay.percent_part(base=base, low=given["low"], high=given["high"], min_bits=least)
    except ValueError:
        return "error", expect if given["error"] is None else "error"
    return f"{found:x}", "error" if given["error"] else expect


@adapter("resctrl.mba_value")
def bandwidth(given: Any, expect: Any) -> tuple[Any, Any]:
    cap = AMD if given["vendorID"] == "AuthenticAMD" else INTEL
    found = schemata_bandwidth.fit(percent=given["mbaPercent"], cap=cap).value
    return "" if found is None else str(found), expect["value"]


@adapter("resctrl.schemata_format")
def lines(given: Any, expect: Any) -> tuple[Any, Any]:
    ids, mask, share = given["cacheIds"], given.get("l3Mask"), given.get("mb")
    values = {"l3": ("L3", int(mask, 16) if mask else None), "mb": ("MB", int(share) if share else None)}
    # The kernel takes a line with and without the last separator; ours goes without.
    found = {
        key: schemata.line(name, dict.fromkeys(ids, value)) + ";\n"
        for key, (name, value) in values.items()
        if value is not None
    }
    return {key: found.get(key, expect.get(key)) for key in expect}, expect


@adapter("resctrl.apply_l3", "resctrl.apply_mb")
def applied(given: Any, expect: Any) -> tuple[Any, Any]:
    """The last content of a group's file, which begins empty or with what was written before."""
    resource = "L3" if "cbm" in given else "MB"
    before = given.get("alreadyCachedMask") or given.get("alreadyCachedPercent")
    path = f"{ROOT}/{given['group']}/schemata"
    tree = MemoryFiles({} if given["groupSchemataPathMissing"] else {path: ""})
    ids = schemata.parse(given["rootSchemata"] or "").values
    present = next(iter(ids.values()), {})
    held = schemata.parse(f"{resource}:" + ";".join(f"{i}={before}" for i in present)).values if before else {}
    group = ControlGroup(held) if held else None
    try:
        asked = _asked(given["resourceQOSStrategy"] or {}, given["group"] or "")
        wanted, values = _to_write(given, resource, present, group, asked) if asked else ({}, {})
        ResctrlFS(tree).write_schemata(given["group"] or "", values)
    except (OSError, ValueError):
        return {"error": True, "written": None}, expect
    # What a group has from its beginning is not written, and stands there all the same.
    last = f"{schemata.line(resource, {**held.get(resource, {}), **wanted.get(resource, {})})};\n"
    return {"error": False, "written": last if wanted or held else None}, expect


def _asked(strategy: Any, group: str) -> Shares | None:
    """The part of a group's class; None when there is none."""
    found = (strategy.get(f"{group.lower()}Class") or {}).get("resctrlQOS")
    if found is None:
        return None
    ends = found.get("catRangeStartPercent"), found.get("catRangeEndPercent")
    return Shares(cache=None if None in ends else ends, bandwidth=found.get("mbaPercent"))


def _to_write(given: Any, resource: str, ids: Iterable[int], group: ControlGroup | None, asked: Shares) -> Any:
    """What the group is to hold, and what of it has to be written."""
    limit = AMD if given.get("vendorID") == "AuthenticAMD" else INTEL
    whole = given["cbm"] or 0 if resource == "L3" else limit.maximum
    machine = Resctrl(
        caches={"L3": CacheCapability(given["cbm"] or 0, 1)} if resource == "L3" else {},
        bandwidths={"MB": limit} if resource == "MB" else {},
        groups={"": ControlGroup({resource: dict.fromkeys(ids, whole)})},
    )
    wanted = shares.allocate(machine, asked).values
    return wanted, shares.to_write(machine, group, wanted)


@adapter("resctrl.write_tasks")
def moved(given: Any, expect: Any) -> tuple[Any, Any]:
    """In ascending order, in which the strategy gives them."""
    wanted = {**expect, "writesInOrder": expect["writesInOrder"] or []}
    path = f"{ROOT}/{given['group']}/tasks"
    tree = MemoryFiles({path: None if given["pathMissing"] else ""})
    try:
        ResctrlFS(tree).move(given["group"], sorted(given["taskIds"] or ()))
    except OSError:
        return {"writesInOrder": [text.decode().strip() for _, text in tree.writes], "error": True}, wanted
    return {"writesInOrder": [text.decode().strip() for _, text in tree.writes], "error": False}, wanted


@adapter("resctrl.new_task_ids")
def new_threads(given: Any, expect: Any) -> tuple[Any, Any]:
    """What the strategy moves into the class's group, in whatever order."""
    pod = msgspec.structs.replace(shapes.pod_of(given["pod"]), phase="Running", raw_qos=QoSClass.BE)
    group = given["containerCgroupDir"] if given["dirIsReachable"] else None
    threads = {group: tuple(map(int, (given["containerTasksFile"] or "").split()))} if group else {}
    on = ClassQOS(resctrl_qos=ResctrlQOS(enable=True))
    hardware = Resctrl(
        bandwidths={"MB": INTEL},
        groups={
            "": ControlGroup({"MB": {0: 100}}),
            "BE": ControlGroup({"MB": {0: 100}}, frozenset(given["existingGroupTasks"] or ())),
        },
        threads=threads,
    )
    seen: Any = types.SimpleNamespace(
        slo=SLO(resource_qos=ResourceQOS(be_class=on)),
        resctrl=hardware,
        pods=(pod,),
        places={pod.uid: PodGroups(given["podCgroupDir"], {c.name: group for c in pod.containers[:1] if group})},
        host_groups={},
        ours=frozenset(),
    )
    changes = [change for decision in resctrl.decide(seen, resctrl.Config()) for change in decision.changes]
    found = [tid for change in changes if isinstance(change, TasksChange) for tid in change.tids]
    return {"taskIds": sorted(found)}, {"taskIds": sorted(expect["taskIds"] or ())}


@adapter("resctrl.schemata_valid")
def usable(given: Any, expect: Any) -> tuple[Any, Any]:
    """Whether such a machine is used: what its root's schemata name, its `info` folder has."""
    if given["schemata"] is None:
        return {"error": bool(ResctrlFS(MemoryFiles({})).read().absent)}, expect
    try:
        present = schemata.parse(given["schemata"]).values
    except ValueError:
        return {"error": True}, expect
    info = {name: _ANY_CACHE if name in CACHES else _ANY_BANDWIDTH for name in present}
    files = {f"{ROOT}/info/{name}/{file}": text for name in present for file, text in info[name].items()}
    tree = MemoryFiles({**files, f"{ROOT}/info/last_cmd_status": "ok\n", f"{ROOT}/schemata": given["schemata"]})
    return {"error": bool(ResctrlFS(tree).read().absent)}, expect


@adapter("resctrl.read_tasks")
def threads_of_a_group(given: Any, expect: Any) -> tuple[Any, Any]:
    tree = MemoryFiles({f"{ROOT}/BE/tasks": given["tasksFile"]})
    try:
        return {"tasks": sorted(ResctrlFS(tree).tasks("BE")), "error": False}, expect
    except ValueError:
        return {"tasks": None, "error": True}, expect


@adapter("resctrl.vendor_id")
def vendor(given: Any, expect: Any) -> tuple[Any, Any]:
    found = procfs.processor(MemoryFiles({"/proc/cpuinfo": given["cpuinfo"]})).vendor
    return {"vendorID": found or "unknown", "error": False}, expect


@adapter("resctrl.kernel_cmdline")
def switched_on(given: Any, expect: Any) -> tuple[Any, Any]:
    found = resctrl_info.command_line(MemoryFiles({"/proc/cmdline": given["cmdline"]}))
    words = {"cat": "l3cat", "mba": "mba"}
    return {name: found.get(words[name], False) for name in expect}, expect


@adapter("resctrl.vendor_supported")
def supported(given: Any, expect: Any) -> tuple[Any, Any]:
    """Whether a machine of that vendor is used when its kernel offers cache allocation."""
    files = {f"{ROOT}/info/L3/{name}": f"{value}\n" for name, value in _ANY_CACHE.items()}
    named = {"/proc/cpuinfo": f"vendor_id : {given['vendorID']}\n", f"{ROOT}/schemata": "L3:0=f\n"}
    return {"supported": not ResctrlFS(MemoryFiles({**files, **named})).read().absent}, expect


@adapter("resctrl.cpuinfo_cat_mba", "resctrl.cpuinfo_cqm", "resctrl.cpuinfo_mbm")
def flags(given: Any, expect: Any) -> tuple[Any, Any]:
    found = procfs.processor(MemoryFiles({"/proc/cpuinfo": given["cpuinfo"]})).flags
    wanted = {
        "cat": {"cat_l3"},
        "mba": {"mba"},
        "cqm": {"cqm_llc", "cqm_occup_llc"},
        "mbm": {"cqm_mbm_total", "cqm_mbm_local"},
    }
    return {name: wanted[name] <= found for name in expect}, expect


@adapter("resctrl.mon_llc")
def occupancy(given: Any, expect: Any) -> tuple[Any, Any]:
    return _counted({str(cache): each.occupancy_bytes for cache, each in _counters(given).items()}, expect)


@adapter("resctrl.mon_mb")
def bandwidth_used(given: Any, expect: Any) -> tuple[Any, Any]:
    found = _counters(given).items()
    names = ("mbm_local_bytes", "mbm_total_bytes")
    by_id = {cache: dict(zip(names, (c.local_bytes, c.total_bytes), strict=True)) for cache, c in found}
    return _counted({str(cache): amounts for cache, amounts in by_id.items()}, expect)


def _counted(by_id: Any, expect: Any) -> tuple[Any, Any]:
    """A group that counts nothing is an error there, and nothing to tell here; so is a counter that cannot be read."""
    told = {cache: value for cache, value in by_id.items() if value is not None and value not in _UNREAD}
    return {"byCacheId": told, "error": not told}, {**expect, "byCacheId": expect["byCacheId"] or {}}


def _counters(given: Any) -> Any:
    files = {
        "/".join(filter(None, (ROOT, group, "mon_data", folder, file))): text
        for group, folders in given["monData"].items()
        for folder, contents in folders.items()
        for file, text in contents.items()
    }
    return ResctrlFS(MemoryFiles(files)).counters(given["group"])
