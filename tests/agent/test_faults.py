"""A fault of the agent itself costs one round and is told; one that stays ends the process."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Iterable

import pytest
from emulated import Emulated
from prometheus_client import CollectorRegistry, generate_latest

from koordlite.cli import run as cli_run
from koordlite.fault_guard import ROUNDS, FaultGuard
from koordlite.host import pause_file
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import Pause
from koordlite.observe import Observer
from koordlite.observe.picture import Recall
from koordlite.report import health
from koordlite.report.metrics.collector import Metrics
from koordlite.report.terminal import status
from koordlite.report.tick import Tick
from koordlite.report.web.endpoints import Endpoints
from koordlite.wakeup import Wake, Waker

Make = Callable[[str], Emulated]
Break = Callable[[Iterable[int]], None]


@pytest.fixture
def small(emulate: Make) -> Emulated:
    return emulate("small")


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Break:
    """`breaks([3, 4])`: the third and the fourth look at the node end in a fault nobody thought of."""

    def arm(numbers: Iterable[int]) -> None:
        wrong, looks, observe = set(numbers), [0], Observer.observe

        def look(self: Observer, recall: Recall) -> Snapshot:
            looks[0] += 1
            if looks[0] in wrong:
                raise OverflowError("int too large to convert to float")
            return observe(self, recall)

        monkeypatch.setattr(Observer, "observe", look)

    return arm


def run(node: Emulated, seconds: float, *, on_tick: Callable[[Tick], None] | None = None) -> list[Tick]:
    """What a guarded run tells."""
    told: list[Tick] = []

    def listen(tick: Tick) -> None:
        told.append(tick)
        if on_tick:
            on_tick(tick)

    with node.journal() as journal:
        node.agent(journal, on_stop="keep").run(listen, seconds=seconds, guard=FaultGuard())
    return told


def test_a_fault_costs_one_round_and_what_is_in_force_stays(small: Emulated, breaks: Break) -> None:
    breaks([3])
    held: list[str] = []
    told = run(small, 5, on_tick=lambda tick: held.append(small.best_effort_cpus()))
    assert [tick.status for tick in told] == ["enforcing", "enforcing", "degraded", "enforcing", "enforcing"]
    assert held[2] == held[1]
    assert [tick.time for tick in told] == pytest.approx([0, 1, 2, 3, 4], abs=0.1), "no round comes before its time"


def test_a_fault_is_told_in_words_as_a_problem_and_as_a_number(small: Emulated, breaks: Break) -> None:
    breaks([3])
    *_, hurt, well = run(small, 4)
    (problem,) = hurt.problems
    assert problem.object == "agent"
    assert "OverflowError: int too large" in problem.value
    assert "the round: OverflowError: int too large to convert to float at " in hurt.because
    assert hurt.because in status.screen(hurt, width=300).splitlines()[0]
    assert (hurt.faults.total, hurt.faults.in_a_row) == (1, 1)
    assert (well.faults.total, well.faults.in_a_row, well.problems) == (1, 0, ())
    assert "1 in the agent itself, the last: OverflowError" in status.screen(well, width=200)
    metrics = Metrics()
    metrics.observe_tick(well)
    assert b'koordlite_faults_total{node="node-a"} 1.0' in generate_latest(metrics.registry)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_fault_makes_the_agent_unhealthy_until_a_round_ends_well(small: Emulated, breaks: Break, path: str) -> None:
    breaks([3])
    answers = Endpoints(period_seconds=1.0, registry=CollectorRegistry(), now=lambda: 0.0)
    found = []
    for tick in run(small, 4):
        answers.publish(tick)
        found.append(answers.answer(path, {}, "").status)
    assert found == [200, 200, 503, 200]


def test_the_same_fault_is_logged_once_with_its_traceback(
    small: Emulated, breaks: Break, caplog: pytest.LogCaptureFixture
) -> None:
    breaks([2, 3, 5])
    told = run(small, 6)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info
    assert record.exc_info[0] is OverflowError
    assert told[-1].faults.total == 3


def test_faults_in_so_many_rounds_in_a_row_end_the_run(small: Emulated, breaks: Break) -> None:
    breaks(range(3, 100))
    told: list[Tick] = []
    with pytest.raises(OverflowError):
        run(small, 100, on_tick=told.append)
    assert [tick.faults.in_a_row for tick in told] == [0, 0, *range(1, ROUNDS)]


def test_a_good_round_between_begins_a_new_row(small: Emulated, breaks: Break) -> None:
    breaks(number for number in range(100) if number % ROUNDS)
    assert run(small, 45)[-1].faults.total > 2 * ROUNDS


def test_a_listener_that_fails_costs_no_more_than_its_round(small: Emulated) -> None:
    def broken(tick: Tick) -> None:
        if tick.time == pytest.approx(2.0, abs=0.1) and not tick.faults.in_a_row:
            raise ZeroDivisionError

    told = run(small, 5, on_tick=broken)
    assert [tick.status for tick in told] == [
        "enforcing",
        "enforcing",
        "enforcing",
        "degraded",
        "enforcing",
        "enforcing",
    ]
    assert "ZeroDivisionError" in told[3].because


def test_a_listener_that_fails_at_every_word_ends_the_run(small: Emulated) -> None:
    heard = []

    def broken(tick: Tick) -> None:
        heard.append(tick.time)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(small, 100, on_tick=broken)
    assert max(heard) == pytest.approx(ROUNDS - 1, abs=0.1)


def test_a_fault_in_the_wait_costs_no_more_than_the_rest_of_it(
    small: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait = [], Waker.wait

    def third_fails(self: Waker, until: float) -> Wake:
        waits.append(until)
        if len(waits) == 3:
            raise ValueError("no counter")
        return wait(self, until)

    monkeypatch.setattr(Waker, "wait", third_fails)
    told = run(small, 5)
    assert [tick.time for tick in told if not tick.faults.in_a_row] == pytest.approx([0, 1, 2, 3, 4], abs=0.1)
    assert told[-1].faults.total == 1


def test_without_a_guard_a_fault_ends_the_run(small: Emulated, breaks: Break) -> None:
    breaks([2])
    with small.journal() as journal, pytest.raises(OverflowError):
        small.agent(journal).run(lambda tick: None, seconds=5)


def test_a_reader_of_our_output_who_has_gone_is_no_fault() -> None:
    with pytest.raises(BrokenPipeError), FaultGuard():
        raise BrokenPipeError


def test_a_round_without_a_picture_still_tells_the_pause(small: Emulated, breaks: Break) -> None:
    small.host()
    pause_file.write(small.state, Pause(until=small.sandbox.clock.wall() + 600, because="a test", release=False))
    breaks([3])
    told = run(small, 4)
    assert [tick.pause is not None for tick in told] == [True] * 4
    assert set(told[2].modes.values()) == {"observe", "off"}


def test_a_check_names_the_fault(small: Emulated, breaks: Break) -> None:
    breaks([2])
    hurt = run(small, 2)[1]
    said = health.text(health.alive(age_seconds=0.0, period_seconds=1.0, faults=hurt.faults))
    assert "[-]faults a fault of the program itself ended the round: OverflowError" in said


@pytest.mark.parametrize("said", [b"garbage\n", b"9" * 400], ids=["no number", "more than 64 bits"])
def test_counters_that_hold_no_number_only_end_the_looks_between_ticks(
    small: Emulated, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    small.slo(policy="cfsQuota", percent=90)
    files, read = small.sandbox.files, small.sandbox.files.read
    told: list[Tick] = []

    def spoil(tick: Tick) -> None:
        told.append(tick)
        if len(told) == 5:
            monkeypatch.setattr(files, "read", lambda path: said if path.endswith("cpuacct.usage") else read(path))

    with small.journal() as journal:
        small.agent(journal, on_stop="keep", reaction="required").run(spoil, seconds=9)
    assert len([tick for tick in told if not tick.woken]) == 9
    assert told[4].reaction.samples > 0
    assert told[-1].reaction.samples == told[5].reaction.samples


@pytest.mark.parametrize(
    ("sandbox", "recorded", "guarded"),
    [(None, None, True), (object(), None, False), (None, ["folder"], False)],
    ids=["a real machine", "an emulated one: a fault is to be seen", "a recorded one: the same"],
)
def test_only_a_real_machine_is_guarded(sandbox: object, recorded: object, guarded: bool) -> None:
    machine, args = types.SimpleNamespace(sandbox=sandbox), types.SimpleNamespace(recorded=recorded)
    assert bool(cli_run._guard(machine, args)) is guarded  # type: ignore[arg-type]
