"""A journal that was damaged, a disk that is full, a folder that is gone: what can be restored is, and it is said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulated import BOOT, Emulated

from koordlite.apply import restore
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.journal import file, journal
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model.errors import JournalError, JournalFull

Damage = Callable[[bytes], bytes]
ENTRY = b'{"kind":"file","path":"/sys/fs/cgroup/cpu/kubepods/cpu.shares","group":"kubepods","field":"cpu.shares",'
DAMAGES: dict[str, Damage] = {
    "invalid UTF-8": lambda line: line.replace(b"kubepods", b"kube\xff\xfeds", 1),
    "cut off": lambda line: line[: len(line) // 2],
    "a value that changed": lambda line: line.replace(b'"text":"', b'"text":"1', 1),
    "a number with 5,000 digits": lambda line: ENTRY + b'"text":"2","found_at":' + b"9" * 5000 + b"}",
    "nested deep": lambda line: b"[" * 100_000,
    "no text": lambda line: b'{"kind":"file"}',
    "null": lambda line: b"null",
}


def enforced(node: Emulated) -> dict[str, bytes]:
    """The files as found, with limits of ours in force now."""
    node.pod("web", "LS", "3")
    node.pod("batch", "BE", "64")
    node.host()
    found = node.programmed()
    with node.journal() as held:
        node.ticks(node.agent(held), 3)
    assert node.changed(found)
    return found


def lines(node: Emulated) -> list[bytes]:
    return (node.state / "journal.json").read_bytes().split(b"\n")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_one_damaged_entry_costs_its_own_place(tmp_path: Path, damage: Damage) -> None:
    node = Emulated("small", tmp_path)
    found = enforced(node)
    written = lines(node)
    number = next(n for n, line in enumerate(written) if b"besteffort" in line and b"cpuset.cpus" in line)
    lost = json.loads(written[number].rstrip(b","))
    written[number] = damage(written[number].removesuffix(b",")) + b","
    (node.state / "journal.json").write_bytes(b"\n".join(written))
    (problem,) = journal.damaged(node.state)
    assert problem.object.endswith(f"journal.json:{number + 1}")
    with node.journal() as held:
        assert len(held.damaged) == 1
        steps = restore(node.host(), held, node.cluster)
        assert steps
        assert all(step.ok for step in steps)
        assert not held.entries
    assert node.changed(found) in ([], [lost["path"]], [path for path in node.changed(found) if lost["group"] in path])
    assert damage(b"") in (node.state / "journal-damaged.txt").read_bytes() or b"cpuset" in damage(b"cpuset")
    assert [problem.field for problem in journal.damaged(node.state)] == ["file"], "it is said until it was looked at"


@pytest.mark.parametrize("size", [0.3, 0.6, 0.99])
def test_of_a_journal_whose_end_is_missing_the_rest_counts(tmp_path: Path, size: float) -> None:
    node = Emulated("small", tmp_path)
    enforced(node)
    raw = (node.state / "journal.json").read_bytes()
    (node.state / "journal.json").write_bytes(raw[: int(len(raw) * size)])
    with node.journal() as held:
        assert held.damaged
        assert len(held.entries) + 2 >= int((len(lines(node)) - 3) * size)


def test_a_field_that_this_version_does_not_know_costs_its_own_place(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    found = enforced(node)
    with node.journal() as held:
        strange = FileEntry.of(path="/sys/x", group="kubepods", field="cpu.nonsense", raw=b"1", found_at=1.0)
        held.record([strange])
        steps = restore(node.host(), held, node.cluster)
        assert [str(step.place) for step in steps if not step.ok] == [str(strange.place)]
        assert held.places == {strange.place}
    assert node.changed(found) == []


def test_a_kind_that_fails_for_one_entry_restores_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Emulated("small", tmp_path)
    enforced(node)
    host = node.host()
    sets = [path for path in sorted(node.programmed()) if "besteffort" in path and path.endswith("cpuset.cpus")]
    bad = max(sets, key=lambda path: path.count("/"))
    write = type(host.cgroups).write_raw

    def cursed(self: Cgroups, group: str, field: str, raw: bytes) -> None:
        if self.path(group, field) == bad:
            raise ZeroDivisionError("nobody foresaw this")
        write(self, group, field, raw)

    monkeypatch.setattr(type(host.cgroups), "write_raw", cursed)
    with node.journal() as held:
        before = len(held.entries)
        steps = restore(host, held, node.cluster)
        refused = [step for step in steps if not step.ok]
        assert refused
        assert len(refused) < before
        assert all("ZeroDivisionError" in step.error for step in refused)


def test_the_agent_says_what_cannot_be_restored(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    enforced(node)
    written = lines(node)
    written[1] = b'{"kind":"file"},'
    (node.state / "journal.json").write_bytes(b"\n".join(written))
    with node.journal() as held:
        agent = node.agent(held)
        agent.take_over()
        tick = node.ticks(agent, 1)[-1]
    assert [p.object for p in tick.problems if "journal.json:2" in p.object]


# ── a disk without room ──


Mount = Callable[[str], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a file system of few KiB, or of few files."""
    point = tmp_path / "disk"
    point.mkdir()

    def mount(size: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"{size},mode=700", "none", str(point)]
        if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("needs root and the right to mount")
        return point

    yield mount
    if point.is_mount():
        subprocess.run(["umount", "-l", str(point)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room at all."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"x" * 512)
        except OSError:
            return ballast


def test_on_a_full_disk_the_agent_starts_limits_what_it_holds_and_writes_nothing_new(
    tmp_path: Path, disk: Mount
) -> None:
    node, point = Emulated("small", tmp_path), disk("size=32k")
    node.state = point / "state"
    node.pod("batch", "BE", "64")
    node.host()
    found = node.programmed()
    with node.journal() as held:
        node.ticks(node.agent(held), 3)
        places = held.places
    ballast = fill(point)
    node.pod("web", "LS", "3")
    node.pod("more", "BE", "64")
    with node.journal() as held:
        agent = node.agent(held)
        agent.take_over()
        ticks = node.ticks(agent, 4)
        assert held.places == places
        written = {
            step.place for tick in ticks for step in tick.applied if step.ok and step.place.kind.name == "cgroup"
        }
        assert written, "best effort is limited while the service uses the CPUs"
        assert written <= places, "what is not in the journal is not written"
        assert any("journal" in step.error for step in ticks[-1].applied)
        assert "journal" in ticks[-1].because
        ballast.unlink()
        node.ticks(agent, 2)
        assert held.places > places, "and with room again, the rest is"
        agent.put_back()
    node.remove("web"), node.remove("more")
    assert [path for path in node.changed(found) if path in node.programmed() and path in found] == []


def test_without_room_even_for_the_lock_there_is_no_journal_and_it_is_opened_once_there_is_room(
    tmp_path: Path, disk: Mount
) -> None:
    point = disk("nr_inodes=2")
    (point / "ballast").touch()
    with pytest.raises(JournalFull, match=r"No space left on device.*make room"):
        Journal.open(point / "state", boot_id=BOOT)
    node = Emulated("small", tmp_path)
    node.state = point / "state"
    node.pod("batch", "BE", "64")
    node.host()
    found = node.programmed()
    opened: list[Journal] = []

    def open_journal() -> Journal:
        opened.append(node.journal())
        return opened[-1]

    why = "nothing can be journaled, so nothing is written: full"
    agent = node.agent(None, unjournaled=why, open_journal=open_journal, nri="auto")
    ticks = node.ticks(agent, 62)
    assert node.changed(found) == []
    assert ticks[-1].status == "degraded"
    assert "nothing can be journaled" in ticks[-1].because
    subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(point)], check=True)
    ticks = node.ticks(agent, 55)
    assert (opened, node.changed(found)) == ([], [])
    ticks = node.ticks(agent, 10)
    assert (ticks[-1].status, ticks[-1].because) == ("enforcing", "")
    assert node.changed(found), "what is enforced is written"
    assert [agent.journal] == opened
    assert agent.creation and agent.creation.journal is agent.journal
    agent.put_back()
    assert node.changed(found) == []
    opened[-1].close()


def test_a_state_folder_that_is_removed_while_the_agent_runs_stops_no_loop(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "3")
    node.pod("batch", "BE", "64")
    node.host()
    found = node.programmed()
    with node.journal() as held:
        agent = node.agent(held)
        node.ticks(agent, 3)
        shutil.rmtree(node.state)
        node.pod("more", "BE", "64")
        ticks = node.ticks(agent, 3)
        assert all(tick.figures.node_cpu is not None for tick in ticks)
        agent.put_back()
        node.remove("more")
        assert [path for path in node.changed(found) if path in found and path in node.programmed()] == []


def test_a_journal_of_another_form_is_read_too(tmp_path: Path) -> None:
    good = json.loads(
        file._LINES.encode(FileEntry.of(path="/sys/a", group="kubepods", field="cpu.shares", raw=b"2", found_at=1.0))
    )
    (tmp_path / "journal.json").write_text(
        json.dumps({"version": 1, "boot_id": BOOT, "entries": [good, {"kind": "file"}]})
    )
    assert len(journal.read(tmp_path, boot_id=BOOT)) == 1
    assert len(journal.damaged(tmp_path)) == 1
    (tmp_path / "journal.json").write_bytes(b'{"version":1,"boot_id":"b\xff"')
    with pytest.raises(JournalError, match="cannot be read"):
        journal.read(tmp_path, boot_id=BOOT)
