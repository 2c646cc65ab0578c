"""Fixtures on this machine's own cgroup v1: a private kubepods tree, its manifests, koordlite as a process."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator

import pytest
from realnode import command, tree
from realnode.command import Command
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.quick import Quick
from realnode.tree import Tree

IDLE = frozenset(
    f"test_{name}"
    for name in (
        "bad_input_live",
        "closed_machine",
        "crane",
        "irqs",
        "narrow_parent",
        "new_containers",
        "qos_files_here",
        "restore",
        "static_policy",
    )
)
"""Modules that load the CPUs little, or for moments."""


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
    ours = [item for item in items if item.nodeid.startswith("tests/kernel/")]
    why = _missing() if ours else ""
    for item in ours:
        item.add_marker(pytest.mark.kernel)
        # Two CPUs are not enough for two at once of those that load them.
        item.add_marker(pytest.mark.xdist_group("idle kernel" if item.path.stem in IDLE else "kernel"))
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


@dataclasses.dataclass
class Rig:
    """A private kubepods tree on this machine, the manifests of its cluster, and koordlite as processes beside them."""

    tree: Tree
    manifests: Manifests
    folder: pathlib.Path
    _begun: list[Command] = dataclasses.field(default_factory=list)

    @property
    def options(self) -> list[str]:
        """What names the machine, the cluster and the journal of this test."""
        folders = ["--cluster", str(self.manifests.folder), "--state-dir", str(self.folder / "state")]
        return [*folders, "--kubepods", self.tree.top]

    @property
    def enforcing(self) -> list[str]:
        """Arguments of `koordlite run` in mode enforce with a report."""
        report = ["--report", str(self.folder / "report"), "--published", str(self.folder / "published")]
        return ["run", *self.options, *report, "--mode", "enforce", "--no-http", "-q", "--interval", "0.2"]

    def start(self, *arguments: str, **settings: object) -> Command:
        """Start koordlite with these arguments; what still runs at the end is killed."""
        self._begun.append(Command(arguments, self.folder / f"koordlite-{len(self._begun)}.log", **settings))
        return self._begun[-1]

    def enforce(self, *more: str) -> Command:
        """Start an agent that enforces."""
        return self.start(*self.enforcing, *more)

    def populate(self, *pods: Pod, reservation: object | None = None, **documents: object) -> None:
        """Write the node, the ConfigMap of these documents and the pods, and make the groups of these."""
        self.manifests.node(reservation=reservation)
        self.manifests.config(**documents)
        for pod in pods:
            self.manifests.pod(pod)
            self.tree.add(pod)

    def end(self, agent: Command) -> None:
        """Stop the agent, to which the kernel refused nothing."""
        assert agent.stop() == 0
        assert not command.refusals(command.report(self.folder / "report"))

    def close(self) -> None:
        """Kill what still runs."""
        for one in self._begun:
            if one.alive():
                one.kill()


@pytest.fixture
def rig(kubepods: Tree, tmp_path: pathlib.Path) -> Iterator[Rig]:
    """A rig whose cluster is empty until a test writes into it."""
    made = Rig(kubepods, Manifests(tmp_path / "cluster"), tmp_path)
    yield made
    made.close()


@pytest.fixture
def quick(tmp_path: pathlib.Path) -> Iterator[Quick]:
    """koordlite commands without the cost of an import each."""
    with Quick(tmp_path / "quick") as server:
        yield server
