"""resctrl reads, refuses and explains as Linux 6.1 does, where no recorded kernel says so (`vectors/resctrl`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.lab import Sandbox
from koordlite.lab.machine import shapes
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.rdt import RDT, Bandwidth, Cache
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl import rules
from koordlite.lab.resctrl.filesystem import EmulatedResctrl

Attempt = Callable[[Tree, str, str], str]

ROOT = "/sys/fs/resctrl"
STATUS = f"{ROOT}/info/last_cmd_status"


@pytest.fixture
def intel(v2: Sandbox) -> Tree:
    """12-bit masks, bandwidth in percent, two caches, group g."""
    v2.files.mkdir(f"{ROOT}/g")
    return v2.files


@pytest.fixture
def amd() -> Tree:
    """16-bit masks, absolute bandwidth, caches 0, 1, 4 and 5, group g."""
    files = Sandbox("amd-ccd").files
    files.mkdir(f"{ROOT}/g")
    return files


def files_of(rdt: RDT) -> Tree:
    """A machine with other cache hardware."""
    tree = Tree()
    tree.place(ROOT, EmulatedResctrl(shapes.machine("intel-2s-ht"), rdt, Processes(10)).folder)
    return tree


def test_a_fresh_group_has_everything(intel: Tree, amd: Tree) -> None:
    assert intel.read(f"{ROOT}/g/schemata") == b"    MB:0=100;1=100\n    L3:0=fff;1=fff\n"
    shown = b"    MB:0=2048;1=2048;4=2048;5=2048\n    L3:0=ffff;1=ffff;4=ffff;5=ffff\n"
    assert amd.read(f"{ROOT}/g/schemata") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            " L3 :00= 0xF ;\n", "    MB:0=100;1=100\n    L3:0=00f;1=fff\n", id="blanks around names and values"
        ),
        pytest.param("MB:0=33;1=91\n", "    MB:0= 40;1=100\n    L3:0=fff;1=fff\n", id="bandwidth is rounded up"),
        pytest.param("MB:0=50\nL3:1=1\n", "    MB:0= 50;1=100\n    L3:0=fff;1=001\n", id="several lines in one write"),
        pytest.param("L3:0=f\0;1=1\n", "    MB:0=100;1=100\n    L3:0=00f;1=fff\n", id="nothing is read after a NUL"),
    ],
)
def test_accepted_schemata(intel: Tree, text: str, shown: str) -> None:
    intel.write(f"{ROOT}/g/schemata", text.encode())
    assert intel.read(f"{ROOT}/g/schemata").decode() == shown
    assert intel.read(STATUS) == b"ok\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("L3:0=xyz\n", "Non-hex character in the mask xyz", id="no hexadecimal number"),
        pytest.param("L3:0=f\nL3:0=3\n", "Duplicate domain 0", id="a cache id twice on two lines"),
        pytest.param("MB:0=50\n\n", "Missing ':'", id="an empty line"),
        pytest.param("L3:9=f\n", "ok", id="an unknown cache id, for which the kernel has no words"),
    ],
)
def test_refused_schemata(intel: Tree, attempt: Attempt, text: str, why: str) -> None:
    before = intel.read(f"{ROOT}/g/schemata")
    assert attempt(intel, f"{ROOT}/g/schemata", text) == "EINVAL"
    assert intel.read(STATUS).decode() == f"{why}\n"
    assert intel.read(f"{ROOT}/g/schemata") == before


def test_one_bad_line_leaves_all_as_it_was(intel: Tree, attempt: Attempt) -> None:
    assert attempt(intel, f"{ROOT}/g/schemata", "L3:0=f\nMB:0=5\n") == "EINVAL"
    assert b"L3:0=fff" in intel.read(f"{ROOT}/g/schemata")


@pytest.mark.parametrize("text", ["", "L3:0=f"])
def test_a_write_without_a_newline_leaves_the_status(intel: Tree, attempt: Attempt, text: str) -> None:
    attempt(intel, f"{ROOT}/g/schemata", "L3:0=0\n")
    assert attempt(intel, f"{ROOT}/g/schemata", text) == "EINVAL"
    assert intel.read(STATUS) == b"Mask out of range\n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("L3:0=0\n", "ok", id="an empty mask"),
        pytest.param("L3:0=5\n", "ok", id="a mask with a hole"),
        pytest.param("MB:0=0\n", "ok", id="no bandwidth"),
        pytest.param("MB:0=17\n", "ok", id="bandwidth as it is written"),
        pytest.param("MB:0=2048\n", "ok", id="the maximum"),
        pytest.param("MB:0=2049\n", "EINVAL", id="beyond the maximum"),
        pytest.param("L3:2=f\n", "EINVAL", id="a gap in the cache ids"),
    ],
)
def test_amd(amd: Tree, attempt: Attempt, text: str, answer: str) -> None:
    assert attempt(amd, f"{ROOT}/g/schemata", text) == answer


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
        accepted = rules.mask(f"{mask:x}", Cache()) == mask
    except rules.Rejected:
        accepted = False
    assert accepted == contiguous


@given(st.integers(0, 2**16 - 1))
def test_the_lowest_run_is_contiguous_and_starts_at_the_lowest_bit(bits: int) -> None:
    run = rules.lowest_run(bits)
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


@pytest.mark.parametrize(
    ("text", "answer", "status"),
    [
        pytest.param("x\n", "EINVAL", "ok", id="a word"),
        pytest.param("1,2\n", "EINVAL", "ok", id="a list, which only newer kernels take"),
    ],
)
def test_refused_tasks(intel: Tree, attempt: Attempt, text: str, answer: str, status: str) -> None:
    assert attempt(intel, f"{ROOT}/g/tasks", text) == answer
    assert intel.read(STATUS).decode() == f"{status}\n"


@pytest.mark.parametrize(
    ("group", "text", "why"),
    [
        pytest.param("g/", "nonsense\n", "Unknown or unsupported mode", id="no mode"),
    ],
)
def test_refused_modes(intel: Tree, attempt: Attempt, group: str, text: str, why: str) -> None:
    assert attempt(intel, f"{ROOT}/{group}mode", text) == "EINVAL"
    assert intel.read(STATUS).decode() == f"{why}\n"


def test_sizes_are_bytes_of_cache(intel: Tree) -> None:
    intel.write(f"{ROOT}/g/schemata", b"L3:0=3\nMB:1=50\n")
    assert intel.read(f"{ROOT}/g/size") == b"    MB:0=100;1=50\n    L3:0=3145728;1=18874368\n"
