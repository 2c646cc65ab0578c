"""Destinations of a record: the folder of a running recorder, up to a bound, or one file that must not be there yet.

Of the pieces in a folder the oldest goes when there is no room left. Nothing is synced to disk: a process that dies
loses nothing, a machine that dies loses what it had not yet written, and a reader finds all that is whole. One write a
moment.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from koordlite.record.reader import SUFFIX, pieces
from koordlite.record.round_record import RecordError, RoundRecord
from koordlite.record.segment import Head, PieceWriter

PIECES = 16
"""Pieces that fill the bound; the oldest is dropped as a whole. Each begins with a whole picture."""
LOCK = "lock"


class Recorder:
    """Adds rounds to a folder that it alone writes."""

    def __init__(self, folder: Path, head: Head, *, max_bytes: int) -> None:
        """Makes the folder. RecordError when another process records there, OSError when it cannot be written."""
        self._folder, self._head, self._max_bytes = folder, head, max_bytes
        self._writer: PieceWriter | None = None
        self._file: int | None = None
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _lock(folder)
        self._sizes = collections.OrderedDict((path, path.stat().st_size) for path in pieces(folder))

    @property
    def bytes_held(self) -> int:
        """Bytes that all pieces take on disk."""
        return sum(self._sizes.values())

    def add(self, record: RoundRecord) -> None:
        """Append `record`. After an OSError the next one begins a new piece; what was written stays readable."""
        try:
            if self._writer is None or next(reversed(self._sizes.values()), 0) >= self._max_bytes // PIECES:
                self._begin()
            assert self._writer is not None
            self._append(self._writer.frame(record))
        except OSError:
            self._end()
            raise

    def close(self) -> None:
        """Let the folder go."""
        self._end()
        os.close(self._lock)

    def _begin(self) -> None:
        self._end()
        last = next(reversed(self._sizes), None)
        number = int(last.stem) + 1 if last else 1
        path = self._folder / f"{number:08d}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._sizes[path] = 0
        writer = PieceWriter(self._head)
        try:
            self._append(writer.start)
        except OSError:
            # A full disk is met at every tick: each must not leave a file behind.
            path.unlink(missing_ok=True)
            del self._sizes[path]
            raise
        self._writer = writer

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        while len(self._sizes) > 1 and self.bytes_held + len(data) > self._max_bytes:
            oldest, _ = self._sizes.popitem(last=False)
            with contextlib.suppress(FileNotFoundError):
                oldest.unlink()
        path = next(reversed(self._sizes))
        written = os.write(self._file, data)
        self._sizes[path] += written
        if written < len(data):
            raise OSError(28, os.strerror(28), str(path))

    def _end(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = self._writer = None


def _lock(folder: Path) -> int:
    """A handle that nobody else has; the kernel takes it back when the process ends."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RecordError(f"{folder}: another process records there; name another folder") from None
    return handle


MOST_BYTES = 4 << 20
"""Then a further piece begins, so that a damage spoils no more than one."""


class OneFile:
    """Appends rounds to a new file."""

    def __init__(self, path: Path, head: Head) -> None:
        """FileExistsError when there is one already."""
        self._head, self._file = head, path.open("xb", buffering=0)
        self._writer: PieceWriter | None = None
        self._size = 0
        self.count = 0

    def add(self, record: RoundRecord) -> None:
        """Append `record`; OSError when it cannot be written."""
        if self._writer is None or self._size >= MOST_BYTES:
            self._writer, self._size = PieceWriter(self._head), 0
            self._write(self._writer.start)
        self._write(self._writer.frame(record))
        self.count += 1

    def close(self) -> None:
        """End it."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        while data:
            data = data[self._file.write(data) :]


def write(path: Path, head: Head, records: Iterable[RoundRecord]) -> int:
    """A file of these rounds; how many there were."""
    with contextlib.closing(OneFile(path, head)) as file:
        for record in records:
            file.add(record)
    return file.count


def masked(
    path: Path,
    head: Head,
    records: Callable[[], Iterable[RoundRecord]],
    decide: Callable[[RoundRecord], RoundRecord] | None = None,
) -> int:
    """Same as `write`, with pseudonyms. `records` gives the rounds each time it is called: names are collected first.

    `decide` gives a masked round with the decisions that follow from it, so that it can be judged again.
    """
    from koordlite.record.mask import Mask, Names

    names = Names()
    for record in records():
        names.take_in(record.snapshot)
    mask = Mask(names)
    pseudonymous = map(mask.apply, records())
    masked_head = Head(koordlite=head.koordlite, node=mask.text(head.node), machine="", masked=True)
    return write(path, masked_head, map(decide, pseudonymous) if decide else pseudonymous)
