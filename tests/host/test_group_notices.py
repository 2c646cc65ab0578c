"""Notices of new folders, from this machine's inotify on a temporary folder laid out like cgroups."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.cgroups.names import layout
from koordlite.host.files import RealFiles
from koordlite.host.sentinel import GroupNotices

TOP = "kubepods"
POD = f"{TOP}/besteffort/pod1"
QUEUE = pathlib.Path("/proc/sys/fs/inotify/max_queued_events")
pytestmark = pytest.mark.skipif(not QUEUE.exists(), reason="this system has no inotify")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A tree with kubelet's groups and one pod."""
    (tmp_path / POD).mkdir(parents=True)
    (tmp_path / TOP / "burstable").mkdir()
    return tmp_path


@pytest.fixture
def cgroups(folder: pathlib.Path) -> Cgroups:
    """Groups whose one hierarchy is that folder."""
    return Cgroups(RealFiles(), layout(2, TOP), {"": str(folder)})


@pytest.fixture
def notices(cgroups: Cgroups) -> Iterator[GroupNotices]:
    """A descriptor that watches nothing yet."""
    made = GroupNotices(cgroups)
    yield made
    made.close()


def test_a_new_group_is_reported_once_and_files_are_not(notices: GroupNotices, folder: pathlib.Path) -> None:
    assert notices.watch((POD,)) == frozenset()
    assert not notices.wait(0.0)
    (folder / POD / "cpu.max").touch()
    (folder / POD / "container").mkdir()
    assert notices.wait(10.0)
    assert notices.take().groups == {f"{POD}/container"}
    assert notices.take().groups == frozenset()


def test_what_was_there_before_the_watch_is_named(notices: GroupNotices, folder: pathlib.Path) -> None:
    (folder / POD / "early").mkdir()
    assert notices.watch((POD,)) == {f"{POD}/early"}
    assert notices.watch((POD,)) == frozenset(), "only once"


def test_watches_go_with_what_is_asked_for(notices: GroupNotices, folder: pathlib.Path) -> None:
    notices.watch((TOP, POD))
    notices.watch((TOP,))
    (folder / POD / "unseen").mkdir()
    (folder / TOP / "seen").mkdir()
    assert notices.take().groups == {f"{TOP}/seen"}
    assert len(notices) == 1


def test_a_group_that_is_gone_is_no_error_and_its_name_can_come_again(
    notices: GroupNotices, folder: pathlib.Path
) -> None:
    parent = POD.rpartition("/")[0]
    notices.watch((parent, POD))
    (folder / POD).rmdir()
    (folder / POD).mkdir()
    assert POD in notices.take().groups
    (folder / POD / "again").mkdir()
    assert notices.take().groups == {f"{POD}/again"}
    (folder / POD / "again").rmdir()
    (folder / POD).rmdir()
    notices.take()
    notices.watch((parent,))
    assert len(notices) == 1


def test_the_number_of_watches_is_bounded_and_said(cgroups: Cgroups, folder: pathlib.Path) -> None:
    notices = GroupNotices(cgroups, most=2)
    try:
        notices.watch((TOP, f"{TOP}/besteffort", POD))
        assert (len(notices), notices.why) == (2, "only 2 of 3 groups are watched")
        notices.watch((TOP, POD))
        assert (len(notices), notices.why) == (2, "")
    finally:
        notices.close()


def test_lost_notices_are_said(notices: GroupNotices, folder: pathlib.Path) -> None:
    limit = int(QUEUE.read_text())
    if limit > 50_000:
        pytest.skip(f"the queue holds {limit} events")
    notices.watch((POD,))
    path = os.fsencode(folder / POD / "x")
    other = os.fsencode(folder / POD / "y")
    for _ in range(limit // 2 + 1):  # The kernel joins equal events that follow each other.
        for each in (path, other):
            os.mkdir(each)
            os.rmdir(each)
    taken = notices.take()
    assert taken.lost and taken.groups == {f"{POD}/x", f"{POD}/y"}
    assert not notices.take().lost
