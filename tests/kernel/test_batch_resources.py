"""Batch resources on the real kernel: shares, quota and memory limit are written, hold, and go back byte for byte."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from realnode.manifests import Manifests
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

from tests.kernel.conftest import Rig

MiB = 2**20
BATCH = Pod("batch", batch=(400, 64 * MiB))
LATE = Pod("late", containers=("main", "side"), batch=(200, 48 * MiB))
FILES = (("cpu", "cpu.shares"), ("cpu", "cpu.cfs_quota_us"), ("memory", "memory.limit_in_bytes"))
_HOLD = """
import sys, time
held = bytearray(int(sys.argv[1]))
held[::4096] = b"x" * len(held[::4096])
print("held", flush=True)
time.sleep(600)
"""


def values(kubepods: Tree, group: str) -> tuple[int, ...]:
    """Shares, quota and memory limit of a group."""
    found = ((kubepods.points[controller] / group / name).read_text() for controller, name in FILES)
    return tuple(map(int, found))


def content(kubepods: Tree) -> dict[str, bytes]:
    """The bytes of those files in every group."""
    paths = (kubepods.points[controller] / group / name for group in kubepods.groups() for controller, name in FILES)
    return {str(path): path.read_bytes() for path in paths}


def add(kubepods: Tree, manifests: Manifests, pod: Pod) -> None:
    """Groups as kubelet leaves them for a pod without native requests, then the pod."""
    kubepods.add(pod)
    for group in kubepods.groups_of(pod):
        (kubepods.points["cpu"] / group / "cpu.shares").write_text("2")
    manifests.pod(pod)


@pytest.fixture
def found(rig: Rig) -> dict[str, bytes]:
    """A node with one batch pod, and what its files hold."""
    rig.manifests.node()
    rig.manifests.config()
    add(rig.tree, rig.manifests, BATCH)
    return content(rig.tree)


def test_batch_pods_run_within_what_they_asked_for(rig: Rig, found: dict[str, bytes]) -> None:
    agent = rig.enforce("--on-stop", "restore")
    wanted = (409, 40_000, 64 * MiB)
    main = rig.tree.container(BATCH, "main")
    until(lambda: values(rig.tree, main) == values(rig.tree, rig.tree.pod(BATCH)) == wanted, "the values are there")
    assert values(rig.tree, rig.tree.container(BATCH, SANDBOX))[:2] == (2, -1)

    rig.tree.load(BATCH)
    began, used = time.monotonic(), rig.tree.usage_ns(main)
    for_a_while(lambda: values(rig.tree, main) == wanted, "they stay", seconds=2.0)
    assert (rig.tree.usage_ns(main) - used) / (time.monotonic() - began) <= 0.45e9

    add(rig.tree, rig.manifests, LATE)
    until(lambda: values(rig.tree, rig.tree.pod(LATE)) == (409, 40_000, 96 * MiB), "a pod is the sum of two")
    side = rig.tree.container(LATE, "side")
    until(lambda: values(rig.tree, side) == (204, 20_000, 48 * MiB), "its container has its part")
    assert agent.stop() == 0
    present = content(rig.tree)
    assert {path: present[path] for path in found} == found
    assert values(rig.tree, rig.tree.pod(LATE))[:2] == (2, -1)


def test_a_memory_limit_below_use_waits_and_ends_nobody(rig: Rig, found: dict[str, bytes]) -> None:
    command = [sys.executable, "-S", "-c", _HOLD, str(96 * MiB)]
    main = rig.tree.container(BATCH, "main")
    files = " ".join(str(point / main / "cgroup.procs") for point in set(rig.tree.points.values()))
    shell = ["sh", "-c", f'for f in {files}; do echo $$ > $f; done; exec "$@"', "sh", *command]
    with subprocess.Popen(shell, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
            agent = rig.enforce("--on-stop", "restore")
            until(lambda: values(rig.tree, main)[:2] == (409, 40_000), "shares and quota do not wait")
            limit = values(rig.tree, main)[2]
            for_a_while(lambda: holder.poll() is None and values(rig.tree, main)[2] == limit, "it waits", seconds=2.0)
            assert limit > 2**60
        finally:
            holder.kill()
    until(lambda: values(rig.tree, main)[2] == 64 * MiB, "it is written when the use has fallen")
    assert agent.stop() == 0
    assert content(rig.tree) == found
