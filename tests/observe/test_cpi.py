"""Cycles and instructions of containers: counted in turns and in a bounded number, and what is missing is named."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Sequence

import pytest
from emulated import Emulated
from hypothesis import given
from hypothesis import strategies as st

from koordlite.host import perf_events
from koordlite.host.perf_events import CgroupCounters, Reading
from koordlite.model.errors import HardwareAbsent
from koordlite.model.picture.usage import HardwareCounts
from koordlite.model.settings import MetricsSettings
from koordlite.observe import Observer, cpi
from koordlite.observe.cpi import CPIReader
from koordlite.threads import Worker

Cases = dict[str, list[Reading]]
RUNS = Reading(100, 100, (3000, 2000))


class Fake:
    """A machine that counts what it was given; groups it does not know are gone."""

    def __init__(self, readings: Cases, error: Exception | None = None) -> None:
        self.readings, self.error = readings, error
        self.opened: list[str] = []
        self.open_now = 0

    def open(self, group: str, cpus: Sequence[int]) -> object:
        if self.error:
            raise self.error
        if group not in self.readings:
            raise FileNotFoundError(errno.ENOENT, "gone", group)
        self.opened.append(group)
        self.open_now += 1
        return FakeCounters(self, self.readings[group])


class FakeCounters:
    def __init__(self, fake: Fake, readings: list[Reading]) -> None:
        self._fake, self._readings = fake, readings

    def read(self) -> list[Reading]:
        return self._readings

    def close(self) -> None:
        self._fake.open_now -= 1


def reader(fake: Fake, waited: list[float] | None = None) -> CPIReader:
    """Its rounds run at once."""
    wait = (waited if waited is not None else []).append
    return CPIReader(fake.open, interval_seconds=60, window_seconds=10, wait=wait, begin=Worker.run)


def test_a_window_is_counted_once_in_an_interval() -> None:
    fake, waited = Fake({"a": [RUNS, RUNS]}), list[float]()
    counting = reader(fake, waited)
    assert counting.read(0.0, ["a"], (0, 1)) == {"a": HardwareCounts(cycles=6000, instructions=4000)}
    fake.readings["a"] = [RUNS]
    assert counting.read(59.0, ["a"], (0, 1))["a"].cycles == 6000
    assert counting.read(60.0, ["a"], (0, 1))["a"].cycles == 3000
    assert waited == [10, 10]
    assert fake.open_now == 0


def test_nothing_is_waited_for_while_a_round_is_on_its_way() -> None:
    begun: list[Worker] = []
    fake = Fake({"a": [RUNS]})
    counting = CPIReader(fake.open, interval_seconds=60, window_seconds=10, wait=lambda _: None, begin=begun.append)
    assert counting.read(0.0, ["a"], (0,)) == {}
    assert len(begun) == 1
    assert not fake.opened


def test_a_container_that_is_gone_is_left_out() -> None:
    counting = reader(Fake({"a": [RUNS]}))
    assert set(counting.read(0.0, ["a", "gone"], (0,))) == {"a"}
    assert set(counting.read(1.0, ["other"], (0,))) == set()
    assert not counting.problems


def test_counters_are_bounded_and_containers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpi, "MOST_COUNTERS", 8)
    names = ["a", "b", "c", "d", "e"]
    fake = Fake({name: [RUNS] for name in names})
    counting = reader(fake)
    for round_number in range(3):
        counting.read(60.0 * round_number, names, (0, 1))
    assert fake.opened == ["a", "b", "c", "d", "e", "a"]
    assert set(counting.read(130.0, names, (0, 1))) == set(names), "those that had no turn keep their last counts"


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (HardwareAbsent(perf_events.FEATURE, "perf_event_open: ENOENT: none"), "ENOENT"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
    ],
)
def test_what_is_missing_is_named_and_tried_again(error: Exception, part: str) -> None:
    fake = Fake({"a": [RUNS]}, error)
    counting = reader(fake)
    assert counting.read(0.0, ["a"], (0,)) == {}
    (problem,) = counting.problems
    assert problem.field == "metrics.containerCpi"
    assert part in problem.why
    fake.error = None
    assert set(counting.read(60.0, ["a"], (0,))) == {"a"}
    assert not counting.problems


def test_a_hierarchy_without_the_groups_is_named() -> None:
    counting = reader(Fake({}))
    counting.read(0.0, ["kubepods/pod1/main"], (0,))
    assert "the perf_event controller has no group kubepods/pod1/main" in counting.problems[0].why


def test_a_group_that_ran_where_it_was_not_counted_is_left_out() -> None:
    counting = reader(Fake({"a": [RUNS, Reading(50, 0, (0, 0))], "b": [RUNS, Reading(0, 0, (0, 0))]}))
    assert set(counting.read(0.0, ["a", "b"], (0, 1))) == {"b"}
    assert "1 containers" in counting.problems[0].why


@given(st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 10**12)), max_size=9), st.integers(1, 10))
def test_counts_are_scaled_to_the_time_that_the_group_ran(runs: list[tuple[int, int]], share: int) -> None:
    whole = cpi.sums(Reading(time, time, (count, count)) for time, count in runs)
    part = cpi.sums(Reading(time * share, time, (count, count)) for time, count in runs)
    assert whole is not None
    assert part is not None
    assert whole.cycles == pytest.approx(sum(count for _, count in runs), rel=1e-9)
    assert part.cycles == pytest.approx(whole.cycles * share, rel=1e-9, abs=1)


def test_an_emulated_machine_says_that_it_has_no_counters(tmp_path: pathlib.Path) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "1")
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0, metrics=MetricsSettings(container_cpi=True))
    observer.observe()
    assert observer._cpi is not None
    assert observer._cpi._thread is not None
    observer._cpi._thread.join()
    seen = observer.observe()
    assert not seen.hardware_counts
    assert any("emulated or recorded" in problem.why for problem in seen.problems)


def hierarchy() -> pathlib.Path | None:
    """A folder of the hierarchy that holds perf_event on this machine."""
    rows = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    mounts = {row[2]: row[1] for row in rows if row[2] == "cgroup2" or "perf_event" in row[3].split(",")}
    found = mounts.get("cgroup") or mounts.get("cgroup2")
    return pathlib.Path(found) if found else None


def test_the_kernel_counts_a_group_by_the_system_call(tmp_path: pathlib.Path) -> None:
    """A software counter, which every machine has: time on the CPU, in nanoseconds, twice in one group."""
    root = hierarchy()
    if os.geteuid() != 0 or root is None or not os.access(root, os.W_OK):
        pytest.skip("needs root and a cgroup hierarchy with perf_event")
    clock = (1, 0)
    try:
        counters = CgroupCounters(str(root), sorted(os.sched_getaffinity(0)), (clock, clock))
    except HardwareAbsent as error:
        pytest.skip(f"this kernel does not count: {error.why}")
    try:
        sum(range(200_000))
        readings = counters.read()
    finally:
        counters.close()
    counts = cpi.sums(readings)
    assert counts is not None
    assert counts.cycles > 100_000, "some ten thousand additions take more than 0.1 ms"
    assert counts.instructions > 100_000
    with pytest.raises(FileNotFoundError):
        CgroupCounters(str(root / "koordlite-no-such-group"), (0,))


def test_a_kernel_that_refuses_is_understood(tmp_path: pathlib.Path) -> None:
    with pytest.raises(HardwareAbsent, match="perf_event_open: E"):
        CgroupCounters(str(tmp_path), (0,))


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.EMFILE, errno.ESRCH])
def test_every_refusal_keeps_the_kernels_word(number: int) -> None:
    assert f"perf_event_open: {errno.errorcode[number]}: " in perf_events._why(number)
