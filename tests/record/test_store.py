"""The folder of a recorder: bounded, readable while it is written, its alone."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from koordlite.record.reader import Record
from koordlite.record.round_record import RecordError, RoundRecord
from koordlite.record.segment import Head
from koordlite.record.store import Recorder


def long(moments: list[RoundRecord], rounds: int) -> list[RoundRecord]:
    """The same moments over and over, each at its own time."""
    return [
        msgspec.structs.replace(moment, wall=float(number * len(moments) + at))
        for number in range(rounds)
        for at, moment in enumerate(moments)
    ]


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.piece"))


def test_it_never_takes_more_than_its_bound_and_keeps_the_newest(
    moments: list[RoundRecord], head: Head, tmp_path: Path
) -> None:
    bound = 90_000
    recorder, fed = Recorder(tmp_path, head, max_bytes=bound), long(moments, 12)
    for moment in fed:
        recorder.add(moment)
        assert size(tmp_path) == recorder.bytes_held <= bound
    recorder.close()
    kept = list(Record(tmp_path).rounds())
    assert kept == fed[-len(kept) :]
    assert len(kept) < len(fed)
    assert size(tmp_path) > bound // 4


def test_it_can_be_read_while_it_is_written(moments: list[RoundRecord], head: Head, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, head, max_bytes=1 << 20)
    for number, moment in enumerate(moments, 1):
        recorder.add(moment)
        if number % 7 == 0:
            record = Record(tmp_path)
            assert list(record.rounds()) == moments[:number]
            assert record.problems == []
    recorder.close()


def test_the_first_round_comes_with_what_wrote_it(moments: list[RoundRecord], head: Head, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, head, max_bytes=1 << 20)
    for moment in moments[:2]:
        recorder.add(moment)
    recorder.close()
    record = Record(tmp_path)
    next(record.rounds())
    assert record.head == head, "a copy of a record takes its head from there"


def test_a_piece_that_is_dropped_while_it_is_read_is_passed_over(
    moments: list[RoundRecord], head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path, head, max_bytes=90_000)
    for moment in long(moments, 8):
        recorder.add(moment)
    recorder.close()
    record = Record(tmp_path)
    oldest = record.files()[0]
    listed = record.files()
    monkeypatch.setattr(Record, "files", lambda self: listed)
    oldest.unlink()
    assert list(record.rounds())


def test_the_next_run_goes_on_in_a_new_piece(moments: list[RoundRecord], head: Head, tmp_path: Path) -> None:
    for half in (moments[:9], moments[9:]):
        recorder = Recorder(tmp_path, head, max_bytes=1 << 20)
        for moment in half:
            recorder.add(moment)
        recorder.close()
    assert list(Record(tmp_path).rounds()) == moments
    assert len(Record(tmp_path).files()) == 2


def test_two_processes_cannot_record_into_one_folder(head: Head, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, head, max_bytes=1 << 20)
    with pytest.raises(RecordError, match="another process records there"):
        Recorder(tmp_path, head, max_bytes=1 << 20)
    recorder.close()
    Recorder(tmp_path, head, max_bytes=1 << 20).close()


def test_a_full_disk_leaves_a_gap_and_nothing_else(
    moments: list[RoundRecord], head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, write, full = Recorder(tmp_path, head, max_bytes=1 << 20), os.write, False

    def limited(handle: int, data: bytes) -> int:
        return write(handle, data[:40] if full else data)

    monkeypatch.setattr(os, "write", limited)
    recorder.add(moments[0])
    full = True
    with pytest.raises(OSError) as refusal:
        recorder.add(moments[1])
    assert refusal.value.errno == errno.ENOSPC
    full = False
    recorder.add(moments[2])
    recorder.close()
    assert list(Record(tmp_path).rounds()) == [moments[0], moments[2]]


def test_a_disk_that_stays_full_is_not_strewn_with_pieces(
    moments: list[RoundRecord], head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, write, full = Recorder(tmp_path, head, max_bytes=1 << 20), os.write, False
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:5] if full else data))
    recorder.add(moments[0])
    held, full = size(tmp_path), True
    for _ in range(3):
        with pytest.raises(OSError, match="No space left on device"):
            recorder.add(moments[1])
    full = False
    assert len(list(tmp_path.glob("*.piece"))) == 1
    assert recorder.bytes_held == size(tmp_path) == held + 5
    recorder.add(moments[2])
    recorder.close()
    assert list(Record(tmp_path).rounds()) == [moments[0], moments[2]]


@pytest.mark.parametrize(
    ("torn", "why"),
    [
        (b"", ""),
        (b"koord", "this is no record"),
        (b"koordlite-record", "the record has the format nothing"),
        (b"koordlite-record\x63", "the record has the format 99"),
        (bytes(4096), "this is no record"),
    ],
    ids=["empty", "five bytes", "the mark alone", "of another version", "zeros, as after a loss of power"],
)
def test_a_piece_that_is_none_does_not_cost_the_others(
    moments: list[RoundRecord], head: Head, tmp_path: Path, torn: bytes, why: str
) -> None:
    for part in (moments[:6], moments[6:]):
        recorder = Recorder(tmp_path, head, max_bytes=1 << 20)
        for moment in part:
            recorder.add(moment)
        recorder.close()
        (tmp_path / f"{2 * len(Record(tmp_path).files()):08d}.piece").write_bytes(torn)
    record = Record(tmp_path)
    assert list(record.rounds()) == moments
    assert [why in problem.why for problem in record.problems] == ([True, True] if why else [])
    assert list(record.rounds(since=moments[7].wall)) == moments[7:]
    with pytest.raises(RecordError):
        list(Record(tmp_path / "00000002.piece").rounds())


@pytest.mark.parametrize("at", [0, 3, 6, 12, 19], ids=lambda at: f"from moment {at} on")
def test_only_from_a_time_on_is_asked_for(moments: list[RoundRecord], head: Head, tmp_path: Path, at: int) -> None:
    for part in (moments[:6], moments[6:13], moments[13:]):
        recorder = Recorder(tmp_path, head, max_bytes=1 << 20)
        for moment in part:
            recorder.add(moment)
        recorder.close()
    assert list(Record(tmp_path).rounds(since=moments[at].wall)) == moments[at:]


def test_files_of_others_in_the_folder_are_left_alone(moments: list[RoundRecord], head: Head, tmp_path: Path) -> None:
    (tmp_path / "mine.piece").write_text("not a piece")
    recorder = Recorder(tmp_path, head, max_bytes=1 << 20)
    recorder.add(moments[0])
    recorder.close()
    assert list(Record(tmp_path).rounds()) == moments[:1]
    assert (tmp_path / "mine.piece").read_text() == "not a piece"


WRITER = """
import sys
from pathlib import Path
from koordlite.record.reader import Record
from koordlite.record.segment import Head
from koordlite.record.store import Recorder
moments = list(Record(Path(sys.argv[1])).rounds())
recorder = Recorder(Path(sys.argv[2]), Head(koordlite="1"), max_bytes=1 << 20)
while True:
    for moment in moments:
        recorder.add(moment)
        print(flush=True)
"""


def test_a_killed_writer_leaves_all_it_had_said(moments: list[RoundRecord], head: Head, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    recorder = Recorder(source, head, max_bytes=1 << 20)
    for moment in moments:
        recorder.add(moment)
    recorder.close()
    command = [sys.executable, "-c", WRITER, str(source), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        said = sum(1 for _ in zip(range(17), process.stdout, strict=False))
        process.send_signal(signal.SIGKILL)
        said += len(process.stdout.read().splitlines())
    found = list(Record(target).rounds())
    assert len(found) in (said, said + 1)
    assert found[:said] == [moments[number % len(moments)] for number in range(said)]
