"""Batch resources on the real kernel: shares, quota and memory limit are written, hold, and go back byte for byte."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from realnode.command import Command
from realnode.manifests import Manifests
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

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
def found(kubepods: Tree, manifests: Manifests) -> dict[str, bytes]:
    """A node with one batch pod, and what its files hold."""
    manifests.node()
    manifests.config()
    add(kubepods, manifests, BATCH)
    return content(kubepods)


def test_batch_pods_run_within_what_they_asked_for(
    kubepods: Tree, manifests: Manifests, found: dict[str, bytes], start: Callable[..., Command], enforce: list[str]
) -> None:
    kubepods.load(BATCH)
    agent = start(*enforce, "--on-stop", "restore")
    wanted = (409, 40_000, 64 * MiB)
    main = kubepods.container(BATCH, "main")
    until(lambda: values(kubepods, main) == values(kubepods, kubepods.pod(BATCH)) == wanted, "the values are there")
    assert values(kubepods, kubepods.container(BATCH, SANDBOX))[:2] == (2, -1)

    began, used = time.monotonic(), kubepods.usage_ns(main)
    for_a_while(lambda: values(kubepods, main) == wanted, "they stay", seconds=2.0)
    assert (kubepods.usage_ns(main) - used) / (time.monotonic() - began) <= 0.45e9

    add(kubepods, manifests, LATE)
    until(lambda: values(kubepods, kubepods.pod(LATE)) == (409, 40_000, 96 * MiB), "a pod is the sum of two")
    side = kubepods.container(LATE, "side")
    until(lambda: values(kubepods, side) == (204, 20_000, 48 * MiB), "its container has its part")
    assert agent.stop() == 0
    present = content(kubepods)
    assert {path: present[path] for path in found} == found
    assert values(kubepods, kubepods.pod(LATE))[:2] == (2, -1)


def test_a_memory_limit_below_use_waits_and_ends_nobody(
    kubepods: Tree, found: dict[str, bytes], start: Callable[..., Command], enforce: list[str], tmp_path: pathlib.Path
) -> None:
    command = [sys.executable, "-S", "-c", _HOLD, str(96 * MiB)]
    main = kubepods.container(BATCH, "main")
    files = " ".join(str(point / main / "cgroup.procs") for point in set(kubepods.points.values()))
    shell = ["sh", "-c", f'for f in {files}; do echo $$ > $f; done; exec "$@"', "sh", *command]
    with subprocess.Popen(shell, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
            agent = start(*enforce, "--on-stop", "restore")
            until(lambda: values(kubepods, main)[:2] == (409, 40_000), "shares and quota do not wait")
            limit = values(kubepods, main)[2]
            for_a_while(lambda: holder.poll() is None and values(kubepods, main)[2] == limit, "it waits", seconds=2.0)
            assert limit > 2**60
        finally:
            holder.kill()
    until(lambda: values(kubepods, main)[2] == 64 * MiB, "it is written when the use has fallen")
    assert agent.stop() == 0
    assert content(kubepods) == found
