"""A file under any of its names means the places it stands for, and no other."""

from __future__ import annotations

import dataclasses

import pytest

from koordlite import changes
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.values import Pod
from koordlite.report.explain import file
from koordlite.report.tick import UNSEEN

POD = "kubepods/burstable/pod1"
GROUPS = {"shop/web-0": POD, "shop/web-01": "kubepods/burstable/pod2"}
NODE = dataclasses.replace(
    UNSEEN,
    pods=tuple(Pod(namespace="shop", name=pod.removeprefix("shop/"), uid=pod) for pod in GROUPS),
    places={pod: PodGroups(group, {}) for pod, group in GROUPS.items()},
)
QUOTA = f"{POD}/main/cpu.quota"
BE = "kubepods/besteffort/cpuset.cpus"


@pytest.mark.parametrize(
    ("path", "place", "meant"),
    [
        pytest.param("cpu.max", QUOTA, True, id="v2's name of the quota"),
        pytest.param("cpu.cfs_quota_us", QUOTA, True, id="v1's name of it"),
        pytest.param("cpu.quota", QUOTA, True, id="our own name"),
        pytest.param("cpu.max", f"{POD}/cpu.shares", False, id="another file"),
        pytest.param(f"/sys/fs/cgroup/{POD}/main/cpu.max", QUOTA, True, id="with the mount point of v2"),
        pytest.param(f"/sys/fs/cgroup/cpu/{POD}/main/cpu.cfs_quota_us", QUOTA, True, id="with that of v1"),
        pytest.param(f"/sys/fs/cgroup/{POD}/cpu.max", QUOTA, False, id="the file of the group above"),
        pytest.param("besteffort/cpuset.cpus", BE, True, id="the end of the folder"),
        pytest.param("effort/cpuset.cpus", BE, True, id="part of the place as it is written"),
        pytest.param("burstable/cpuset.cpus", BE, False, id="another group"),
        pytest.param("web-0/cpu.max", QUOTA, True, id="a pod for its group"),
        pytest.param("shop/web-0/cpu.max", QUOTA, True, id="with its namespace"),
        pytest.param("web-01/cpu.max", QUOTA, False, id="a pod whose name only begins alike"),
        pytest.param("b-0/cpu.max", QUOTA, False, id="half a name is none"),
        pytest.param("/sys/fs/resctrl/BE/schemata", "resctrl/BE/L3", True, id="the schemata of a group"),
        pytest.param("/sys/fs/resctrl/BE/schemata", "resctrl/LS/L3", False, id="of another group"),
        pytest.param("/sys/fs/resctrl/schemata", "resctrl//MB", True, id="of the root group"),
        pytest.param("schemata", "resctrl/BE/MB", True, id="all schemata"),
        pytest.param("io.max", "io:kubepods/besteffort/8:0/io.read_bps", True, id="limits of a disk"),
        pytest.param("besteffort/io.max", "io:kubepods/besteffort/8:0/io.read_bps", True, id="of one group"),
        pytest.param("/proc/sys/vm/min_free_kbytes", "system/vm.min_free_kbytes", True, id="a kernel setting"),
        pytest.param("/proc/77/oom_score_adj", "oom_score_adj/77/1234", True, id="a process"),
        pytest.param("/proc/7/oom_score_adj", "oom_score_adj/77/1234", False, id="another process"),
    ],
)
def test_what_a_path_means(path: str, place: str, meant: bool) -> None:
    assert file.Question(path, NODE).means(changes.parse(place)) is meant


def test_the_pod_of_a_place() -> None:
    assert file.pod_of(changes.parse(QUOTA), GROUPS) == "shop/web-0"
    assert file.pod_of(changes.parse(f"io:{POD}/8:0/io.weight"), GROUPS) == "shop/web-0"
    assert file.pod_of(changes.parse(BE), GROUPS) == ""
