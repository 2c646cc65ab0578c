"""A paused agent looks on: what is in force stays or goes, nothing new is written, and the pause ends by itself."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.host import pause_file
from koordlite.model.status import PAUSE_ANNOTATION, FreshUse, Pause

START = 1_767_225_600.0
"""The sandbox's first second."""
Ask = Callable[[Emulated, bool], None]


@pytest.fixture
def small(emulate: Callable[[str], Emulated]) -> Emulated:
    """4 CPUs, cgroup v1."""
    return emulate("small")


def by_command(node: Emulated, release: bool, *, seconds: float = 20.0) -> None:
    until = node.sandbox.clock.wall() + seconds
    pause_file.write(node.state, Pause(until=until, because="a test", release=release))


def annotate(node: Emulated, text: str) -> None:
    amounts = {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "4", "memory": "8Gi"}}
    node._write("node", "v1", "Node", {"name": "node-a", "annotations": {PAUSE_ANNOTATION: text}}, status=amounts)


def by_annotation(node: Emulated, release: bool) -> None:
    wall = int(node.sandbox.clock.wall() - START) + 20
    word = "release" if release else "keep"
    annotate(node, json.dumps({"until": f"2026-01-01T00:00:{wall:02}Z", "because": "a test", "inForce": word}))


ASKED = pytest.mark.parametrize("asked", [by_command, by_annotation], ids=["by command", "by annotation"])


@ASKED
def test_what_is_in_force_stays_and_nothing_is_written(small: Emulated, asked: Ask) -> None:
    with small.at_work() as agent:
        small.ticks(agent, 3)
        limited = small.best_effort_cpus()
        assert limited != "0-3"
        asked(small, False)
        small.slo(percent=100)
        ticks = small.ticks(agent, 10)
    assert {tick.status for tick in ticks[1:]} == {"paused"}
    assert [tick.applied for tick in ticks[1:]] == [()] * 9
    assert small.best_effort_cpus() == limited
    assert ticks[-1].modes["cpuSuppress"] == "observe"
    assert any(decision.changes for decision in ticks[-1].decisions)


@ASKED
def test_what_is_in_force_is_given_back_where_that_is_asked(small: Emulated, asked: Ask) -> None:
    small.host()
    found = small.programmed()
    with small.journal() as journal:
        agent = small.agent(journal)
        small.ticks(agent, 3)
        assert small.changed(found)
        places = len(journal.entries)
        asked(small, True)
        ticks = small.ticks(agent, 10)
        assert small.changed(found) == []
        assert journal.entries == ()
    assert [tick.foreign for tick in ticks] == [()] * 10
    assert [tick.restored for tick in ticks if tick.restored] == [places]


@ASKED
@pytest.mark.parametrize("release", [False, True], ids=["kept", "released"])
def test_a_pause_ends_by_itself(small: Emulated, asked: Ask, release: bool) -> None:
    with small.at_work() as agent:
        limits = [str(tick.best_effort) for tick in small.ticks(agent, 3)]
        asked(small, release)
        words = [tick.status for tick in small.ticks(agent, 30)]
        last = small.ticks(agent, 1)[0]
    assert words.count("paused") in (19, 20)
    assert words[-1] == last.status == "enforcing"
    assert str(last.best_effort) == limits[-1] == small.best_effort_cpus()


@ASKED
def test_a_restart_stays_paused_and_undoes_the_earlier_run_only_afterwards(small: Emulated, asked: Ask) -> None:
    with small.journal() as journal:
        small.ticks(small.agent(journal), 3)
    limited = small.best_effort_cpus()
    small.slo(enable=False, resctrl=False)
    asked(small, False)
    small.sandbox.advance(1.0)  # The folder is looked at once a second.
    with small.at_work() as agent:
        assert agent.take_over() == ()
        words = [tick.status for tick in small.ticks(agent, 15)]
        assert words == ["paused"] * 15
        assert small.best_effort_cpus() == limited
        small.ticks(agent, 8)
    assert small.best_effort_cpus() == "0-3"


def test_a_restart_in_a_releasing_pause_undoes_the_earlier_run_at_once(small: Emulated) -> None:
    with small.journal() as journal:
        small.ticks(small.agent(journal), 3)
    by_command(small, True)
    with small.journal() as journal:
        assert small.agent(journal).take_over()
        assert small.best_effort_cpus() == "0-3"


@pytest.mark.parametrize("restarted", [False, True], ids=["the same run", "a run that began paused"])
def test_a_full_disk_delays_the_release_and_ends_no_loop(
    small: Emulated, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with small.journal() as journal:
        agent = small.agent(journal)
        small.ticks(agent, 3)
        if restarted:
            by_command(small, False, seconds=3.0)
            agent = small.agent(journal, "observe")
            assert agent.take_over() == ()
            assert small.ticks(agent, 2)[-1].status == "paused"
            small.sandbox.advance(2.0)
        else:
            by_command(small, True)
        monkeypatch.setattr("koordlite.host.journal.file.store", full)
        ticks = small.ticks(agent, 3)
        assert [tick.status for tick in ticks] == ["degraded"] * 3
        assert "could not all be given back: the undo journal" in ticks[-1].because
        assert "No space left on device" in ticks[-1].because
        assert [tick.foreign for tick in ticks] == [()] * 3
        monkeypatch.undo()
        tick = small.ticks(agent, 1)[0]
        assert (tick.status, journal.entries) == ("observing" if restarted else "paused", ())


def test_taking_the_pause_back_ends_it(small: Emulated) -> None:
    with small.at_work() as agent:
        by_command(small, False)
        assert small.ticks(agent, 2)[-1].status == "paused"
        assert pause_file.remove(small.state)
        assert small.ticks(agent, 2)[-1].status == "enforcing"


def test_no_round_between_two_ticks_while_paused(small: Emulated) -> None:
    with small.at_work() as agent:
        small.ticks(agent, 3)
        assert agent.react(FreshUse(node=3900, pods=3900, best_effort=1000)) is not None
        by_command(small, False)
        small.ticks(agent, 1)
        assert agent.react(FreshUse(node=3900, pods=3900, best_effort=1000)) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("two hours", "malformed"),
        ("{}", "until"),
        ('{"until":"tomorrow","because":"x"}', "RFC3339"),
        ('{"until":"2026-01-01T00:00:30","because":"x"}', "no zone"),
        ('{"until":"2026-01-01T00:00:30Z"}', "because of what"),
        ('{"until":"2026-01-01T00:00:30Z","because":"x","inForce":"drop"}', "keep or release"),
        ('{"until":"2026-01-01T00:00:30Z","becuase":"x"}', "becuase"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_a_problem_and_pauses_nothing(
    small: Emulated, text: str, why: str
) -> None:
    annotate(small, text)
    with small.journal() as journal:
        tick = small.ticks(small.agent(journal), 1)[0]
    assert tick.status == "enforcing"
    problem = next(each for each in tick.problems if each.field == PAUSE_ANNOTATION)
    assert problem.object == "node/node-a"
    assert why in problem.why


def test_a_good_pause_outlives_a_spoiled_one_until_it_ends(small: Emulated) -> None:
    with small.at_work() as agent:
        by_annotation(small, False)
        small.ticks(agent, 2)
        annotate(small, "{")
        ticks = small.ticks(agent, 25)
    assert [tick.status for tick in (ticks[1], ticks[-1])] == ["paused", "enforcing"]
    assert all(any(each.field == PAUSE_ANNOTATION for each in tick.problems) for tick in ticks[1:])


def test_a_spoiled_file_is_a_problem(small: Emulated) -> None:
    with small.at_work() as agent:
        (small.state / pause_file.NAME).write_text("nonsense")
        tick = small.ticks(agent, 1)[0]
    assert any(problem.object.endswith(pause_file.NAME) for problem in tick.problems)


def test_of_two_pauses_the_later_end_holds_and_either_may_release(small: Emulated) -> None:
    with small.at_work() as agent:
        small.ticks(agent, 2)
        by_command(small, True, seconds=5)
        by_annotation(small, False)
        tick = small.ticks(agent, 2)[-1]
    assert tick.pause is not None
    assert (tick.pause.by, tick.pause.release) == ("annotation", True)


def test_an_agent_that_never_writes_shows_the_annotation_too(small: Emulated) -> None:
    by_annotation(small, False)
    agent = Agent(small.host(), small.cluster, small.settings("observe"))
    assert agent.tick().status == "paused"


def test_the_file_says_what_was_asked(tmp_path: Path) -> None:
    asked = Pause(until=START + 90.4, because='a "quoted" reason', release=True)
    pause_file.write(tmp_path, asked)
    read = pause_file.read(tmp_path)
    assert read == Pause(until=START + 90, because='a "quoted" reason', release=True)
    assert pause_file.remove(tmp_path) is True
    assert pause_file.remove(tmp_path) is False
    assert pause_file.read(tmp_path) is None
