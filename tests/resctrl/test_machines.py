"""Small trees of real machines: what each of them can divide, and what a part in percent comes to there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from koordlite.resctrl import shares
from koordlite.resctrl.filesystem import ResctrlFS
from koordlite.resctrl.shares import Shares
from koordlite.resctrl.values import MonitorCapability, Resctrl

if TYPE_CHECKING:
    from planted import Rooted

ROOT = "/sys/fs/resctrl"
Tree = dict[str, str]


def cache(name: str, mask: str, least: str = "1", closids: str = "16", **more: str) -> Tree:
    files = {"cbm_mask": mask, "min_cbm_bits": least, "shareable_bits": "0", "num_closids": closids, **more}
    return {f"{ROOT}/info/{name}/{file}": f"{text}\n" for file, text in files.items()}


def intel_mb(throttle: str = "max") -> Tree:
    files = {"min_bandwidth": "10", "bandwidth_gran": "10", "delay_linear": "1", "num_closids": "8"}
    files |= {"thread_throttle_mode": throttle} if throttle else {}
    return {f"{ROOT}/info/MB/{file}": f"{text}\n" for file, text in files.items()}


def amd_mb(name: str = "MB") -> Tree:
    files = {"min_bandwidth": "0", "bandwidth_gran": "1", "delay_linear": "0", "num_closids": "16"}
    return {f"{ROOT}/info/{name}/{file}": f"{text}\n" for file, text in files.items()}


def monitoring(
    features: str = "llc_occupancy mbm_total_bytes mbm_local_bytes", rmids: str = "176", **more: str
) -> Tree:
    files = {
        "num_rmids": rmids,
        "mon_features": features.replace(" ", "\n"),
        "max_threshold_occupancy": "65536",
        **more,
    }
    return {f"{ROOT}/info/L3_MON/{file}": f"{text}\n" for file, text in files.items()}


def tree(schemata: str, *parts: Tree, mounted: str = "rw,relatime") -> Tree:
    files = {
        f"{ROOT}/schemata": schemata,
        f"{ROOT}/info/last_cmd_status": "ok\n",
        "/proc/self/mounts": f"proc /proc proc rw 0 0\nresctrl {ROOT} resctrl {mounted} 0 0\n",
    }
    for part in parts:
        files |= part
    return files


ONE_SOCKET = tree("    MB:0=100\n    L3:0=7ff\n", cache("L3", "7ff", shareable_bits="600"), intel_mb(), monitoring())
OLD_KERNEL = tree("    L3:0=fffff;1=fffff\n    MB:0=100;1=100\n", cache("L3", "fffff"), intel_mb(throttle=""))
CDP = tree(
    "    MB:0=100;1=100\nL3DATA:0=fff;1=fff\nL3CODE:0=fff;1=fff\n",
    cache("L3CODE", "fff", closids="8"),
    cache("L3DATA", "fff", closids="8"),
    intel_mb(),
    mounted="rw,relatime,cdp",
)
NO_MB = tree("L3:0=fffff;1=fffff\n", cache("L3", "fffff", least="2", closids="4"))
MBPS = tree(
    "    MB:0=4294967295;1=4294967295\n    L3:0=fff;1=fff\n",
    cache("L3", "fff"),
    intel_mb(),
    mounted="rw,relatime,mba_MBps",
)
L2_ONLY = tree("L2:0=ff;1=ff;2=ff;3=ff\n", cache("L2", "ff", closids="8"))
MILAN = tree("    MB:0=2048;1=2048\n    L3:0=ffff;1=ffff\n", cache("L3", "ffff", least="0"), amd_mb(), monitoring())
GENOA = tree(
    "  SMBA:0=4096;1=4096;8=4096;9=4096\n    MB:0=4096;1=4096;8=4096;9=4096\n    L3:0=ffff;1=ffff;8=ffff;9=ffff\n",
    cache("L3", "ffff", least="0", sparse_masks="1"),
    amd_mb(),
    amd_mb("SMBA"),
    monitoring(
        "llc_occupancy mbm_total_bytes mbm_total_bytes_config",
        mbm_assign_mode="[mbm_event]\ndefault",
        num_mbm_cntrs="0=32;8=32",
        available_mbm_cntrs="0=30;8=32",
    ),
)
MPAM = tree(
    "MB:1=100;2=100\nL3:1=ffff;2=ffff\n",
    cache("L3", "ffff", closids="32"),
    {
        f"{ROOT}/info/MB/{file}": f"{text}\n"
        for file, text in {
            "min_bandwidth": "0",
            "bandwidth_gran": "3",
            "delay_linear": "1",
            "num_closids": "32",
        }.items()
    },
)
SNC = tree("    MB:0=100;1=100\n    L3:0=fff;1=fff\n", cache("L3", "fff"), intel_mb(), monitoring(rmids="88"))
LATEST = tree("    MB:0=100\n    L3:0=fff\n", cache("L3", "fff", io_alloc="enabled"), intel_mb(throttle="per-thread"))


@pytest.mark.parametrize(
    ("files", "values", "most"),
    [
        pytest.param(ONE_SOCKET, {"L3": {0: 0xF}, "MB": {0: 50}}, 7, id="Intel, one socket, 11 ways"),
        pytest.param(OLD_KERNEL, {"L3": {0: 0x3F, 1: 0x3F}, "MB": {0: 50, 1: 50}}, 7, id="Intel, two sockets, 5.15"),
        pytest.param(
            CDP,
            {"L3CODE": {0: 0xF, 1: 0xF}, "L3DATA": {0: 0xF, 1: 0xF}, "MB": {0: 50, 1: 50}},
            7,
            id="code and data apart",
        ),
        pytest.param(NO_MB, {"L3": {0: 0x3F, 1: 0x3F}}, 3, id="no bandwidth"),
        pytest.param(MBPS, {"L3": {0: 0xF, 1: 0xF}}, 7, id="bandwidth in MB/s, and what 100 % is was not configured"),
        pytest.param(L2_ONLY, {}, 7, id="L2 only: it is nobody's business"),
        pytest.param(MILAN, {"L3": {0: 0x1F, 1: 0x1F}, "MB": {0: 80, 1: 80}}, 15, id="Milan"),
        pytest.param(
            GENOA,
            {"L3": dict.fromkeys((0, 1, 8, 9), 0x1F), "MB": dict.fromkeys((0, 1, 8, 9), 160)},
            15,
            id="Genoa: gaps in the ids, a larger maximum, slow memory left alone",
        ),
        pytest.param(MPAM, {"L3": {1: 0x1F, 2: 0x1F}, "MB": {1: 51, 2: 51}}, 31, id="ARM counts in percent from 0"),
        pytest.param(LATEST, {"L3": {0: 0xF}, "MB": {0: 50}}, 6, id="I/O has a class of its own"),
    ],
)
def test_a_third_of_the_cache_and_half_the_bandwidth(
    machine: Rooted, files: Tree, values: Mapping[str, Mapping[int, int]], most: int
) -> None:
    found = ResctrlFS(machine.plant(files)).read()
    assert shares.allocate(found, Shares(cache=(0, 30), bandwidth=50)).values == values
    assert found.max_groups == most


@pytest.mark.parametrize(
    ("files", "holes"),
    [(MILAN, True), (GENOA, True), (OLD_KERNEL, False)],
    ids=["AMD before 6.7, which has no file for it", "sparse_masks", "Intel before 6.7"],
)
def test_masks_may_have_holes(machine: Rooted, files: Tree, holes: bool) -> None:
    assert ResctrlFS(machine.plant(files)).read().caches["L3"].sparse_masks == holes


@pytest.mark.parametrize(
    ("files", "reach", "value"),
    [(MBPS, 20_000, 10_000), (GENOA, 48_000, 192), (ONE_SOCKET, 48_000, 50)],
    ids=["MB/s", "eighths of a GB/s", "percent needs no reach"],
)
def test_the_reach_says_what_all_is(machine: Rooted, files: Tree, reach: int, value: int) -> None:
    found = ResctrlFS(machine.plant(files)).read()
    wanted = shares.allocate(found, Shares(bandwidth=50), l3_bandwidth_mbps=reach)
    assert set(wanted.values["MB"].values()) == {value}


def test_percents_that_hardware_stores_in_its_own_steps_are_not_written_again(machine: Rooted) -> None:
    found = ResctrlFS(machine.plant({**MPAM, f"{ROOT}/BE/schemata": "MB:1=50;2=33\nL3:1=1f;2=1f\n"})).read()
    wanted = shares.allocate(found, Shares(cache=(0, 30), bandwidth=50)).values
    assert shares.to_write(found, found.groups["BE"], wanted) == {"MB": {2: 51}}


@pytest.mark.parametrize(
    ("files", "monitor"),
    [
        pytest.param(NO_MB, None, id="none"),
        pytest.param(
            SNC,
            MonitorCapability(88, ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"), 65536),
            id="sub-NUMA clusters share the ids",
        ),
        pytest.param(
            GENOA,
            MonitorCapability(
                176, ("llc_occupancy", "mbm_total_bytes"), 65536, "mbm_event", {0: 32, 8: 32}, {0: 30, 8: 32}
            ),
            id="counters that are assigned",
        ),
    ],
)
def test_what_can_be_monitored(machine: Rooted, files: Tree, monitor: MonitorCapability | None) -> None:
    assert ResctrlFS(machine.plant(files)).read().monitor == monitor


def test_a_machine_that_only_monitors_is_absent_and_says_so(machine: Rooted) -> None:
    found = ResctrlFS(machine.plant(tree("", monitoring()))).read()
    assert "can only monitor" in found.absent
    assert found.monitor is not None


def test_a_machine_without_anything(machine: Rooted) -> None:
    assert ResctrlFS(machine.plant({"/proc/filesystems": "nodev\tproc\n"})).read() == Resctrl(
        absent="this CPU or this kernel has no resctrl: /proc/filesystems does not list it"
    )


def test_what_is_in_info_is_read_once(machine: Rooted) -> None:
    resctrl = ResctrlFS(machine.plant(ONE_SOCKET))
    resctrl.read()
    machine.plant({f"{ROOT}/info/L3/cbm_mask": "fff\n"})
    assert resctrl.read().caches["L3"].ways == 11
    machine.plant(cache("L2", "ff"))
    assert resctrl.read().caches["L3"].ways == 12, "another list of resources is another mount"


def test_a_group_just_made_tells_the_largest_bandwidth(machine: Rooted) -> None:
    limited = {**GENOA, f"{ROOT}/schemata": "MB:0=16;1=16\nL3:0=ffff;1=ffff\n"}
    resctrl = ResctrlFS(Making(machine.plant(limited), "MB:0=4096;1=4096\nL3:0=ffff;1=ffff\n"))
    before = resctrl.read().bandwidths["MB"]
    assert resctrl.make_group("BE")
    after = resctrl.read().bandwidths["MB"]
    assert [(cap.maximum, cap.maximum_known) for cap in (before, after)] == [(2048, False), (4096, True)]


class Making:
    """A machine whose new groups have these schemata."""

    def __init__(self, machine: Rooted, fresh: str) -> None:
        self.machine, self.fresh = machine, fresh
        self.read, self.list, self.write, self.rmdir = machine.read, machine.list, machine.write, machine.rmdir

    def mkdir(self, path: str) -> None:
        self.machine.mkdir(path)
        self.machine.plant({f"{path}/schemata": self.fresh})
