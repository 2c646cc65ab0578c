"""A run killed at any moment is undone byte for byte.

By a start that enforces nothing any more, by `restore`, and by the stop of a run that went on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import slices
from emulated import Emulated
from hooked_files import HookedFiles, Killed, killed_at

from koordlite.apply import restore
from koordlite.host.journal import file
from koordlite.host.journal.journal import Journal
from koordlite.model.settings import Mode
from koordlite.model.status import AppliedStep

Make = Callable[..., Emulated]
Steps = tuple[AppliedStep, ...]
After = Callable[[Emulated, Journal], Steps]
TICKS = 3


def run(node: Emulated, step: Callable[..., None], monkeypatch: pytest.MonkeyPatch, **slo: Any) -> bool:
    """Some ticks in which everything changes; says whether the run was killed."""
    store = file.store

    def watched_store(*args: Any) -> None:
        step("journal")
        store(*args)
        step("journal written")

    with monkeypatch.context() as patch, node.journal() as journal:
        patch.setattr(file, "store", watched_store)
        agent = node.agent(journal, files=HookedFiles(node.sandbox.files, step))
        try:
            for tick in range(TICKS):
                node.slo(**slo, percent=65 - 20 * tick)
                node.ticks(agent, 1)
        except Killed:
            return True
    return False


def start_that_observes(node: Emulated, journal: Journal) -> Steps:
    """No strategy enforces any more: the start undoes everything."""
    mode: Mode = "observe"
    return node.agent(journal, mode).take_over()


def restored(node: Emulated, journal: Journal) -> Steps:
    """The command `koordlite restore`."""
    return restore(node.host(), journal, node.cluster)


def start_that_goes_on(node: Emulated, journal: Journal) -> Steps:
    """The start lifts nothing, the run goes on, and its stop puts back what the killed run had found."""
    left = node.programmed()
    agent = node.agent(journal)
    assert agent.take_over() == ()
    assert node.programmed() == left, "a start lifts nothing that is still enforced"
    node.ticks(agent, TICKS)
    return agent.put_back()


@pytest.mark.sliced  # A quick run is killed at every second step.
@pytest.mark.parametrize("after", [start_that_observes, restored, start_that_goes_on])
@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
@pytest.mark.parametrize("shape", slices.first(["small", "intel-2s-ht", "amd-ccd"]))
def test_killed_at_every_step_and_restored(
    emulate: Make, monkeypatch: pytest.MonkeyPatch, *, shape: str, policy: str, after: After
) -> None:
    kill_at, killed = 0, True
    while killed:
        node = emulate(shape, str(kill_at))
        host = node.host()
        found = node.programmed()
        killed = run(node, killed_at(kill_at), monkeypatch, policy=policy)
        with node.journal() as journal:
            steps = after(node, journal)
            assert all(step.ok for step in steps), f"killed at step {kill_at}"
            assert journal.entries == (), f"killed at step {kill_at}"
        assert node.changed(found) == [], f"killed at step {kill_at}"
        assert host.cgroups.exists(host.cgroups.layout.besteffort)
        kill_at += slices.amount(1, 4)
    assert kill_at > 10, "the run has enough steps to be killed at"


@pytest.mark.parametrize("after", [start_that_observes, restored, start_that_goes_on])
def test_killed_while_restoring_and_restored_again(
    emulate: Make, monkeypatch: pytest.MonkeyPatch, after: After
) -> None:
    kill_at, killed = 0, True
    while killed:
        node = emulate("small", str(kill_at))
        node.host()
        found = node.programmed()
        run(node, lambda *_: None, monkeypatch)
        killed = False
        with node.journal() as journal:
            files = HookedFiles(node.sandbox.files, killed_at(kill_at))
            try:
                node.agent(journal, "observe", files=files).take_over()
            except Killed:
                killed = True
        with node.journal() as journal:
            after(node, journal)
        assert node.changed(found) == [], f"killed at step {kill_at} of the restore"
        kill_at += 1
    assert kill_at > 3
