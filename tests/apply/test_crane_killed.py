"""A run with Crane's promises is killed at every step: the next run keeps each promise, and `restore` puts all back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cranepods
import pytest
import slices
from emulated import Emulated
from hooked_files import HookedFiles, Killed, killed_at

from koordlite.apply import restore
from koordlite.host import crane_promises, state_folder
from koordlite.host.journal import file
from koordlite.model.cpuset import CPUSet
from koordlite.numa.crane.assignments import contradiction

Step = Callable[..., None]
FIXED = ("first", "second", "third")


def run(node: Emulated, step: Step, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Pods come and go; says whether the run was killed."""
    store, replace = file.store, state_folder.replace

    def stored(*args: Any) -> None:
        step("journal")
        store(*args)
        step("journal written")

    def replaced(path: Path, raw: bytes) -> None:
        step("promises")
        replace(path, raw)
        step("promises written")

    with monkeypatch.context() as patch, node.journal() as journal:
        patch.setattr(file, "store", stored)
        patch.setattr(crane_promises.state_folder, "replace", replaced)
        agent = cranepods.agent(node, journal, files=HookedFiles(node.sandbox.files, step))
        try:
            node.ticks(agent, 1)
            cranepods.pod(node, "second", 2, {0: 2})
            node.ticks(agent, 1)
            node.remove("first")
            cranepods.pod(node, "third", {"one": 1, "two": 1}, {0: 1, 1: 1}, policy="immovable")
            node.ticks(agent, 1)
        except Killed:
            return True
    return False


def promised(node: Emulated) -> dict[str, CPUSet]:
    """What the state folder holds, by pod uid."""
    entries, problems = crane_promises.read(node.state)
    assert not problems
    assert contradiction(entries) == ""
    return {uid: CPUSet(cpu for e in theirs.values() for cpu in e.cpus) for uid, theirs in entries.items()}


def on_own_cpus(node: Emulated) -> dict[str, CPUSet]:
    """The containers of pods with fixed CPUs that the kernel keeps on some of them."""
    looking = cranepods.agent(node, None)
    looking.tick()
    sets = cranepods.sets(node, looking)
    return {name: cpus for name, cpus in sets.items() if name.split("/")[0] in FIXED and len(cpus) <= 2}


def start(tmp_path: Path, kill_at: int, version: int) -> Emulated:
    folder = tmp_path / str(kill_at)
    folder.mkdir()
    node = Emulated(cranepods.machine(8, version), folder)
    cranepods.kubelet(node)
    cranepods.pod(node, "web")
    cranepods.pod(node, "first", 2, {0: 2})
    cranepods.pod(node, "numa", 2, {0: 2}, policy="numa")
    return node


@pytest.mark.sliced  # A quick run is killed at every third step.
@pytest.mark.timeout(600)  # Some eighty kills and starts.
@pytest.mark.parametrize("version", slices.first([2, 1]))
def test_killed_at_every_step_the_next_run_keeps_each_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    kill_at, killed = 0, True
    while killed:
        node = start(tmp_path, kill_at, version)
        node.host()
        found = node.programmed()
        killed = run(node, killed_at(kill_at), monkeypatch)
        kept, had = promised(node), on_own_cpus(node)
        with node.journal() as journal:
            agent = cranepods.agent(node, journal)
            agent.take_over()
            node.ticks(agent, 2)
            assert agent.snapshot is not None
            now = {uid: promise.cpus for uid, promise in agent.snapshot.crane.promises.items()}
            for uid in kept.keys() & now.keys():
                assert not kept[uid] or now[uid] == kept[uid], f"killed at step {kill_at}"
            sets = cranepods.sets(node, agent)
            assert {name: sets.get(name) for name in had} == had, f"killed at step {kill_at}"
            exclusive = agent.snapshot.crane.exclusive
            alone = {f"{pod.name}/main" for pod in agent.snapshot.pods if pod.name in ("first", "second")}
            assert not [n for n, cpus in sets.items() if n not in alone and cpus & exclusive], f"step {kill_at}"
            assert all(step.ok for step in restore(node.host(), journal, node.cluster)), f"killed at step {kill_at}"
            assert journal.entries == ()
        before = {path: raw for path, raw in found.items() if "uid" not in path or "web" in path or "numa" in path}
        present = node.programmed()
        wrong = [p for p in node.changed(found) if p in before and present.get(p) != before[p] and "procs" not in p]
        assert wrong == [], f"killed at step {kill_at}"
        kill_at += slices.amount(1, 3)
    assert kill_at > 20, "the run has enough steps to be killed at"
