"""Fixtures on this machine's own cgroup v1: a private kubepods tree, its manifests, koordlite as a process."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest
from realnode import tree
from realnode.command import Command
from realnode.manifests import Manifests
from realnode.quick import Quick
from realnode.tree import Tree

HERE = pathlib.Path(__file__).parent


def _missing() -> str:
    """Why these tests cannot run here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root to make cgroups"
    version, points = tree.mounts()
    if version != 1:
        return "needs the cgroup v1 controllers cpu, cpuacct, cpuset and memory; this machine has v2 (see tests/vm)"
    absent = [name for name in tree.CONTROLLERS if name not in points]
    if absent:
        return f"cgroup v1 controllers not mounted: {', '.join(absent)}"
    closed = [str(point) for point in points.values() if not os.access(point, os.W_OK)]
    if closed:
        return f"not writable: {', '.join(closed)}"
    return "" if len(os.sched_getaffinity(0)) >= 2 else "needs two CPUs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    why = _missing() if ours else ""
    for item in ours:
        item.add_marker(pytest.mark.kernel)
        item.add_marker(pytest.mark.xdist_group("kernel"))  # Two CPUs are not enough for two of these at once.
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def kubepods() -> Iterator[Tree]:
    """A private tree with kubelet's three groups; everything in it ends with the test."""
    built = Tree(f"{tree.PREFIX}{os.getpid()}")
    try:
        yield built.build()
    finally:
        built.close()


@pytest.fixture
def manifests(tmp_path: pathlib.Path) -> Manifests:
    """The cluster of one node: empty until a test writes into it."""
    return Manifests(tmp_path / "cluster")


@pytest.fixture
def options(kubepods: Tree, manifests: Manifests, tmp_path: pathlib.Path) -> list[str]:
    """What names the machine, the cluster and the journal of this test."""
    folders = ["--cluster", str(manifests.folder), "--state-dir", str(tmp_path / "state")]
    return [*folders, "--kubepods", kubepods.top]


@pytest.fixture
def enforce(options: list[str], tmp_path: pathlib.Path) -> list[str]:
    """Arguments of `koordlite run` in mode enforce with a report."""
    report = ["--report", str(tmp_path / "report"), "--published", str(tmp_path / "published")]
    return ["run", *options, *report, "--mode", "enforce", "--no-http", "-q", "--interval", "0.2"]


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Start koordlite with the arguments given; what still runs at the end is killed."""
    begun: list[Command] = []

    def command(*arguments: str, **settings: object) -> Command:
        begun.append(Command(arguments, tmp_path / f"koordlite-{len(begun)}.log", **settings))
        return begun[-1]

    yield command
    for one in begun:
        if one.alive():
            one.kill()


@pytest.fixture
def quick(tmp_path: pathlib.Path) -> Iterator[Quick]:
    """koordlite commands without the cost of an import each."""
    with Quick(tmp_path / "quick") as server:
        yield server
