"""resctrl: what is there, what can be done, and refusals that carry the kernel's reason."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from hooked_files import HookedFiles, refusing

from koordlite.resctrl import info
from koordlite.resctrl.filesystem import ResctrlFS
from koordlite.resctrl.tasks import Moved
from koordlite.resctrl.values import BandwidthCapability, CacheCapability, ControlGroup

if TYPE_CHECKING:
    from planted import Rooted

ROOT = "/sys/fs/resctrl"
INTEL = {
    f"{ROOT}/schemata": "    MB:0=100;1=100\n    L3:0=fff;1=fff\n",
    f"{ROOT}/tasks": "1\n2\n",
    f"{ROOT}/info/last_cmd_status": "ok\n",
    f"{ROOT}/info/L3/cbm_mask": "fff\n",
    f"{ROOT}/info/L3/min_cbm_bits": "1\n",
    f"{ROOT}/info/L3/shareable_bits": "c00\n",
    f"{ROOT}/info/L3/num_closids": "16\n",
    f"{ROOT}/info/L3_MON/num_rmids": "32\n",
    f"{ROOT}/info/MB/min_bandwidth": "10\n",
    f"{ROOT}/info/MB/bandwidth_gran": "10\n",
    f"{ROOT}/info/MB/delay_linear": "1\n",
    f"{ROOT}/info/MB/num_closids": "8\n",
    f"{ROOT}/mon_data/mon_L3_00/llc_occupancy": "0\n",
    f"{ROOT}/mon_groups/m/tasks": "",
    f"{ROOT}/BE/schemata": "    MB:0= 50;1=100\n    L3:0=00f;1=00f\n",
    f"{ROOT}/BE/tasks": "70\n71\n",
}
AMD = {
    f"{ROOT}/schemata": "    MB:0=4096;1=4096\n    L3:0=ffff;1=ffff\n",
    f"{ROOT}/info/L3/cbm_mask": "ffff\n",
    f"{ROOT}/info/L3/min_cbm_bits": "0\n",
    f"{ROOT}/info/L3/sparse_masks": "1\n",
    f"{ROOT}/info/L3/num_closids": "16\n",
    f"{ROOT}/info/MB/min_bandwidth": "0\n",
    f"{ROOT}/info/MB/bandwidth_gran": "1\n",
    f"{ROOT}/info/MB/delay_linear": "0\n",
    f"{ROOT}/info/MB/num_closids": "16\n",
}


class Refusing(HookedFiles):
    """A machine whose kernel refuses every change, or `only` one text, and says why in last_cmd_status."""

    def __init__(self, machine: Rooted, number: int, status: str = "ok\n", *, only: bytes | None = None) -> None:
        super().__init__(machine.plant({f"{ROOT}/info/last_cmd_status": status}), refusing("", number))
        self._only = only

    def write(self, path: str, data: bytes) -> None:
        if self._only in (None, data):
            super().write(path, data)
        else:
            self._files.write(path, data)


def test_intel_capabilities_and_groups(machine: Rooted) -> None:
    found = ResctrlFS(machine.plant(INTEL)).read(with_tasks={"BE"})
    assert found.absent == ""
    assert found.caches == {"L3": CacheCapability(0xFFF, 1, 0xC00, False, 16)}
    assert found.bandwidths == {"MB": BandwidthCapability(10, 10, 100, True, False, 8)}
    assert found.groups == {
        "": ControlGroup({"MB": {0: 100, 1: 100}, "L3": {0: 0xFFF, 1: 0xFFF}}),
        "BE": ControlGroup({"MB": {0: 50, 1: 100}, "L3": {0: 0xF, 1: 0xF}}, frozenset({70, 71})),
    }


def test_threads_are_read_only_where_asked(machine: Rooted) -> None:
    groups = ResctrlFS(machine.plant(INTEL)).read().groups
    assert [group.tasks for group in groups.values()] == [None, None]


def test_amd_bandwidth_is_absolute_and_its_maximum_comes_from_the_machine(machine: Rooted) -> None:
    found = ResctrlFS(machine.plant(AMD)).read()
    assert found.bandwidths["MB"].maximum == 4096
    assert found.bandwidths["MB"].absolute
    assert found.caches["L3"].sparse_masks


def test_the_amd_maximum_is_remembered_when_all_groups_are_limited_later(machine: Rooted) -> None:
    resctrl = ResctrlFS(machine.plant(AMD))
    resctrl.read()
    machine.plant({f"{ROOT}/schemata": "    MB:0=16;1=16\n    L3:0=ffff;1=ffff\n"})
    assert resctrl.read().bandwidths["MB"].maximum == 4096


def test_mounted_with_mba_mbps_values_are_megabytes_and_not_percent(machine: Rooted) -> None:
    machine.plant({**INTEL, "/proc/self/mounts": f"resctrl {ROOT} resctrl rw,relatime,mba_MBps 0 0\n"})
    found = ResctrlFS(machine).read().bandwidths["MB"]
    assert (found.mbps, found.maximum) == (True, 2**32 - 1)


PERCENT = BandwidthCapability(10, 10, 100)
ARM_PERCENT = BandwidthCapability(0, 1, 100)
EIGHTHS = BandwidthCapability(0, 1, 100, delay_linear=False)
MEGABYTES = BandwidthCapability(10, 10, 100, mbps=True)


@pytest.mark.parametrize(
    ("cap", "largest", "fresh", "expected"),
    [
        pytest.param(PERCENT, 20, None, (100, True), id="percent is 100 whatever is set"),
        pytest.param(ARM_PERCENT, 60, None, (100, True), id="also where the minimum is 0"),
        pytest.param(MEGABYTES, 5, None, (2**32 - 1, True), id="MB/s has no limit"),
        pytest.param(EIGHTHS, 160, 4096, (4096, True), id="a group just made tells"),
        pytest.param(EIGHTHS, 4096, None, (4096, False), id="a power of two is what groups begin with"),
        pytest.param(EIGHTHS, 1024, None, (1024, False), id="also a small one"),
        pytest.param(EIGHTHS, 160, None, (2048, False), id="a limit is not the maximum"),
        pytest.param(EIGHTHS, 3000, None, (4096, False), id="a limit above 2048 tells at least the next power"),
        pytest.param(EIGHTHS, 0, None, (2048, False), id="nothing seen"),
    ],
)
def test_maximum_bandwidth(
    cap: BandwidthCapability, largest: int, fresh: int | None, expected: tuple[int, bool]
) -> None:
    found = info.with_maximum(cap, largest=largest, fresh=fresh)
    assert (found.maximum, found.maximum_known) == expected


@pytest.mark.parametrize(
    ("line", "features"),
    [
        pytest.param("root=/dev/sda quiet", {}, id="nothing about it"),
        pytest.param("rdt=cmt,l3cat,!mba", {"cmt": True, "l3cat": True, "mba": False}, id="on and off"),
        pytest.param("rdt=l3cat rdt=!l3cat", {"l3cat": False}, id="the last word counts"),
        pytest.param("nordt=l3cat rdt= rdt=!", {}, id="other options and empty ones"),
    ],
)
def test_features_switched_by_the_command_line(machine: Rooted, line: str, features: dict[str, bool]) -> None:
    assert info.command_line(machine.plant({"/proc/cmdline": f"{line}\n"})) == features


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        pytest.param({"/proc/filesystems": "nodev\tproc\n"}, "has no resctrl", id="no support"),
        pytest.param(
            {"/proc/filesystems": "nodev\tproc\n", "/proc/cmdline": "quiet rdt=!l3cat,mba,!cmt\n"},
            "switches off l3cat, cmt",
            id="switched off when booting",
        ),
        pytest.param(
            {"/proc/filesystems": "nodev\tproc\n", "/proc/cpuinfo": "processor : 0\nflags : fpu mba cat_l3 sse\n"},
            "the CPU has cat_l3, mba",
            id="a kernel built without it",
        ),
        pytest.param({"/proc/filesystems": "nodev\tresctrl\n"}, f"mount -t resctrl resctrl {ROOT}", id="not mounted"),
        pytest.param({}, "whether it could be", id="nothing known"),
        pytest.param(
            {f"{ROOT}/schemata": "", f"{ROOT}/info/L3_MON/num_rmids": "32\n"}, "can only monitor", id="monitoring only"
        ),
    ],
)
def test_absence_says_why(machine: Rooted, tree: dict[str, str], why: str) -> None:
    found = ResctrlFS(machine.plant(tree)).read()
    assert why in found.absent
    assert found.groups == {}


def test_a_group_without_values_is_no_reason_to_fail(machine: Rooted) -> None:
    machine.plant({**INTEL, f"{ROOT}/locked/schemata": "L2:uninitialized\n"})
    assert ResctrlFS(machine).read().groups["locked"].schemata == {}


def test_schemata_are_one_write_that_ends_with_a_newline(machine: Rooted) -> None:
    ResctrlFS(machine.plant(INTEL)).write_schemata("BE", {"L3": {1: 0x3, 0: 0xF}, "MB": {0: 20}})
    assert machine.writes == [(f"{ROOT}/BE/schemata", b"L3:0=f;1=3\nMB:0=20\n")]


def test_a_write_too_long_for_the_kernel_is_split_between_values(machine: Rooted) -> None:
    values = {"L3": dict.fromkeys(range(600), 1048575), "MB": {0: 10}}
    ResctrlFS(machine.plant(INTEL)).write_schemata("", values)
    written = b"".join(data for _, data in machine.writes)
    assert all(len(data) <= 4096 and data.endswith(b"\n") for _, data in machine.writes)
    assert len(machine.writes) > 1
    assert written.count(b"=fffff") == 600
    assert written.endswith(b"MB:0=10\n")


def test_one_resource_is_kept_and_written_back_as_a_line(machine: Rooted) -> None:
    resctrl = ResctrlFS(machine.plant(INTEL))
    line = resctrl.schemata_raw("BE", "L3")
    assert line == b"L3:0=f;1=f\n"
    assert not resctrl.write_back("BE", line)
    resctrl.write_back("BE", b"L3:0=fff;1=f;9=f\n")
    assert machine.writes == [(f"{ROOT}/BE/schemata", b"L3:0=fff\n")], "what differs and is still there"


def test_a_line_that_a_group_has_not_is_refused_by_name(machine: Rooted) -> None:
    with pytest.raises(OSError, match="no line L2") as caught:
        ResctrlFS(machine.plant(INTEL)).schemata_raw("BE", "L2")
    assert caught.value.errno == errno.ENODATA


def test_threads_are_moved_one_a_write(machine: Rooted) -> None:
    assert ResctrlFS(machine.plant(INTEL)).move("BE", (5, 6)) == Moved(moved=2)
    assert machine.writes == [(f"{ROOT}/BE/tasks", b"5\n"), (f"{ROOT}/BE/tasks", b"6\n")]


def test_a_thread_that_ended_is_not_counted_and_no_error(machine: Rooted) -> None:
    assert ResctrlFS(Refusing(machine.plant(INTEL), errno.ESRCH)).move("BE", (5, 6)) == Moved(gone=2)


def test_a_refused_thread_is_reported_when_the_others_have_moved(machine: Rooted) -> None:
    status = "No permission to move task 5\n"
    resctrl = ResctrlFS(Refusing(machine.plant(INTEL), errno.EPERM, status, only=b"5\n"))
    with pytest.raises(OSError, match="No permission to move task 5"):
        resctrl.move("BE", (5, 6, 7))
    assert [data for _, data in machine.writes] == [b"6\n", b"7\n"]


@pytest.mark.parametrize("tid", [0, -1])
def test_zero_would_move_the_writer_itself(machine: Rooted, tid: int) -> None:
    assert ResctrlFS(machine.plant(INTEL)).move("BE", (tid,)) == Moved(hidden=1)
    assert machine.writes == []


PILED = "Out of CLOSIDs\nOut of CLOSIDs\nNo space on L3:0\n"


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        pytest.param(errno.ENOSPC, PILED, "No space on L3:0", id="the last of piled up lines"),
        pytest.param(errno.EBUSY, "Out of RMIDs\n", "Out of RMIDs", id="busy"),
        pytest.param(errno.EROFS, PILED, "", id="an old reason is not taken for this one"),
        pytest.param(errno.EINVAL, "ok\n", "", id="ok is no reason"),
    ],
)
def test_a_refused_group_says_why(machine: Rooted, number: int, status: str, reason: str) -> None:
    resctrl = ResctrlFS(Refusing(machine.plant(INTEL), number, status))
    with pytest.raises(OSError) as caught:
        resctrl.make_group("LS")
    assert caught.value.errno == number
    assert caught.value.filename == f"{ROOT}/LS"
    assert caught.value.strerror == (f"{os.strerror(number)}: {reason}" if reason else os.strerror(number))
    assert getattr(caught.value, "__notes__", []) == ([f"last_cmd_status: {reason}"] if reason else [])


def test_a_refused_schemata_says_all_of_it(machine: Rooted) -> None:
    resctrl = ResctrlFS(Refusing(machine.plant(INTEL), errno.EINVAL, "Mask out of range\n"))
    with pytest.raises(OSError, match="Mask out of range") as caught:
        resctrl.write_schemata("BE", {"L3": {0: 0xFFFFF}})
    assert caught.value.filename == f"{ROOT}/BE/schemata"


def test_exclusive_mode_is_one_write_and_its_refusal_keeps_the_kernels_words(machine: Rooted) -> None:
    ResctrlFS(machine.plant({**INTEL, f"{ROOT}/BE/mode": "shareable\n"})).set_mode("BE", "exclusive")
    assert machine.writes == [(f"{ROOT}/BE/mode", b"exclusive\n")]
    resctrl = ResctrlFS(Refusing(machine, errno.EINVAL, "Schemata overlaps\n"))
    with pytest.raises(OSError, match="Schemata overlaps"):
        resctrl.set_mode("BE", "exclusive")


def test_a_refusal_without_words_is_explained_as_about_a_cache_id(machine: Rooted) -> None:
    with pytest.raises(OSError, match="cache id that is no longer there"):
        ResctrlFS(Refusing(machine.plant(INTEL), errno.EINVAL)).write_schemata("BE", {"L3": {9: 1}})


def test_a_kernel_thread_is_left_where_it_is(machine: Rooted) -> None:
    head = "(kthreadd) S 0 0 0 0 -1"
    machine.plant({"/proc/2/stat": f"2 {head} {0x00208040} 0 0\n", "/proc/5/stat": f"5 {head} {0x00400000} 0 0\n"})
    found = ResctrlFS(machine.plant(INTEL)).move("BE", (2, 5))
    assert found == Moved(moved=1, kernel=1)
    assert str(found) == "1 of 2 threads (1 are the kernel's)"


def test_only_groups_that_may_be_ours_are_made_and_removed(machine: Rooted) -> None:
    resctrl = ResctrlFS(machine.plant(INTEL), owns=lambda name: name == "LS")
    assert resctrl.make_group("LS")
    for act in (resctrl.make_group, resctrl.remove_group):
        with pytest.raises(ValueError, match="no name for a resctrl group that this program may make or remove"):
            act("theirs")


def test_monitoring_groups_have_the_name_of_their_control_group(machine: Rooted) -> None:
    resctrl = ResctrlFS(machine.plant({**INTEL, f"{ROOT}/BE/mon_groups/m/tasks": "70\n"}))
    assert resctrl.mon_group_names("BE") == ["BE/mon_groups/m"]
    assert resctrl.mon_group_names("") == ["/mon_groups/m"]
    assert resctrl.tasks("BE/mon_groups/m") == {70}
    assert resctrl.make_group("BE/mon_groups/n")
    assert "n/" in machine.list(f"{ROOT}/BE/mon_groups")


def test_making_a_group_twice_and_removing_it_twice_is_fine(machine: Rooted) -> None:
    resctrl = ResctrlFS(machine.plant(INTEL))
    for _ in "12":
        resctrl.make_group("LS")
    assert machine.list(f"{ROOT}/LS") == []
    for _ in "12":
        resctrl.remove_group("LS")
    assert "LS/" not in machine.list(ROOT)


@pytest.mark.parametrize("name", ["", "info", "mon_groups", "mon_data", "a/b", "a\nb", "..", "."])
def test_names_that_are_no_groups_are_refused(machine: Rooted, name: str) -> None:
    resctrl = ResctrlFS(machine.plant(INTEL))
    with pytest.raises(ValueError, match="is no name for a resctrl group"):
        resctrl.make_group(name)
    with pytest.raises(ValueError, match="is no name for a resctrl group"):
        resctrl.remove_group(name)


@pytest.mark.parametrize(
    ("text", "group"),
    [
        pytest.param("res:/\nmon:\n", "", id="root"),
        pytest.param("res:BE\nmon:m\n", "BE", id="a group"),
        pytest.param("res:a:b\nmon:\n", "a:b", id="a name with a colon"),
        pytest.param("res:\nmon:\n", None, id="not mounted"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_group_of_a_thread(machine: Rooted, text: str, group: str | None) -> None:
    machine.plant({"/proc/7/cpu_resctrl_groups": text})
    assert ResctrlFS(machine).group_of(7) == group


def test_a_thread_that_is_gone_has_no_group(machine: Rooted) -> None:
    assert ResctrlFS(machine).group_of(7) is None
