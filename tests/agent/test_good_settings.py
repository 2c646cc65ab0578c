"""Settings that cannot be used do not fail open, whether the agent goes on or starts anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.host import kept_file, state_folder
from koordlite.model.slo.settings import GoodDocument

Make = Callable[[str], Emulated]
KEY = "resource-threshold-config"
BROKEN = {"colocation-config": {"enable": True}, KEY: "{"}


def test_a_restart_with_a_broken_document_goes_on_with_the_last_good_one(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        limits = [tick.figures.be_limit for tick in node.ticks(node.agent(journal), 12)]
    node.raw_slo(BROKEN)
    with node.at_work() as agent:
        agent.take_over()
        ticks = node.ticks(agent, 5)
    assert [tick.figures.be_limit for tick in ticks][-1] == limits[-1]
    assert not [d for tick in ticks for d in tick.decisions if d.reason == "Disabled"]
    (problem,) = [each for each in ticks[-1].problems if each.field.startswith(KEY)]
    assert "the last good values stay in force (taken 2026-01-01T00:00:" in problem.do


def test_a_mended_document_counts_at_once_and_is_kept(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        agent = node.agent(journal)
        node.ticks(agent, 2)
        node.raw_slo(BROKEN)
        node.ticks(agent, 2)
        held = kept_file.good_settings(Path(journal.folder)).value[KEY]
        node.slo(percent=50)
        node.ticks(agent, 2)
        fresh = kept_file.good_settings(Path(journal.folder)).value[KEY]
    assert '"cpuSuppressThresholdPercent": 65' in held.text
    assert '"cpuSuppressThresholdPercent": 50' in fresh.text
    assert fresh.taken_at > held.taken_at


def test_what_was_kept_and_cannot_be_read_is_a_problem_and_no_end(emulate: Make) -> None:
    node = emulate("small")
    node.state.mkdir()
    (node.state / kept_file.GOOD_SETTINGS).write_text("{")
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 1)[0]
        assert kept_file.good_settings(Path(journal.folder)).value[KEY].text
    assert tick.status == "enforcing"


def test_a_folder_that_cannot_be_written_is_told(emulate: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    node = emulate("small")
    monkeypatch.setattr(state_folder, "replace", full)
    with node.at_work() as agent:
        tick = node.ticks(agent, 2)[-1]
        assert any(kept_file.GOOD_SETTINGS in p.object and "No space left" in p.why for p in tick.problems)
        monkeypatch.undo()
        assert not [p for p in node.ticks(agent, 1)[0].problems if kept_file.GOOD_SETTINGS in p.object]


def test_the_resource_version_is_told() -> None:
    assert GoodDocument("{}", "2026-01-01T00:00:00Z", "7").origin == "taken 2026-01-01T00:00:00Z, resourceVersion 7"
    assert GoodDocument("{}", resource_version="7").origin == "resourceVersion 7"
    assert GoodDocument("{}").origin == ""
