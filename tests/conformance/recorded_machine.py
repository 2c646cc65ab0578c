"""The machine that a resctrl transcript was recorded on, out of its kernel version, its hardware keys and its CPUs."""

from __future__ import annotations

import re
from typing import Any

from koordlite.lab.machine.machine import EVENTS, RDT, Bandwidth, Cache, LogicalCPU, Machine, Monitoring, NodeMemory

MiB = 2**20
_L3_BYTES = {"intel": 16 * MiB, "amd": 32 * MiB}
_L2_BYTES = {"intel": 4 * MiB, "amd": MiB // 2}
_DEFAULTS = {
    "common": "l3clos:16,l3share:0,cdp:1,l2:0,l2clos:8,l2share:0,cdpl2:1,mba:1,mbagran:10,permba:0,mbaexp:11,"
    "smbaclos:16,mon:7,rmids:32,noncont:0",
    "intel": "l3:12,mbaclos:8,scale:65536,smba:0,bmec:0,mincbm:1",
    "amd": "l3:16,mbaclos:16,scale:64,smba:1,bmec:1,mincbm:0",
}


def machine(recording: Any) -> Machine:
    """The machine, with resctrl not mounted."""
    cpus = tuple(_cpu(each) for each in recording["cpus"])
    sizes = [int(each["l3_size"].rstrip("K")) * 1024 for each in recording["cpus"] if "l3_size" in each]
    flavour = recording["flavour"]
    return Machine(
        name="recorded",
        vendor="AuthenticAMD" if flavour == "amd" else "GenuineIntel",
        model="",
        flags="",
        cpus=cpus,
        nodes=tuple(NodeMemory(node, 2**30, (10,)) for node in sorted({cpu.node for cpu in cpus})),
        cgroup_version=2,
        driver="cgroupfs",
        rdt=hardware(recording),
        l3_bytes=sizes[0] if sizes else _L3_BYTES[flavour],
        l2_bytes=_L2_BYTES[flavour],
        resctrl=None,
    )


def hardware(recording: Any) -> RDT | None:
    """What CPUID said; None on a machine without RDT."""
    found = re.search(r"\bfake_rdt=(\S+)", recording["cmdline"])
    if not found:
        return None
    flavour = recording["flavour"]
    keys = _keys(_DEFAULTS["common"]) | _keys(_DEFAULTS[flavour]) | _keys(found[1] if ":" in found[1] else "")
    major, minor = re.findall(r"\d+", recording["kernel"])[:2]
    return RDT(
        amd=flavour == "amd",
        kernel=(int(major), int(minor)),
        l3=_cache(keys, "l3", "cdp", least=keys["mincbm"]),
        l2=_cache(keys, "l2", "cdpl2", least=0 if flavour == "amd" else 1),
        mb=_bandwidth(keys, flavour, "mbaclos") if keys["mba"] else None,
        smba=_bandwidth(keys, flavour, "smbaclos") if keys["smba"] else None,
        monitoring=_monitoring(keys, flavour),
    )


def _keys(text: str) -> dict[str, int]:
    pairs = (piece.split(":") for piece in text.split(",") if piece)
    return {name: int(value, 0) for name, value in pairs}


def _cache(keys: dict[str, int], name: str, cdp: str, *, least: int) -> Cache | None:
    if not keys[name]:
        return None
    return Cache(
        bits=keys[name],
        closids=keys[f"{name}clos"],
        min_bits=least,
        shareable=keys[f"{name}share"],
        cdp=bool(keys[cdp]),
        sparse=bool(keys["noncont"]),
    )


def _bandwidth(keys: dict[str, int], flavour: str, closids: str) -> Bandwidth:
    if flavour == "amd":
        full = 1 << keys["mbaexp"]
        return Bandwidth(closids=keys[closids], minimum=0, granularity=1, full=full, linear=False, throttle="")
    step = keys["mbagran"]
    throttle = "per-thread" if keys["permba"] else "max"
    return Bandwidth(closids=keys[closids], minimum=step, granularity=step, throttle=throttle)


def _monitoring(keys: dict[str, int], flavour: str) -> Monitoring | None:
    if not keys["mon"]:
        return None
    return Monitoring(
        events=tuple(event for bit, event in enumerate(EVENTS) if keys["mon"] >> bit & 1),
        rmids=keys["rmids"],
        unit_bytes=keys["scale"] or 1,
        counter_bits=44 if flavour == "amd" else 32,
        configurable=bool(keys["bmec"]),
    )


def _cpu(each: Any) -> LogicalCPU:
    node = each.get("node") or [f"node{each['package']}"]
    return LogicalCPU(
        id=each["cpu"],
        package=int(each["package"]),
        core=int(each["core"]),
        node=int(node[0].removeprefix("node")),
        l3=_number(each.get("l3_id")),
        l2=_number(each.get("l2_id")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text else None
