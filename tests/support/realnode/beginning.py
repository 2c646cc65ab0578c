"""Containers that begin as a runtime begins them, and how long it takes until their groups have what they should."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Mapping

from realnode.pods import Pod
from realnode.tree import Tree

FILES = {
    1: {
        "shares": ("cpu", "cpu.shares"),
        "quota": ("cpu", "cpu.cfs_quota_us"),
        "memory": ("memory", "memory.limit_in_bytes"),
        "cpus": ("cpuset", "cpuset.cpus"),
    },
    2: {
        "shares": ("cpu", "cpu.weight"),
        "quota": ("cpu", "cpu.max"),
        "memory": ("memory", "memory.max"),
        "cpus": ("cpuset", "cpuset.cpus"),
    },
}
_LOOK_SECONDS = 0.0005


def path(tree: Tree, group: str, name: str) -> pathlib.Path:
    """The file of `shares`, `quota`, `memory` or `cpus` of a group."""
    controller, file = FILES[tree.version][name]
    return tree.points[controller] / group / file


def values(tree: Tree, group: str) -> dict[str, str]:
    """What those files hold."""
    return {name: path(tree, group, name).read_text().strip() for name in FILES[tree.version]}


def make(tree: Tree, group: str) -> float:
    """Make one group in every hierarchy, that of the cpu controller last, as runc does; when it was there.

    Then kubelet's shares are written, of no CPU in the besteffort tree and of 100m elsewhere.
    """
    points = dict.fromkeys([*(point for name, point in tree.points.items() if name != "cpu"), tree.points["cpu"]])
    for point in points:
        (point / group).mkdir(exist_ok=True)
        if tree.version == 1 and point == tree.points["cpuset"]:
            for name in ("cpuset.cpus", "cpuset.mems"):
                (point / group / name).write_text((point / group).parent.joinpath(name).read_text().strip())
    made = time.monotonic()
    shares = {1: "2", 2: "1"} if "besteffort" in group else {1: "102", 2: "4"}
    path(tree, group, "shares").write_text(shares[tree.version])
    return made


def delegate(tree: Tree, group: str) -> None:
    """On v2 the groups below have files only for controllers that are passed down."""
    if tree.version == 2:
        (tree.points["cpu"] / group / "cgroup.subtree_control").write_text("+cpu +cpuset +memory")


def until(tree: Tree, group: str, wanted: Mapping[str, str], *, since: float, seconds: float = 40.0) -> float:
    """Seconds from `since` until the files of a group hold `wanted`. AssertionError with what they hold instead."""
    files = {name: os.open(path(tree, group, name), os.O_RDONLY) for name in wanted}
    try:
        while True:
            held = {name: os.pread(file, 4096, 0).decode().strip() for name, file in files.items()}
            now = time.monotonic()
            if held == dict(wanted):
                return now - since
            assert now - since < seconds, f"{group} after {seconds} s: {held}, not {dict(wanted)}"
            time.sleep(_LOOK_SECONDS)
    finally:
        for file in files.values():
            os.close(file)


def batch_values(tree: Tree, milli: int, memory: int) -> dict[str, str]:
    """What a container with these batch-cpu and batch-memory gets, but for its CPUs."""
    shares, quota = milli * 1024 // 1000, milli * 100
    if tree.version == 1:
        return {"shares": str(shares), "quota": str(quota), "memory": str(memory)}
    return {"shares": str(1 + (shares - 2) * 9999 // 262142), "quota": f"{quota} 100000", "memory": str(memory)}


def begin(tree: Tree, pod: Pod, container: str, wanted: Mapping[str, str]) -> float:
    """Make the group of a container; seconds until it holds `wanted`."""
    group = tree.container(pod, container)
    return until(tree, group, wanted, since=make(tree, group))


def told(seconds: list[float]) -> str:
    """Milliseconds in one line: median, 99th percentile, longest."""
    found = sorted(1000 * each for each in seconds)
    p99 = found[min(len(found) - 1, len(found) * 99 // 100)]
    return f"{len(found)} containers: median {found[len(found) // 2]:.1f}, p99 {p99:.1f}, longest {found[-1]:.1f} ms"
