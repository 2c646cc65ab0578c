"""Pieces of a record: whole up to the last complete frame, wherever the writer was stopped, whatever became of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import slices
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite.record import codec, segment
from koordlite.record.reader import Record
from koordlite.record.round_record import Damage, RecordError, RoundRecord
from koordlite.record.segment import Head, Parser, PieceWriter

Written = Callable[[list[RoundRecord]], tuple[bytes, list[int]]]
File = Callable[[bytes], Path]


def test_every_moment_comes_back_as_it_was(moments: list[RoundRecord], written: Written, file: File) -> None:
    raw, _ = written(moments)
    record = Record(file(raw))
    assert list(record.rounds()) == moments
    assert record.problems == []
    assert record.head and record.head.node == "node-a"


def test_unchanged_parts_of_the_picture_stay_the_same_objects(
    moments: list[RoundRecord], written: Written, file: File
) -> None:
    first, second, *_ = Record(file(written(moments)[0])).rounds()
    assert first.snapshot.topology is second.snapshot.topology
    assert first.settings is second.settings


def test_cut_off_at_any_byte_all_whole_frames_before_it_are_found(moments: list[RoundRecord], written: Written) -> None:
    raw, ends = written(moments[:6])
    start = segment.check_start(raw, 0, "")
    for cut in range(start, len(raw) + 1):
        found = [end for end, _ in segment.bodies(raw[:cut], start)][1:]
        assert found == [end for end in ends if end <= cut], cut


def test_cut_off_anywhere_the_moments_before_it_are_read_and_the_cut_is_told(
    moments: list[RoundRecord], written: Written, file: File
) -> None:
    raw, ends = written(moments)
    for cut in (ends[0] - 1, ends[0], ends[0] + 1, ends[7] + 5, ends[-1] - 1, ends[-1]):
        record = Record(file(raw[:cut]))
        assert list(record.rounds()) == moments[: sum(end <= cut for end in ends)]
        assert bool(record.problems) == (cut not in ends)


@pytest.mark.parametrize("cut", range(len(segment.MARK) + 1))
def test_a_file_cut_off_inside_the_mark_is_no_record(
    moments: list[RoundRecord], file: File, cut: int, head: Head
) -> None:
    with pytest.raises(RecordError):
        list(Record(file(PieceWriter(head).start[:cut])).rounds())


def test_a_damaged_byte_costs_no_more_than_its_piece(moments: list[RoundRecord], written: Written, file: File) -> None:
    one, ends = written(moments[:8])
    two, _ = written(moments[8:])
    spoiled = bytearray(one + two)
    spoiled[ends[4] + segment.FRAME_HEAD_BYTES + 2] ^= 0x40
    record = Record(file(bytes(spoiled)))
    assert list(record.rounds()) == moments[:5] + moments[8:]
    (problem,) = record.problems
    assert str(ends[4]) in problem.field


@given(data=st.data())
@settings(max_examples=slices.amount(40, 15), deadline=None)
def test_whatever_bytes_are_changed_no_wrong_moment_is_read(
    moments: list[RoundRecord], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer = PieceWriter(Head(koordlite="1"))
    raw = bytearray(writer.start + b"".join(writer.frame(moment) for moment in moments[:4]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path = tmp_path_factory.getbasetemp() / "fuzzed.record"
    path.write_bytes(bytes(raw))
    try:
        found = list(Record(path).rounds())
    except RecordError:
        return
    assert all(moment in moments for moment in found)


@given(data=st.data())
@settings(max_examples=slices.amount(60, 15), deadline=None)
def test_a_frame_with_a_right_checksum_and_wrong_content_is_an_error_of_the_record(
    moments: list[RoundRecord], data: st.DataObject
) -> None:
    parser, stream = Parser(), zstandard.ZstdCompressor().compressobj()

    def take(content: bytes) -> RoundRecord | None:
        return parser.take(stream.compress(content) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))

    take(msgspec.msgpack.encode(Head(koordlite="1")))
    whole = _Keeping(Head(koordlite="1"))
    content = bytearray(_content(whole, moments[0]))
    if data.draw(st.booleans()):
        take(bytes(content))
        content = bytearray(_content(whole, moments[1]))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(1, 4))] = data.draw(st.binary(max_size=4))
    try:
        take(bytes(content))
    except RecordError:
        return


class _Keeping(PieceWriter):
    """Remembers what the last frame held."""

    content = b""

    def _frame(self, content: bytes) -> bytes:
        self.content = content
        return super()._frame(content)


def _content(writer: _Keeping, moment: RoundRecord) -> bytes:
    """What the frame of `moment` holds, inflated."""
    writer.frame(moment)
    return writer.content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no record"),
        (b"#!/bin/sh\n", "is no record"),
        (segment.MARK + b"\x09" + b"x" * 50, "format 9, a later one; this koordlite reads format 3"),
        (segment.MARK + b"\x01" + b"x" * 50, "format 1, an older one; .* read it with the version that wrote it"),
    ],
    ids=["an empty file", "a script", "a later format", "an older format"],
)
def test_a_foreign_file_is_refused_with_its_name(file: File, content: bytes, why: str) -> None:
    path = file(content)
    with pytest.raises(RecordError, match=why) as refusal:
        Record(path)
    assert str(path) in str(refusal.value)


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such record"):
        Record(tmp_path / "nothing")
    with pytest.raises(RecordError, match="no record in this folder"):
        Record(tmp_path)


def test_a_piece_that_looks_back_as_far_as_formerly_is_read(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_WINDOW_LOG", 21)
    start = PieceWriter(head).start
    parser = Parser()
    for _, body in segment.bodies(start, segment.check_start(start, 0, "piece")):
        parser.take(body)
    assert parser.head == head


@pytest.mark.parametrize("size", [100_000, 1 << 30], ids=["some", "a gigabyte of zeros"])
def test_a_frame_that_grows_beyond_all_bounds_is_damage(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "LONGEST_CONTENT", 1000)
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    body = b"".join(stream.compress(bytes(min(size, 1 << 20))) for _ in range(max(1, size >> 20)))
    body += stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    with pytest.raises(Damage, match="longer than any"):
        Parser().take(body)


def test_a_piece_of_a_version_with_other_fields_is_refused_with_class_field_and_version(
    moments: list[RoundRecord], file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = PieceWriter(Head(koordlite="7.8.9"))
    whole = codec.encode
    monkeypatch.setattr(
        codec, "encode", lambda value, dump=None: whole(value, dump).replace(b"samples", b"examples"[1:])
    )
    raw = writer.start + writer.frame(moments[0])
    with pytest.raises(RecordError, match=r"a.record: usage.Usage has no field xamples .* koordlite 7.8.9 wrote it"):
        list(Record(file(raw)).rounds())
