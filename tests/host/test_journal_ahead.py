"""Entries that are added to the undo journal without writing it anew."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from koordlite.host.journal import file, journal
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model.errors import JournalError

BOOT = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"


def entry(group: str, raw: bytes = b"1024", *, at_creation: bool = True) -> FileEntry:
    return FileEntry.of(
        path=f"/sys/fs/cgroup/cpu/{group}/cpu.shares",
        group=group,
        field="cpu.shares",
        raw=raw,
        found_at=1.0,
        at_creation=at_creation,
    )


def test_they_are_on_disk_before_add_returns_and_in_the_journal_once_it_is_written(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        assert held.add([entry("a"), entry("b")]) == {entry("a").place, entry("b").place}
        assert not (tmp_path / file.NAME).exists()
        assert journal.read(tmp_path, boot_id=BOOT) == (entry("a"), entry("b")) == held.entries
        held.record([entry("c")])
        assert not (tmp_path / file.AHEAD).exists()
        assert journal.read(tmp_path, boot_id=BOOT) == (entry("a"), entry("b"), entry("c"))
        held.add([entry("d")])
        held.forget([entry("a").place, entry("d").place])
    assert journal.read(tmp_path, boot_id=BOOT) == (entry("b"), entry("c"))


def test_the_first_value_of_a_place_stays(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record([entry("a")])
        assert held.add([entry("a", b"2")]) == frozenset()
        held.add([entry("b")])
        assert held.add([entry("b", b"2")]) == frozenset()
        assert held.entries == (entry("a"), entry("b"))


def test_what_its_owner_would_have_there_now_is_amended_where_it_is_listed(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.add([entry("a")])
        held.amend([entry("a", b"512"), entry("b", b"512")])
        assert held.entries == (entry("a", b"512"),) == journal.read(tmp_path, boot_id=BOOT)


def test_a_line_that_a_crash_cut_off_means_nothing(tmp_path: Path) -> None:
    """Nobody was answered before the line was whole."""
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.add([entry("a")])
        held.add([entry("b")])
    path = tmp_path / file.AHEAD
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert journal.read(tmp_path, boot_id=BOOT) == (entry("a"),)
        assert journal.damaged(tmp_path) == ()


def test_a_damaged_line_costs_its_own_entry_and_is_reported(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.add([entry("a"), entry("b")])
    path = tmp_path / file.AHEAD
    path.write_bytes(path.read_bytes().replace(b'"1024"', b'"1025"', 1))
    assert journal.read(tmp_path, boot_id=BOOT) == (entry("b"),)
    (problem,) = journal.damaged(tmp_path)
    assert "its checksum does not fit" in problem.why


@pytest.mark.parametrize("whole", [True, False])
def test_lines_of_another_boot_died_with_it(tmp_path: Path, whole: bool) -> None:
    with Journal.open(tmp_path, boot_id=OTHER) as held:
        if whole:
            held.record([entry("r")])
        held.add([entry("a")])
    assert journal.read(tmp_path, boot_id=BOOT) == ()
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        assert held.entries == ()
        held.add([entry("b")])
        assert journal.read(tmp_path, boot_id=BOOT) == (entry("b"),)


def test_a_disk_that_refuses_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        (tmp_path / file.AHEAD).mkdir()
        with pytest.raises(JournalError, match="nothing can be added"):
            held.add([entry("a")])
        assert held.entries == ()


def test_two_threads_lose_no_entry_of_each_other(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        adder = threading.Thread(target=lambda: [held.add([entry(f"a{n}")]) for n in range(40)])
        adder.start()
        for n in range(40):
            held.record([entry(f"r{n}")])
        adder.join()
        names = {f"{letter}{n}" for letter in "ar" for n in range(40)}
        assert {e.place.part("cgroup") for e in held.entries} == names
        assert {e.place.part("cgroup") for e in journal.read(tmp_path, boot_id=BOOT)} == names
