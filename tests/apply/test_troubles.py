"""Refusals and foreign writes are counted by place, and the agent says how long it keeps off."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from koordlite import changes
from koordlite.apply.foreign import MAX_LISTED, MAX_REFUSED, ForeignWriters, Troubles
from koordlite.apply.foreign import MAX_PLACES as MAX_FIGHTS
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep, FileTrouble

PLACE = changes.parse("kubepods/besteffort/cpu.quota")
BUSY = "EBUSY: Device or resource busy (/sys/fs/cgroup)"


@pytest.fixture
def foreign() -> ForeignWriters:
    return ForeignWriters()


@pytest.fixture
def troubles(foreign: ForeignWriters) -> Troubles:
    return Troubles(foreign)


def refused(place: Place = PLACE, error: str = BUSY) -> AppliedStep:
    return AppliedStep(place, "1", ok=False, error=error)


def test_without_trouble_there_is_nothing_to_tell(troubles: Troubles) -> None:
    troubles.note([AppliedStep(PLACE, "1")])
    assert troubles.worst(0.0) == ()


def test_refusals_are_counted_by_place_with_the_last_words(troubles: Troubles) -> None:
    troubles.note([refused(), refused(changes.parse("a/cpuset.cpus")), AppliedStep(PLACE, "1")])
    troubles.note([refused(error="EINVAL: Invalid argument")])
    assert troubles.worst(0.0) == (
        FileTrouble(PLACE, 2, "EINVAL: Invalid argument", 0, 0.0),
        FileTrouble(changes.parse("a/cpuset.cpus"), 1, BUSY, 0, 0.0),
    )


def test_a_fight_is_told_with_how_long_we_keep_off(
    troubles: Troubles, foreign: ForeignWriters, picture: Callable[..., object]
) -> None:
    for number in range(4):
        foreign.wrote(CgroupChange("kubepods/besteffort", "cpu.quota", 100_000))
        assert len(foreign.check(picture(100.0 + number, 50_000))) == 1  # type: ignore[arg-type]
    (found,) = troubles.worst(104.0)
    assert (found.place, found.foreign, found.refused) == (PLACE, 4, 0)
    assert found.kept_off_seconds == pytest.approx(7.0), "the fourth time it waits for 8 s, one of which has passed"
    assert troubles.worst(200.0)[0].kept_off_seconds == 0.0


def test_the_worst_come_first_and_memory_is_bounded(troubles: Troubles) -> None:
    first, last = changes.parse("p0/cpu.quota"), changes.parse(f"p{2 * MAX_REFUSED - 1}/cpu.quota")
    for number in range(2 * MAX_REFUSED):
        troubles.note([refused(changes.parse(f"p{number}/cpu.quota"))])
    troubles.note([refused(last)] * 3)
    found = troubles.worst(0.0)
    assert len(found) == MAX_LISTED
    assert (found[0].place, found[0].refused) == (last, 4)
    troubles.note([refused(first)])
    assert (first, 2) not in {(each.place, each.refused) for each in troubles.worst(0.0)}


def test_a_fight_of_days_goes_on(foreign: ForeignWriters, picture: Callable[..., object]) -> None:
    for number in range(3000):
        foreign.wrote(CgroupChange("kubepods/besteffort", "cpu.quota", 100_000))
        assert len(foreign.check(picture(60.0 * number, 50_000))) == 1  # type: ignore[arg-type]
    assert (foreign.count(PLACE), foreign.kept_off_seconds(PLACE, 60.0 * number)) == (3000, 60.0)


def test_fights_over_groups_that_are_gone_are_forgotten_the_oldest_first(foreign: ForeignWriters) -> None:
    for number in range(MAX_FIGHTS + 10):
        group = f"kubepods/besteffort/pod{number}"
        foreign.wrote(CgroupChange(group, "cpu.quota", 100_000))
        foreign.wrote(CgroupChange("kubepods/besteffort", "cpu.quota", 100_000))
        present = {name: Cgroup(CPUSet(), CPUSet(), 50_000) for name in (group, "kubepods/besteffort")}
        assert len(foreign.check(SimpleNamespace(time=float(number), cgroups=present))) == 2  # type: ignore[arg-type]
    assert len(foreign.fought) == MAX_FIGHTS
    assert foreign.count(PLACE) == MAX_FIGHTS + 10
    assert foreign.count("kubepods/besteffort/pod0/cpu.quota") == 0


@pytest.fixture
def picture() -> Callable[..., object]:
    """A picture of one group; only what `ForeignWriters` looks at."""

    class Picture:
        def __init__(self, time: float, quota_us: int) -> None:
            self.time = time
            self.cgroups = {"kubepods/besteffort": Cgroup(CPUSet(), CPUSet(), quota_us)}

    return Picture
