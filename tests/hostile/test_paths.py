"""Names that a tenant or a forged file chooses lead nowhere but below the agent's own roots."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from emulated import BOOT, Emulated
from realnode.tree import Tree

from koordlite.clock import RealClock
from koordlite.host import beneath, bundle
from koordlite.host.cgroups.names import container_group, layout, pod_group
from koordlite.host.files import RealFiles
from koordlite.host.journal import journal
from koordlite.host.journal.journal import Journal
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod.qos import KubeQoS

ESCAPES = ("../system.slice", "a/../../b", "a//b", "/etc", "a/./b", "a/", "..", "a\0b")
LAYOUTS = [layout(1, "kubepods"), layout(2, "kubepods.slice")]


@pytest.mark.parametrize("group", ESCAPES)
def test_a_group_that_leads_elsewhere_is_refused_for_every_use(tmp_path: Path, group: str) -> None:
    cgroups = Emulated("small", tmp_path).host().cgroups
    for use in (
        lambda: cgroups.path(group, "cpuset.cpus"),
        lambda: cgroups.read_raw(group, "cpuset.cpus"),
        lambda: cgroups.write(group, "cpuset.cpus", CPUSet([0])),
        lambda: cgroups.write_raw(group, "cpu.quota", b"-1"),
        lambda: cgroups.children(group),
        lambda: cgroups.folder(group, "cpu"),
    ):
        with pytest.raises(ValueError, match="is no name of a group"):
            use()
    assert group not in cgroups.take_written()


@pytest.mark.parametrize("names", LAYOUTS, ids=["cgroupfs", "systemd"])
def test_a_uid_or_a_container_id_cannot_climb(names: Any) -> None:
    uid = "0a1b2c3d-0000-4000-8000-000000000000"
    for hostile in (f"{uid}/../../../system.slice", f"{uid}.slice/../../../system", "/../x"):
        with pytest.raises(ValueError, match="is no name of a group"):
            pod_group(names, hostile, KubeQoS.BURSTABLE)
    with pytest.raises(ValueError, match="is no name of a group"):
        container_group(layout(1, "kubepods"), "kubepods/pod1", "containerd://..")


def test_the_emulated_node_resolves_dots_as_a_kernel_does(tmp_path: Path) -> None:
    files = Emulated("small", tmp_path).sandbox.files
    top = "/sys/fs/cgroup"
    point = next(path for path in files.paths(top) if path.endswith("kubepods/cpuset.cpus")).rpartition("/kubepods")[0]
    root = files.read(f"{point}/cpuset.cpus")
    assert files.read(f"{point}/kubepods/../cpuset.cpus") == root
    assert files.read(f"{point}/kubepods/./../kubepods/../cpuset.cpus") == root
    assert files.read(f"/../..{point}/cpuset.cpus") == root, "above the root is the root"
    with pytest.raises(FileNotFoundError):
        files.read(f"{point}/nothing/../cpuset.cpus")


@pytest.fixture(params=["openat2", "text alone"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With and without the kernel's own check."""
    if request.param == "text alone":
        monkeypatch.setattr(beneath, "_has_openat2", lambda: False)
    elif not beneath._has_openat2():
        pytest.skip("this kernel has no openat2")
    return str(request.param)


def test_on_real_cgroups_nothing_outside_the_tree_is_written(kubepods: Tree, kernel: str) -> None:
    found = kubepods.content()
    host = bundle.bind(RealFiles(), RealClock(), kubepods=kubepods.top)
    besteffort = host.cgroups.layout.besteffort
    first = str(min(kubepods.cpus(kubepods.top)))
    with pytest.raises(ValueError, match="is no name of a group"):
        host.cgroups.write_raw(f"{besteffort}/../burstable", "cpuset.cpus", first.encode())
    raw = host.cgroups.path(besteffort, "cpuset.cpus").replace("/besteffort/", "/besteffort/../burstable/")
    with pytest.raises(ValueError, match="is no name of a group"):
        host.files.write(raw, first.encode())
    assert kubepods.changed(found) == {}
    host.cgroups.write(besteffort, "cpuset.cpus", CPUSet([int(first)]))
    assert kubepods.cpus(kubepods.qos("BestEffort")) == {int(first)}


def test_the_kernel_follows_no_link_out_of_the_file_system(tmp_path: Path) -> None:
    if not beneath._has_openat2():
        pytest.skip("this kernel has no openat2")
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    # /proc/self/root is a link to /, out of /proc.
    with pytest.raises(OSError, match=r"cross-device link|symbolic links") as refused:
        RealFiles().write(f"/proc/self/root{outside}", b"x")
    assert refused.value.errno in (errno.EXDEV, errno.ELOOP)
    assert outside.read_text() == "theirs"


FILE = {"kind": "file", "path": "/sys/fs/cgroup/cpuset/kubepods/cpuset.cpus", "group": "kubepods"}
FILE |= {"field": "cpuset.cpus", "text": "0", "found_at": 1.0}
FORGED: list[dict[str, Any]] = [
    FILE | {"group": "kubepods/../system.slice"},
    FILE | {"group": "/etc"},
    FILE | {"group": "kubepods//x"},
    FILE | {"group": "io:../x", "field": "8:0/io.weight"},
    FILE | {"group": "resctrl/../../x", "field": "L3"},
    FILE | {"path": "/sys/fs/cgroup/../../../etc/passwd"},
    FILE | {"path": "etc/passwd"},
    {"kind": "group", "group": "../../tmp/x"},
    {"kind": "task", "tid": 1, "start_time": 1, "group": "../x"},
    {"kind": "task", "tid": 1, "start_time": 1, "group": "", "into": "/x/.."},
]


@pytest.mark.parametrize("entry", FORGED, ids=lambda entry: entry.get("into") or entry.get("group"))
def test_a_forged_entry_names_nothing_that_is_restored_and_costs_no_other(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    content = {"version": 1, "boot_id": BOOT, "entries": [FILE, entry]}
    (tmp_path / "journal.json").write_text(json.dumps(content))
    (good,) = journal.read(tmp_path, boot_id=BOOT)
    assert str(good.place) == "kubepods/cpuset.cpus"
    (problem,) = journal.damaged(tmp_path)
    assert problem.object.endswith("journal.json:2")
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        assert held.entries == (good,)
        held.forget([good.place])
    kept = (tmp_path / "journal-damaged.txt").read_text()
    assert json.loads(kept) == entry
