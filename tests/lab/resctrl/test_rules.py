"""resctrl reads, refuses and explains as Linux 6.1 does, where no recorded kernel says so (`vectors/resctrl`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.lab import Sandbox
from koordlite.lab.machine import shapes
from koordlite.lab.machine.machine import RDT, Bandwidth, Cache
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl import schemata
from koordlite.lab.resctrl.filesystem import EmulatedResctrl

Attempt = Callable[[Tree, str, str], str]

ROOT = "/sys/fs/resctrl"
STATUS = f"{ROOT}/info/last_cmd_status"


@pytest.fixture
def intel(v2: Sandbox) -> Tree:
    """12-bit masks, bandwidth in percent, two caches, group g."""
    v2.files.mkdir(f"{ROOT}/g")
    return v2.files


def files_of(rdt: RDT) -> Tree:
    """A machine with other cache hardware."""
    tree = Tree()
    tree.place(ROOT, EmulatedResctrl(shapes.machine("intel-2s-ht"), rdt, Processes(10)).folder)
    return tree


def test_minimum_bits_and_other_granularity(attempt: Attempt) -> None:
    haswell = files_of(RDT(l3=Cache(bits=20, min_bits=2), mb=Bandwidth(granularity=20, minimum=20)))
    assert attempt(haswell, f"{ROOT}/schemata", "L3:0=1\n") == "EINVAL"
    assert haswell.read(STATUS) == b"Need at least 2 bits in the mask\n"
    haswell.write(f"{ROOT}/schemata", b"MB:0=21;1=50\nL3:0=3\n")
    assert haswell.read(f"{ROOT}/schemata") == b"    MB:0=   40;1=   60\n    L3:0=00003;1=fffff\n"


def test_without_cdp_names_are_narrow() -> None:
    assert files_of(RDT(l3=Cache(bits=11, cdp=False))).read(f"{ROOT}/schemata") == b"MB:0=100;1=100\nL3:0=7ff;1=7ff\n"


@given(st.integers(0, 0xFFF))
def test_every_run_of_ones_is_a_mask_and_nothing_else_is(mask: int) -> None:
    contiguous = "01" not in f"{mask:b}".strip("0") and mask != 0
    try:
        accepted = schemata.mask(f"{mask:x}", Cache()) == mask
    except schemata.Rejected:
        accepted = False
    assert accepted == contiguous


@given(st.integers(0, 2**16 - 1))
def test_the_lowest_run_is_contiguous_and_starts_at_the_lowest_bit(bits: int) -> None:
    run = schemata.lowest_run(bits)
    assert run & ~bits == 0
    assert run & -run == bits & -bits
    assert "0" not in f"{run:b}".rstrip("0") or not run


def test_threads_move_one_by_one_and_come_home(v2: Sandbox, intel: Tree, attempt: Attempt) -> None:
    first, second, *_ = next(iter(v2.workloads)).process.tids
    assert attempt(intel, f"{ROOT}/g/tasks", f"{second}\n") == "ok"
    assert intel.read(f"{ROOT}/g/tasks") == f"{second}\n".encode()
    assert intel.read(f"/proc/{first}/cpu_resctrl_groups") == b"res:/\nmon:\n"
    assert intel.read(f"/proc/{second}/cpu_resctrl_groups") == b"res:g\nmon:\n"
    assert intel.read(f"/proc/{first}/task/{second}/cpu_resctrl_groups") == b"res:g\nmon:\n"
    intel.rmdir(f"{ROOT}/g")
    assert str(second).encode() in intel.read(f"{ROOT}/tasks").split()
