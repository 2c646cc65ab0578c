"""A machine from a folder, read-only."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from koordlite.host import procfs, sysfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.recorded import RecordedFiles
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod.qos import KubeQoS

CAPTURED = {
    "/sys/fs/cgroup/cpu/kubepods": {"mode": "0o755", "dir": True},
    "/sys/fs/cgroup/cpu/kubepods/cpu.cfs_quota_us": {"mode": "0o644", "content": "-1\n"},
    "/sys/fs/cgroup/cpu/kubepods/burstable": {"mode": "0o755", "dir": True},
    "/sys/fs/cgroup/cpu/kubepods/secret": {"mode": "0o600", "error": "Permission denied"},
    "/sys/fs/cgroup/cpu/kubepods/strange": {"mode": "0o600", "error": "Verboten"},
    "/sys/fs/cgroup/cpu/kubepods/unread": {"mode": "0o200"},
    "/sys/devices/system/cpu/cpu0/node0": {"link": "../../node/node0"},
    "/sys/devices/system/cpu/cpu1/node0": {"link": "/sys/devices/system/node/node0"},
    "/sys/devices/system/node/node0/cpulist": {"mode": "0o444", "content": "0-1\n"},
    "/sys/loop": {"link": "loop"},
    "/sys/dangling": {"link": "nowhere"},
}


@pytest.fixture
def recording(tmp_path: Path) -> RecordedFiles:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu 1 2 3 4 5 6 7\n")
    (tmp_path / "proc" / "pressure_cpu").write_text("some avg10=1.00\n")
    (tmp_path / "tree.json").write_text(json.dumps(CAPTURED))
    (tmp_path / "pods.json").write_text('{"kind": "PodList"}')
    return RecordedFiles([tmp_path])


@pytest.mark.parametrize(
    ("path", "content"),
    [
        pytest.param("/proc/stat", b"cpu 1 2 3 4 5 6 7\n", id="a plain file"),
        pytest.param("/proc/pressure/cpu", b"some avg10=1.00\n", id="a renamed file"),
        pytest.param("/sys/fs/cgroup/cpu/kubepods/cpu.cfs_quota_us", b"-1\n", id="an item of a JSON file"),
        pytest.param("/sys/devices/system/cpu/cpu0/node0/cpulist", b"0-1\n", id="through a relative link"),
        pytest.param("/sys/devices/system/cpu/cpu1/node0/cpulist", b"0-1\n", id="through an absolute link"),
        pytest.param("/pods.json", b'{"kind": "PodList"}', id="another JSON file is a plain file"),
    ],
)
def test_read(recording: RecordedFiles, path: str, content: bytes) -> None:
    assert recording.read(path) == content


@pytest.mark.parametrize(
    ("path", "number"),
    [
        pytest.param("/sys/fs/cgroup/cpu/kubepods/secret", errno.EACCES, id="the recorded error"),
        pytest.param("/sys/fs/cgroup/cpu/kubepods/strange", errno.EIO, id="an error nobody knows"),
        pytest.param("/sys/fs/cgroup/cpu/kubepods/unread", errno.EACCES, id="nothing was recorded of it"),
        pytest.param("/sys/fs/cgroup/cpu/kubepods", errno.EISDIR, id="a folder"),
        pytest.param("/sys/nothing", errno.ENOENT, id="absent"),
        pytest.param("/sys/dangling", errno.ENOENT, id="a link to nowhere"),
        pytest.param("/sys/loop", errno.ELOOP, id="a link to itself"),
    ],
)
def test_errors_are_the_kernels(recording: RecordedFiles, path: str, number: int) -> None:
    with pytest.raises(OSError) as caught:
        recording.read(path)
    assert (caught.value.errno, caught.value.filename) == (number, path)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/", ["pods.json", "proc/", "sys/"]),
        ("/proc", ["pressure/", "stat"]),
        ("/sys/fs/cgroup/cpu/kubepods/burstable", []),
        ("/sys/devices/system/cpu/cpu0", ["node0/"]),
        ("/sys/devices/system/cpu/cpu0/node0", ["cpulist"]),
    ],
)
def test_folders_are_listed_also_those_only_implied(recording: RecordedFiles, path: str, names: list[str]) -> None:
    assert recording.list(path) == names


@pytest.mark.parametrize(("path", "number"), [("/proc/stat", errno.ENOTDIR), ("/proc/x", errno.ENOENT)])
def test_what_is_no_folder_is_not_listed(recording: RecordedFiles, path: str, number: int) -> None:
    with pytest.raises(OSError) as caught:
        recording.list(path)
    assert caught.value.errno == number


def test_a_recording_is_never_changed(recording: RecordedFiles) -> None:
    for change in (
        lambda: recording.write("/proc/stat", b""),
        lambda: recording.mkdir("/proc/new"),
        lambda: recording.rmdir("/proc"),
    ):
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS
    with pytest.raises(FileNotFoundError):
        recording.write("/proc/new", b"")


def test_later_folders_win(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "proc").mkdir(parents=True)
        (tmp_path / name / "proc" / "stat").write_text(name)
    assert RecordedFiles([tmp_path / "one", tmp_path / "two"]).read("/proc/stat") == b"two"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="a recording is a folder"):
        RecordedFiles([tmp_path / "absent"])


@pytest.mark.parametrize("run", ["static", "none"])
def test_a_captured_kubelet_node(run: str) -> None:
    """The folder named by KUBELET_CAPTURES holds node/, static/ and none/ of a real node."""
    if "KUBELET_CAPTURES" not in os.environ:
        pytest.skip("KUBELET_CAPTURES does not name a folder of captures")
    folder = Path(os.environ["KUBELET_CAPTURES"])
    files = RecordedFiles([folder / "node", folder / run])
    assert [cpu.id for cpu in sysfs.topology(files).cpus] == [0, 1]
    assert procfs.memory(files).total == 25_276_514_304
    assert procfs.node_cpu_ticks(files) > 0
    cgroups = Cgroups.detect(files)
    assert (cgroups.layout.version, cgroups.layout.driver) == (1, "cgroupfs")
    assert cgroups.children("kubepods")[:2] == ["besteffort", "burstable"]
    assert cgroups.state("kubepods").cpuset == CPUSet({0, 1})
    for pod in cgroups.children("kubepods/burstable"):
        group = cgroups.pod_group(pod.removeprefix("pod"), KubeQoS.BURSTABLE)
        assert cgroups.state(group).quota_us == -1
        assert cgroups.cpu_usage_ns(group) > 0
        assert cgroups.memory(group) >= 0
