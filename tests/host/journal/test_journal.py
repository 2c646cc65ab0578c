"""The undo journal: never lost, never silently empty, never held by two."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hooked_files import Killed
from hypothesis import given
from hypothesis import strategies as some

from koordlite import changes
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import (
    NodeAnnotation,
    NodeAnnotationChange,
    NodeCondition,
    NodeResource,
    NodeResourceChange,
    ZoneAmount,
    ZoneResourceChange,
)
from koordlite.changes.resctrl import GroupEntry, ResctrlGroupChange, SchemataChange, ThreadEntry
from koordlite.host import state_folder
from koordlite.host.journal import file, journal
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import JournalDenied, JournalError
from koordlite.model.wire.objects import ZoneResource

BOOT = "boot-1"


def found(group: str, raw: bytes = b"0-3\n", field: str = "cpuset.cpus") -> FileEntry:
    return FileEntry.of(path=f"/c/{group}/{field}", group=group, field=field, raw=raw, found_at=1.5, strategy="s")


ALL_KINDS = (
    found("kubepods", b"max 100000\n", "cpu.quota"),
    GroupEntry(group="BE"),
    ThreadEntry(tid=7, start_time=99, group=""),
    NodeResource(resource="kubernetes.io/batch-cpu", previous=None),
    NodeAnnotation(key="k", previous="text"),
    NodeCondition(type="CPUContention"),
    ZoneAmount(zone="node-0", resource="r", previous=ZoneResource(name="r", allocatable=4)),
)


def test_a_new_folder_is_made_and_empty(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a" / "b", boot_id=BOOT) as held:
        assert held.entries == ()
        assert held.places == frozenset()


def test_every_kind_of_entry_survives_a_restart_in_order(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record(ALL_KINDS)
    with Journal.open(tmp_path, boot_id=BOOT) as again:
        assert again.entries == ALL_KINDS
    assert journal.read(tmp_path, boot_id=BOOT) == ALL_KINDS


@given(raw=some.binary(max_size=64))
def test_no_byte_is_lost(raw: bytes) -> None:
    entry = found("g", raw)
    decoded = json.loads(json.dumps(entry.text))
    assert FileEntry(path="", group="", field="", text=decoded, found_at=0).raw == raw


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        (found("kubepods/besteffort"), CgroupChange("kubepods/besteffort", "cpuset.cpus", CPUSet())),
        (found("resctrl/BE", b"L3:0=f\n", "L3"), SchemataChange("BE", "L3", {0: 1})),
        (found("resctrl/", b"L3:0=f\n", "L3"), SchemataChange("", "L3", {0: 1})),
        (GroupEntry(group="BE"), ResctrlGroupChange("BE")),
        (NodeResource(resource="r", previous=1), NodeResourceChange("r", 2)),
        (NodeAnnotation(key="k", previous=None), NodeAnnotationChange("k", "v")),
        (ZoneAmount(zone="z", resource="r", previous=None), ZoneResourceChange("z", "r", None)),
    ],
)
def test_places_are_named_as_changes_name_them(entry: journal.Entry, change: Any) -> None:
    assert entry.place == change.place


@pytest.mark.parametrize(
    ("line", "place", "comes_back"),
    [
        (
            '{"kind":"nodeResource","resource":"kubernetes.io/batch-cpu","previous":5,"strategy":"beAllocatable"}',
            "node/kubernetes.io/batch-cpu",
            "5",
        ),
        ('{"kind":"nodeAnnotation","key":"a/b","previous":null,"strategy":"s"}', "node/annotations/a/b", "(removed)"),
        (
            '{"kind":"zoneResource","zone":"node-0","resource":"r","previous":null,"strategy":"q"}',
            "noderesourcetopology/zones/node-0/r",
            "(removed)",
        ),
        ('{"kind":"oomScore","pid":1,"start_time":2,"value":3,"strategy":"oomScore"}', "oom_score_adj/1/2", "3"),
        (
            '{"kind":"coreCookie","core_group":"ns/db","cookie":"0000000000000007","strategy":"coreSched"}',
            "core_sched_cookie/ns/db/0000000000000007",
            "no cookie",
        ),
        ('{"kind":"mount","point":"/sys/fs/resctrl"}', "resctrl mount", "(unmounted)"),
        ('{"kind":"group","group":"BE"}', "resctrl/BE", "(removed)"),
        ('{"kind":"task","tid":4,"start_time":5,"group":"","into":"BE"}', "resctrl/BE/tasks/4@5", "root group"),
        (
            '{"kind":"file","path":"/x/cpu.max","group":"kubepods/besteffort","field":"cpu.quota","text":"-1",'
            '"found_at":1.0,"strategy":"cpuSuppress"}',
            "kubepods/besteffort/cpu.quota",
            "-1",
        ),
    ],
    ids=lambda text: text.partition(",")[0] if text.startswith("{") else "",
)
def test_entries_of_earlier_versions_are_undone_by_this_one(line: str, place: str, comes_back: str) -> None:
    entry = file._entry(line.encode(), ())
    assert (str(entry.place), entry.describe()) == (place, comes_back)


def test_the_first_value_found_is_kept(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record([found("a", b"first"), found("a", b"twice in one batch")])
        held.record([found("a", b"later"), found("b")])
        assert [(str(entry.place), entry.raw) for entry in held.entries] == [
            ("a/cpuset.cpus", b"first"),
            ("b/cpuset.cpus", b"0-3\n"),
        ]


def test_what_is_known_already_is_not_written_again(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record([found("a")])
        before = (tmp_path / file.NAME).stat().st_ino
        held.record([found("a")])
        held.forget([changes.parse("unknown/cpu.quota")])
        assert (tmp_path / file.NAME).stat().st_ino == before


def test_restored_places_are_forgotten(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record(ALL_KINDS)
        restored = {changes.parse("resctrl/BE"), changes.parse("kubepods/cpu.quota")}
        held.forget(restored)
        assert held.places == {entry.place for entry in ALL_KINDS} - restored
    assert len(journal.read(tmp_path, boot_id=BOOT)) == len(ALL_KINDS) - 2


def test_a_thread_id_used_again_is_another_thread(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record([ThreadEntry(tid=7, start_time=1, group=""), ThreadEntry(tid=7, start_time=2, group="LS")])
        assert len(held.entries) == 2


def test_after_a_boot_only_what_the_cluster_holds_is_left(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record(ALL_KINDS)
    with Journal.open(tmp_path, boot_id="boot-2") as again:
        assert again.entries == ALL_KINDS[3:]
        again.record([found("new")])
    assert [str(entry.place) for entry in journal.read(tmp_path, boot_id="boot-2")][-1] == "new/cpuset.cpus"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[]", id="another shape"),
        pytest.param(b'{"version":1,"boot_id":"b"}', id="a field is missing"),
        pytest.param(b'{"version":9,"boot_id":"b","entries":[]}', id="a newer version"),
        pytest.param(b'{"version":1,"boot_id":"b","entries":[],"more":1}', id="an unknown field"),
    ],
)
def test_a_journal_that_cannot_be_read_is_never_taken_for_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / file.NAME).write_bytes(content)
    for _ in "12":
        with pytest.raises(JournalError, match=r"journal\.json cannot be read"):
            Journal.open(tmp_path, boot_id=BOOT)
    assert (tmp_path / file.NAME).read_bytes() == content


def test_a_journal_of_another_user_is_theirs_to_read(tmp_path: Path) -> None:
    (tmp_path / file.NAME).write_text("{}")
    (tmp_path / file.NAME).chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(JournalDenied, match=r"Permission denied.*; ask as its owner, most often root"):
            file.load(tmp_path / file.NAME, BOOT)
    finally:
        os.seteuid(before)


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="state folder"):
        Journal.open(tmp_path / "file" / "state", boot_id=BOOT)


def test_a_second_agent_learns_who_holds_it(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT), pytest.raises(JournalError, match=f"process {os.getpid()}"):
        Journal.open(tmp_path, boot_id=BOOT)
    Journal.open(tmp_path, boot_id=BOOT).close()


def test_reading_needs_no_lock(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record([found("a")])
        assert journal.read(tmp_path, boot_id=BOOT) == (found("a"),)


_AGENT = """
import os, sys
from koordlite.changes.resctrl import GroupEntry
from koordlite.host.journal.journal import Journal
held = Journal.open(sys.argv[1], boot_id="boot-1")
held.record([GroupEntry(group="BE")])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_killed_agent_leaves_its_entries_and_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _AGENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"ready\n"
        with pytest.raises(JournalError, match=f"process {agent.pid}"):
            Journal.open(tmp_path, boot_id=BOOT)
        agent.kill()
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        assert held.entries == (GroupEntry(group="BE"),)


_CALLS = ("unlink", "open", "write", "fsync", "close", "replace")


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, BaseException], list[str]]]:
    """Let the n-th system call of replacing the journal not happen, and nothing after it."""

    def arm(number: int, how: BaseException) -> list[str]:
        calls: list[str] = []

        def watched(name: str) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(*args: Any) -> Any:
                calls.append(name)
                if len(calls) == number or (len(calls) > number and isinstance(how, Killed)):
                    raise how
                return real(*args)

            return call

        stand_in = type("os", (), {name: staticmethod(watched(name)) for name in _CALLS})
        for constant in ("O_WRONLY", "O_CREAT", "O_EXCL", "O_CLOEXEC", "O_RDONLY", "O_DIRECTORY"):
            setattr(stand_in, constant, getattr(os, constant))
        monkeypatch.setattr(state_folder, "os", stand_in)
        return calls

    yield arm
    monkeypatch.undo()


STEPS = 9


@pytest.mark.parametrize("step", range(1, STEPS + 2))
def test_killed_between_any_two_steps_the_old_or_the_new_journal_is_there(
    tmp_path: Path, step: int, die_at: Callable[[int, BaseException], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (found("a"),), (found("a"), found("b"))
    held = Journal.open(tmp_path, boot_id=BOOT)
    held.record(old)
    calls = die_at(step, Killed())
    if step <= STEPS:
        with pytest.raises(Killed):
            held.record(new)
    else:
        held.record(new)
        assert calls == ["unlink", "open", "write", "fsync", "close", "replace", "open", "fsync", "close"]
    monkeypatch.undo()
    held.close()
    with Journal.open(tmp_path, boot_id=BOOT) as again:
        assert again.entries == (old if step <= STEPS - 3 else new)
        again.record(new)
        assert again.entries == new


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_when_the_disk_refuses_nothing_counts_as_recorded(
    tmp_path: Path, step: int, die_at: Callable[[int, BaseException], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record([found("a")])
        die_at(step, OSError(28, "No space left on device"))
        with pytest.raises(JournalError, match="it stays as it is"):
            held.record([found("b")])
        assert held.entries == (found("a"),)
        monkeypatch.undo()
        held.record([found("b")])
    assert [str(entry.place) for entry in journal.read(tmp_path, boot_id=BOOT)] == ["a/cpuset.cpus", "b/cpuset.cpus"]


def test_the_lock_is_a_kernel_lock(tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=BOOT):
        with open(tmp_path / "lock") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_this_machine_has_a_boot_id(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as held:
        held.record([GroupEntry(group="BE")])
    assert journal.read(tmp_path) == (GroupEntry(group="BE"),)
    assert journal.read(tmp_path, boot_id="another") == ()


def test_entries_that_are_read_share_their_texts(tmp_path: Path) -> None:
    """Two thousand entries of a full node name a few hundred groups and a dozen values."""
    with Journal.open(tmp_path, boot_id=BOOT) as held:
        held.record([found("kubepods/a"), found("kubepods/a", b"0-3\n", "cpuset.mems")])
    one, other = journal.read(tmp_path, boot_id=BOOT)
    assert isinstance(one, FileEntry)
    assert isinstance(other, FileEntry)
    assert one.group is other.group
    assert one.text is other.text
    assert one.strategy is other.strategy
