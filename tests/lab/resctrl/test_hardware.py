"""Every flavour of hardware and kernel shows itself as resctrl would: columns, info files, first values, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.lab import shapes
from koordlite.lab.machine import shapes as machines
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.rdt import RDT, Bandwidth, Cache, Monitoring, amd, flags
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl.filesystem import POINT, EmulatedResctrl

Attempt = Callable[[Tree, str, str], str]


def files_of(rdt: RDT, shape: str = "intel-2s-ht", options: str = "") -> Tree:
    """The machine of that shape with other hardware, mounted with these options."""
    resctrl = EmulatedResctrl(machines.machine(shape), rdt, Processes(10))
    resctrl.umount()
    resctrl.mount(options)
    tree = Tree()
    tree.place(POINT, resctrl.folder)
    return tree


def names(tree: Tree, folder: str) -> set[str]:
    return {name.rstrip("/") for name in tree.list(f"{POINT}/{folder}")}


@pytest.mark.parametrize(
    ("rdt", "options", "shown"),
    [
        pytest.param(
            RDT(kernel=(5, 10)), "", "    L3:0=fff;1=fff\n    MB:0=100;1=100\n", id="old kernels print L3 first"
        ),
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
        pytest.param(RDT(kernel=(5, 4)), "info/MB", {"num_closids"}, {"thread_throttle_mode"}, id="nor has 5.4"),
        pytest.param(amd((6, 2)), "info", {"MB"}, {"SMBA"}, id="6.2 does not know slow memory"),
        pytest.param(amd((6, 2)), "info/L3_MON", {"num_rmids"}, {"mbm_total_bytes_config"}, id="nor to choose events"),
        pytest.param(amd((6, 3)), "info/L3_MON", {"mbm_local_bytes_config"}, set(), id="6.3 does"),
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


def test_shared_bits_of_hardware_stand_against_an_exclusive_group(attempt: Attempt) -> None:
    tree = files_of(RDT(l3=Cache(shareable=0xC00)))
    tree.mkdir(f"{POINT}/g")
    tree.write(f"{POINT}/schemata", b"L3:0=f;1=f\n")
    tree.write(f"{POINT}/g/schemata", b"L3:0=c00;1=c00\n")
    assert attempt(tree, f"{POINT}/g/mode", "exclusive\n") == "EINVAL"
    tree.write(f"{POINT}/g/schemata", b"L3:0=f0;1=f0\n")
    assert attempt(tree, f"{POINT}/g/mode", "exclusive\n") == "ok"
    assert tree.read(f"{POINT}/info/L3/bit_usage") == b"0=HH00EEEESSSS;1=HH00EEEESSSS\n"


def test_code_and_data_both_keep_others_off(attempt: Attempt) -> None:
    tree = files_of(RDT(), options="cdp")
    tree.mkdir(f"{POINT}/g")
    tree.write(f"{POINT}/schemata", b"L3DATA:0=f0;1=f0\nL3CODE:0=f0;1=f0\n")
    tree.write(f"{POINT}/g/schemata", b"L3DATA:0=1;1=1\nL3CODE:0=2;1=2\n")
    assert attempt(tree, f"{POINT}/g/mode", "exclusive\n") == "ok"
    assert attempt(tree, f"{POINT}/schemata", "L3DATA:0=2\n") == "EINVAL"
    assert attempt(tree, f"{POINT}/schemata", "L3DATA:0=4\n") == "ok"
    tree.mkdir(f"{POINT}/h")
    assert b"L3DATA:0=ffc;1=ffc" in tree.read(f"{POINT}/h/schemata")


def test_an_empty_mask_of_amd_is_given_when_nothing_is_left() -> None:
    tree = files_of(amd())
    tree.mkdir(f"{POINT}/g")
    tree.write(f"{POINT}/schemata", b"L3:0=ff;1=ff\n")
    tree.write(f"{POINT}/g/schemata", b"L3:0=ff00;1=ff00\n")
    tree.write(f"{POINT}/mode", b"exclusive\n")
    tree.write(f"{POINT}/g/mode", b"exclusive\n")
    tree.mkdir(f"{POINT}/h")
    assert b"L3:0=0000;1=0000" in tree.read(f"{POINT}/h/schemata")


def test_the_software_controller_keeps_what_came_before_a_mistake(attempt: Attempt) -> None:
    tree = files_of(RDT(), options="mba_MBps")
    assert attempt(tree, f"{POINT}/schemata", "MB:0=7;0=9\n") == "ok"
    assert attempt(tree, f"{POINT}/schemata", "MB:1=5\nL3:0=0\n") == "EINVAL"
    assert tree.read(f"{POINT}/schemata").splitlines()[0] == b"    MB:0=  9;1=  5"


@pytest.mark.parametrize(
    ("text", "answer", "why", "shown"),
    [
        pytest.param("0=0x30;1=7\n", "ok", "ok", "0=0x30;1=0x07", id="both caches"),
        pytest.param("0=48\n", "ok", "ok", "0=0x48;1=0x7f", id="always hexadecimal"),
        pytest.param("1=80\n", "EINVAL", "Invalid event configuration: max valid mask is 0x7f", None, id="too much"),
        pytest.param("x=1\n", "EINVAL", "Missing '=' or non-numeric domain id", None, id="no cache"),
        pytest.param("0\n", "EINVAL", "Non-numeric event configuration value", None, id="no value"),
        pytest.param("0=1;7=1\n", "EINVAL", "ok", "0=0x01;1=0x7f", id="what came before an unknown cache stays"),
        pytest.param("0=1", "EINVAL", "ok", None, id="no newline"),
    ],
)
def test_events_to_choose(text: str, answer: str, why: str, shown: str | None, attempt: Attempt) -> None:
    tree = files_of(amd((6, 12)))
    path = f"{POINT}/info/L3_MON/mbm_total_bytes_config"
    assert attempt(tree, path, text) == answer
    assert tree.read(f"{POINT}/info/last_cmd_status").decode() == f"{why}\n"
    assert tree.read(path).decode() == f"{shown or '0=0x7f;1=0x7f'}\n"


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
