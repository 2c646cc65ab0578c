"""Refusals and foreign writes are counted by place, and the agent says how long it keeps off."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from koordlite import changes
from koordlite.apply.foreign import MAX_LISTED, MAX_REFUSED, ForeignWriters
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


def refused(place: Place = PLACE, error: str = BUSY) -> AppliedStep:
    return AppliedStep(place, "1", ok=False, error=error)


def test_without_trouble_there_is_nothing_to_tell(foreign: ForeignWriters) -> None:
    foreign.count_refusals([AppliedStep(PLACE, "1")])
    assert foreign.troubles(0.0) == ()


def test_refusals_are_counted_by_place_with_the_last_words(foreign: ForeignWriters) -> None:
    foreign.count_refusals([refused(), refused(changes.parse("a/cpuset.cpus")), AppliedStep(PLACE, "1")])
    foreign.count_refusals([refused(error="EINVAL: Invalid argument")])
    assert foreign.troubles(0.0) == (
        FileTrouble(PLACE, 2, "EINVAL: Invalid argument", 0, 0.0),
        FileTrouble(changes.parse("a/cpuset.cpus"), 1, BUSY, 0, 0.0),
    )


def test_a_fight_is_told_with_how_long_we_keep_off(foreign: ForeignWriters, picture: Callable[..., object]) -> None:
    for number in range(4):
        foreign.wrote(CgroupChange("kubepods/besteffort", "cpu.quota", 100_000))
        assert len(foreign.check(picture(100.0 + number, 50_000))) == 1  # type: ignore[arg-type]
    (found,) = foreign.troubles(104.0)
    assert (found.place, found.foreign, found.refused) == (PLACE, 4, 0)
    assert found.kept_off_seconds == pytest.approx(7.0), "the fourth time it waits for 8 s, one of which has passed"
    assert foreign.troubles(200.0)[0].kept_off_seconds == 0.0


def test_the_worst_come_first_and_memory_is_bounded(foreign: ForeignWriters) -> None:
    first, last = changes.parse("p0/cpu.quota"), changes.parse(f"p{2 * MAX_REFUSED - 1}/cpu.quota")
    for number in range(2 * MAX_REFUSED):
        foreign.count_refusals([refused(changes.parse(f"p{number}/cpu.quota"))])
    foreign.count_refusals([refused(last)] * 3)
    found = foreign.troubles(0.0)
    assert len(found) == MAX_LISTED
    assert (found[0].place, found[0].refused) == (last, 4)
    foreign.count_refusals([refused(first)])
    assert (first, 2) not in {(each.place, each.refused) for each in foreign.troubles(0.0)}


def test_a_fight_of_days_goes_on(foreign: ForeignWriters, picture: Callable[..., object]) -> None:
    for number in range(3000):
        foreign.wrote(CgroupChange("kubepods/besteffort", "cpu.quota", 100_000))
        assert len(foreign.check(picture(60.0 * number, 50_000))) == 1  # type: ignore[arg-type]
    (fight,) = foreign.troubles(60.0 * number)
    assert (fight.place, fight.foreign, fight.kept_off_seconds) == (PLACE, 3000, 60.0)


def test_fights_over_groups_that_are_gone_are_forgotten_the_oldest_first(foreign: ForeignWriters) -> None:
    for number in range(MAX_FIGHTS + 10):
        group = f"kubepods/besteffort/pod{number}"
        foreign.wrote(CgroupChange(group, "cpu.quota", 100_000))
        foreign.wrote(CgroupChange("kubepods/besteffort", "cpu.quota", 100_000))
        present = {name: Cgroup(CPUSet(), CPUSet(), 50_000) for name in (group, "kubepods/besteffort")}
        assert len(foreign.check(SimpleNamespace(time=float(number), cgroups=present))) == 2  # type: ignore[arg-type]
    now = MAX_FIGHTS + 10.0
    assert (foreign.troubles(now)[0].place, foreign.troubles(now)[0].foreign) == (PLACE, MAX_FIGHTS + 10)
    first, last = "kubepods/besteffort/pod9", f"kubepods/besteffort/pod{MAX_FIGHTS + 9}"
    for group in (first, last):
        foreign.wrote(CgroupChange(group, "cpu.quota", 100_000))
    present = {name: Cgroup(CPUSet(), CPUSet(), 50_000) for name in (first, last)}
    assert len(foreign.check(SimpleNamespace(time=now, cgroups=present))) == 2  # type: ignore[arg-type]
    # Only who fights again is kept waiting: for who was forgotten it is the first time.
    waits = {group: foreign.keep_off(changes.parse(f"{group}/cpu.quota"), now) for group in (first, last)}
    assert waits == {first: False, last: True}


@pytest.fixture
def picture() -> Callable[..., object]:
    """A picture of one group; only what `ForeignWriters` looks at."""

    class Picture:
        def __init__(self, time: float, quota_us: int) -> None:
            self.time = time
            self.cgroups = {"kubepods/besteffort": Cgroup(CPUSet(), CPUSet(), quota_us)}

    return Picture
