"""kill -9 between any two steps on resctrl, of a run or of its undoing: the next restore finds everything as it was."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import slices
from emulated import BOOT
from hooked_files import HookedFiles, Killed
from resctrlnode import ROOT, EmulatedMounts, Node

from koordlite.apply.restore import restore
from koordlite.host import bundle
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import Journal

THEIRS = ("mon_groups/all", "theirs", "theirs/mon_groups/web", "BE")
WISH = json.dumps({"llc": {"schemata": {"range": [50, 100]}}, "mb": {"schemata": {"percent": 40}}})
ALWAYS = 10**6


class Fuse:
    """Burns at the n-th step; `burnt` counts what came."""

    def __init__(self, steps: int) -> None:
        self._steps, self.burnt = steps, 0

    def __call__(self, call: str, path: str) -> None:
        if path.startswith(ROOT):
            self.burnt += 1
            if self.burnt > self._steps:
                raise Killed(path)


class BreakableMounts(EmulatedMounts):
    """Mounts that work up to some step only."""

    def __init__(self, node: Any, before: Callable[[str, str], None]) -> None:
        super().__init__(node)
        self._before = before

    def mount(self, point: str, options: str = "") -> None:
        self._before("mount", point)
        super().mount(point, options)

    def umount(self, point: str) -> None:
        self._before("umount", point)
        super().umount(point)


def machine(node: Node, fuse: Fuse) -> Host:
    mounts = BreakableMounts(node.emulated, fuse)
    return bundle.bind(HookedFiles(node.files, fuse), node.emulated.sandbox.clock, mounts=mounts)


def prepared(folder: Path, shape: str) -> Node:
    """Somebody has groups, a class among them, and monitors threads; nothing where resctrl is not mounted."""
    node = Node(folder, shape)
    if node.files.list(ROOT):
        for group in THEIRS:
            node.files.mkdir(f"{ROOT}/{group}")
        homes = (("mon_groups/all", 0), ("theirs", 1), ("theirs", 2), ("theirs/mon_groups/web", 2))
        for group, number in homes:
            node.files.write(f"{ROOT}/{group}/tasks", b"%d\n" % node.tids[number])
    return node


def run(node: Node, journal: Journal, fuse: Fuse) -> None:
    """Two classes, a pod that asks for itself and changes its mind, a class that ends, and the end of the run."""
    agent = node.agent(journal, monitor_pods=True)
    agent = type(agent)(machine(node, fuse), node.emulated.cluster, agent._settings, journal)
    node.classes("lsClass", "beClass")
    node.run(2, journal, agent)
    node.wish(WISH)
    node.run(2, journal, agent)
    node.wish(None)
    node.classes("lsClass")
    node.run(1, journal, agent)
    agent.put_back()


def killed_run(folder: Path, shape: str, steps: int, undo_steps: int = ALWAYS) -> int:
    """How many steps the run had until its end; asserts that everything is as found after the last restore."""
    folder.mkdir()
    node, fuse = prepared(folder, shape), Fuse(steps)
    before = state(node)
    with Journal.open(folder / "state", boot_id=BOOT) as journal, contextlib.suppress(Killed):
        run(node, journal, fuse)
    for undo in (undo_steps, ALWAYS):
        with Journal.open(folder / "state", boot_id=BOOT) as journal, contextlib.suppress(Killed):
            restore(machine(node, Fuse(undo)), journal)
            assert [place for place in journal.places if place.kind.is_resctrl] == []
    assert state(node) == before, f"killed after {steps} steps, and its undoing after {undo_steps}"
    return fuse.burnt


def state(node: Node) -> dict[str, bytes]:
    """Every file of groups that can be written, and where each thread is."""
    wanted = ("schemata", "tasks", "mode", "cpus")
    files = (path for path in node.files.paths("/sys/fs") if path.startswith(ROOT) and path.endswith(wanted))
    homes = (f"/proc/{tid}/cpu_resctrl_groups" for tid in node.tids)
    return {path: node.files.read(path) for path in (*files, *homes)}


@pytest.mark.parametrize("shape", slices.first(["intel-cdp", "intel-unmounted", "amd-genoa"]))
def test_wherever_a_run_is_killed(tmp_path: Path, shape: str) -> None:
    whole = killed_run(tmp_path / "whole", shape, ALWAYS)
    assert whole > 20
    for steps in range(0, whole, 3):
        killed_run(tmp_path / f"{steps}", shape, steps)


def test_wherever_its_undoing_is_killed_too(tmp_path: Path) -> None:
    for undo_steps in range(1, 24, 2):
        killed_run(tmp_path / f"{undo_steps}", "intel-2s-ht", 12, undo_steps)
