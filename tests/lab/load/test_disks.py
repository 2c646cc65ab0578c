"""Disks of the emulated node refuse what a kernel refuses, and serve what the limits leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.machine.tree import Tree
from koordlite.model.wire import objects

Attempt = Callable[[Tree, str, str], str]
MakePod = Callable[..., objects.PodObject]
MiB = 2**20
ROOT = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("file", "text", "answer"),
    [
        pytest.param("io.max", "254:0 rbps=1000 wiops=max", "ok", id="some limits"),
        pytest.param("io.max", "254:1 rbps=1000", "ENODEV", id="a partition has none"),
        pytest.param("io.max", "254:0 rbps=0", "ERANGE", id="nothing at all is no limit"),
        pytest.param("io.max", "254:0 bps=5", "EINVAL", id="no such word"),
        pytest.param("io.weight", "254:0 50", "ok", id="a weight"),
        pytest.param("io.weight", "254:0 50", "ENOTSUP", id="a weight before the disk is weighed"),
        pytest.param("io.weight", "254:0 0", "ERANGE", id="no weight"),
        pytest.param("io.weight", "254:0 default", "ok", id="the default"),
    ],
)
def test_v2(v2: Sandbox, attempt: Attempt, file: str, text: str, answer: str) -> None:
    v2.cgroups.make("g")
    if answer != "ENOTSUP":
        v2.files.write(f"{ROOT}/io.cost.qos", b"254:0 enable=1")
    assert attempt(v2.files, f"{ROOT}/g/{file}", text) == answer


def test_v1_takes_zero_for_no_limit(v1: Sandbox, attempt: Attempt) -> None:
    v1.cgroups.make("g")
    path = f"{ROOT}/blkio/g/blkio.throttle.read_bps_device"
    assert attempt(v1.files, path, "254:0 1000") == "ok"
    assert v1.files.read(path) == b"254:0 1000\n"
    assert attempt(v1.files, path, "254:0 0") == "ok"
    assert v1.files.read(path) == b""


def test_numbers_make_the_targets_the_user_s_and_auto_gives_them_back(v2: Sandbox, attempt: Attempt) -> None:
    path = f"{ROOT}/io.cost.qos"
    assert v2.files.read(path) == b""
    assert attempt(v2.files, path, "254:0 enable=1 rpct=95 rlat=2000") == "ok"
    assert b"enable=1 ctrl=user rpct=95 rlat=2000" in v2.files.read(path)
    assert attempt(v2.files, path, "254:0 ctrl=auto") == "ok"
    assert b"enable=1 ctrl=auto rpct=0.00 rlat=0" in v2.files.read(path)
    assert attempt(v2.files, path, "254:0 rqct=95") == "EINVAL"


@pytest.mark.parametrize("shape", ["small", "arm"])
def test_a_limit_of_the_group_above_is_shared(shape: str, make_pod: MakePod) -> None:
    node = Sandbox(shape)
    pods = tuple(make_pod(name, cpu="10m", disk_read="100Mi") for name in ("a", "b"))
    node.sync(pods)
    v1 = node.cgroups.version == 1
    group = f"{ROOT}/blkio/kubepods/besteffort" if v1 else f"{ROOT}/{node.kubelet.layout.besteffort}"
    text = f"254:0 {50 * MiB}" if v1 else f"254:0 rbps={50 * MiB}"
    node.files.write(f"{group}/{'blkio.throttle.read_bps_device' if v1 else 'io.max'}", text.encode())
    node.advance(2)
    top = node.cgroups.io.find(node.kubelet.layout.besteffort)
    assert top is not None
    assert top.read_bytes == pytest.approx(100 * MiB, rel=0.01)


def test_without_a_limit_the_disk_s_own_speed_is_shared(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync((make_pod("a", cpu="10m", disk_read="300Mi"), make_pod("b", cpu="10m", disk_read="500Mi")))
    v2.advance(1)
    assert v2.cgroups.io.root.read_bytes == pytest.approx(400 * MiB, rel=0.01)
    assert b"254:0 rbytes=" in v2.files.read(f"{ROOT}/io.stat")
