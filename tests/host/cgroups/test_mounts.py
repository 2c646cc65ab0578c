"""Which cgroup version is in charge, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from koordlite.host.cgroups import filesystem as cgroup_mounts
from koordlite.model.errors import HardwareAbsent

if TYPE_CHECKING:
    from planted import Rooted

ROOT = "/sys/fs/cgroup"


def v1(*names: str, root: str = ROOT) -> str:
    return "".join(f"cgroup {root}/{name} cgroup rw,relatime,{name} 0 0\n" for name in names)


APART = v1("cpu", "cpuacct", "cpuset", "memory")
TOGETHER = v1("cpu,cpuacct", "cpuset", "memory")
UNIFIED = f"cgroup2 {ROOT}/unified cgroup2 rw 0 0\n"
PURE_V2 = f"cgroup2 {ROOT} cgroup2 rw,nsdelegate 0 0\n"
NAMED_ONLY = f"cgroup {ROOT}/systemd cgroup rw,name=systemd 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "cpu", "cpuacct"),
    [
        pytest.param(APART, "cpu", "cpuacct", id="each apart"),
        pytest.param(TOGETHER, "cpu,cpuacct", "cpu,cpuacct", id="cpu and cpuacct together"),
        pytest.param(UNIFIED + APART, "cpu", "cpuacct", id="hybrid is v1"),
        pytest.param(v1(*("cpu", "memory"), root="/host") + APART, "cpu", "cpuacct", id="the usual place wins"),
    ],
)
def test_v1(machine: Rooted, mounts: str, cpu: str, cpuacct: str) -> None:
    found = cgroup_mounts.find_mounts(machine.plant({"/proc/self/mounts": mounts}))
    assert found.version == 1
    assert found.points["cpu"] == f"{ROOT}/{cpu}"
    assert found.points["cpuacct"] == f"{ROOT}/{cpuacct}"


def test_a_v1_controller_that_is_not_mounted_reads_as_absent(machine: Rooted) -> None:
    found = cgroup_mounts.find_mounts(machine.plant({"/proc/self/mounts": v1("cpu", "cpuset")}))
    assert found.points["memory"] == f"{ROOT}/memory"


@pytest.mark.parametrize("mounts", [PURE_V2, NAMED_ONLY + PURE_V2], ids=["alone", "beside a named v1 hierarchy"])
def test_v2(machine: Rooted, mounts: str) -> None:
    machine.plant({"/proc/self/mounts": mounts, f"{ROOT}/cgroup.controllers": "cpuset cpu io memory\n"})
    assert cgroup_mounts.find_mounts(machine) == cgroup_mounts.CgroupMounts(2, {"": ROOT})


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        pytest.param({"/proc/self/mounts": "proc /proc proc rw 0 0\n"}, "no cgroup file system", id="none mounted"),
        pytest.param(
            {"/proc/self/mounts": UNIFIED, f"{ROOT}/unified/cgroup.controllers": "\n"},
            "offers nothing",
            id="v2 without controllers",
        ),
        pytest.param({}, "neither cpu", id="nothing known at all"),
    ],
)
def test_without_a_cpu_controller_it_says_why(machine: Rooted, tree: dict[str, str], why: str) -> None:
    with pytest.raises(HardwareAbsent, match=why):
        cgroup_mounts.find_mounts(machine.plant(tree))


@pytest.mark.parametrize(
    ("tree", "version", "point"),
    [
        pytest.param({f"{ROOT}/cpu/tasks": ""}, 1, ("cpu", f"{ROOT}/cpu"), id="v1"),
        pytest.param({f"{ROOT}/cpu,cpuacct/tasks": ""}, 1, ("cpuacct", f"{ROOT}/cpu,cpuacct"), id="v1 together"),
        pytest.param({f"{ROOT}/cgroup.controllers": "cpu"}, 2, ("", ROOT), id="v2"),
    ],
)
def test_a_recording_without_mounts_is_recognised_by_its_folders(
    machine: Rooted, tree: dict[str, str], version: int, point: tuple[str, str]
) -> None:
    found = cgroup_mounts.find_mounts(machine.plant(tree))
    assert (found.version, found.points[point[0]]) == (version, point[1])
