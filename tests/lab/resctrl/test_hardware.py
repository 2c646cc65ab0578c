"""Every flavour of hardware and kernel shows itself as resctrl would: columns, info files, first values, refusals."""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec
import pytest
from kernel_processes import KernelProcesses
from kernel_resctrl import KernelResctrl

from koordlite.lab import shapes
from koordlite.lab.machine import shapes as machines
from koordlite.lab.machine.machine import RDT, Bandwidth, Cache, Monitoring, amd, flags
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl.filesystem import POINT

Attempt = Callable[[Tree, str, str], str]


def files_of(rdt: RDT, shape: str = "intel-2s-ht", options: str = "") -> Tree:
    """The machine of that shape with other hardware, mounted with these options."""
    machine = msgspec.structs.replace(machines.machine(shape), resctrl=options)
    resctrl = KernelResctrl(machine, rdt, KernelProcesses(10))
    tree = Tree()
    tree.place(POINT, resctrl.folder)
    return tree


def names(tree: Tree, folder: str) -> set[str]:
    return {name.rstrip("/") for name in tree.list(f"{POINT}/{folder}")}


@pytest.mark.parametrize(
    ("rdt", "options", "shown"),
    [
        pytest.param(RDT(l3=None), "", "MB:0=100;1=100\n", id="bandwidth alone needs no wide names"),
        pytest.param(RDT(l3=Cache(bits=5, cdp=False)), "", "MB:0=100;1=100\nL3:0=01f;1=01f\n", id="percent is 3 wide"),
        pytest.param(
            RDT(), "cdp", "    MB:0=100;1=100\nL3DATA:0=fff;1=fff\nL3CODE:0=fff;1=fff\n", id="cdp: data before code"
        ),
        pytest.param(
            amd((6, 12), bandwidth=4096),
            "",
            "  SMBA:0=4096;1=4096\n    MB:0=4096;1=4096\n    L3:0=ffff;1=ffff\n",
            id="slow memory comes first",
        ),
        pytest.param(
            amd((6, 8), bandwidth=4096, smba=None),
            "",
            "    MB:0=2048;1=2048\n    L3:0=ffff;1=ffff\n",
            id="before 6.9 AMD's maximum is 2048 whatever the CPU says",
        ),
        pytest.param(
            RDT(), "mba_MBps", "    MB:0=4294967295;1=4294967295\n    L3:0=fff;1=fff\n", id="no limit in MB/s"
        ),
        pytest.param(RDT(l3=None, mb=None), "", "", id="monitoring alone has an empty file"),
    ],
)
def test_schemata_of(rdt: RDT, options: str, shown: str) -> None:
    assert files_of(rdt, options=options).read(f"{POINT}/schemata").decode() == shown


@pytest.mark.parametrize(
    ("rdt", "folder", "has", "has_not"),
    [
        pytest.param(RDT(), "info", {"L3", "MB", "L3_MON"}, {"SMBA"}, id="Intel"),
        pytest.param(RDT(monitoring=None), "", {"schemata"}, {"mon_data", "mon_groups"}, id="no monitoring"),
        pytest.param(RDT(), "info/L3", {"cbm_mask"}, {"sparse_masks"}, id="6.1 does not tell of holes"),
        pytest.param(RDT(kernel=(6, 7)), "info/L3", {"sparse_masks"}, set(), id="6.7 does"),
        pytest.param(amd(), "info/MB", {"bandwidth_gran"}, {"thread_throttle_mode"}, id="AMD has no throttle mode"),
        pytest.param(amd((6, 2)), "info", {"MB"}, {"SMBA"}, id="6.2 does not know slow memory"),
    ],
)
def test_files_by_hardware_and_kernel(rdt: RDT, folder: str, has: set[str], has_not: set[str]) -> None:
    present = names(files_of(rdt), folder)
    assert has <= present
    assert not has_not & present


@pytest.mark.parametrize(
    ("cache", "kernel", "text", "answer"),
    [
        pytest.param(Cache(sparse=True), (6, 6), "L3:0=5\n", "EINVAL", id="holes before 6.7"),
        pytest.param(Cache(sparse=True), (6, 7), "L3:0=5\n", "ok", id="holes from 6.7"),
        pytest.param(
            Cache(sparse=True, min_bits=2), (6, 7), "L3:0=5\n", "EINVAL", id="the first run must be long enough"
        ),
        pytest.param(Cache(sparse=True, min_bits=2), (6, 7), "L3:0=b\n", "ok", id="of the others nothing is asked"),
    ],
)
def test_masks_with_holes(cache: Cache, kernel: tuple[int, int], text: str, answer: str, attempt: Attempt) -> None:
    assert attempt(files_of(RDT(kernel=kernel, l3=cache)), f"{POINT}/schemata", text) == answer


def test_the_software_controller_keeps_what_came_before_a_mistake(attempt: Attempt) -> None:
    tree = files_of(RDT(), options="mba_MBps")
    assert attempt(tree, f"{POINT}/schemata", "MB:0=7;0=9\n") == "ok"
    assert attempt(tree, f"{POINT}/schemata", "MB:1=5\nL3:0=0\n") == "EINVAL"
    assert tree.read(f"{POINT}/schemata").splitlines()[0] == b"    MB:0=  9;1=  5"


def test_each_numa_node_of_a_cache_is_counted_apart() -> None:
    tree = files_of(RDT(kernel=(6, 12), monitoring=Monitoring(rmids=64)), "intel-snc")
    assert names(tree, "mon_data/mon_L3_01") >= {"llc_occupancy", "mon_sub_L3_02", "mon_sub_L3_03"}
    assert tree.read(f"{POINT}/info/L3_MON/num_rmids") == b"32\n"
    assert "mon_sub_L3_02" not in names(files_of(RDT(kernel=(6, 10)), "intel-snc"), "mon_data/mon_L3_01")


@pytest.mark.parametrize("shape", shapes())
def test_the_flags_of_a_shape_are_those_of_its_hardware(shape: str) -> None:
    machine = machines.machine(shape)
    told = [word for word in machine.flags.split() if word in flags(RDT(l2=Cache()))]
    assert told == (flags(machine.rdt) if machine.rdt and machine.vendor != "ARM" else [])


def test_the_fewest_closids_of_any_resource_count() -> None:
    tree = files_of(RDT(l3=Cache(closids=9), mb=Bandwidth(closids=3)))
    tree.mkdir(f"{POINT}/a")
    tree.mkdir(f"{POINT}/b")
    with pytest.raises(OSError, match="No space left"):
        tree.mkdir(f"{POINT}/c")


@pytest.mark.parametrize(
    ("kernel", "shape", "answer"),
    [
        pytest.param((6, 1), "intel-1s", "ok", id="6.1 checks its own cache at once"),
        pytest.param((6, 9), "intel-1s", "EBUSY", id="6.9 waits for the worker in any case"),
        pytest.param((6, 1), "intel-2s-ht", "EBUSY", id="other caches have to wait for it"),
    ],
)
def test_an_rmid_in_limbo_by_kernel_and_caches(kernel: tuple[int, int], shape: str, answer: str) -> None:
    tree = files_of(RDT(kernel=kernel, monitoring=Monitoring(rmids=2)), shape)
    tree.mkdir(f"{POINT}/g")
    tree.rmdir(f"{POINT}/g")
    try:
        tree.mkdir(f"{POINT}/g")
        assert answer == "ok"
    except OSError as error:
        assert errno.errorcode[error.errno or 0] == answer


def test_lines_in_a_cache_keep_its_rmid_in_limbo() -> None:
    now, rdt = [0.0], RDT(monitoring=Monitoring(rmids=2))
    resctrl = KernelResctrl(machines.machine("intel-2s-ht"), rdt, KernelProcesses(10), lambda: now[0])
    tree = Tree()
    tree.place(POINT, resctrl.folder)
    assert resctrl.rmids
    tree.mkdir(f"{POINT}/g")
    resctrl.rmids.counters.level((1, 1, "llc_occupancy"), 200)
    tree.rmdir(f"{POINT}/g")
    now[0] += 60
    with pytest.raises(OSError, match="busy"):
        tree.mkdir(f"{POINT}/g")
    resctrl.rmids.counters.level((1, 1, "llc_occupancy"), 0)
    now[0] += 1.1
    tree.mkdir(f"{POINT}/g")
