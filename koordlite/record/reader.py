"""Reads a record: a file, or the folder an agent writes at this moment. What is damaged is left out, and told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from koordlite.model.errors import Problem
from koordlite.record import segment
from koordlite.record.damage import Damage, RecordError
from koordlite.record.moment import Moment
from koordlite.record.segment import Head, Parser

SUFFIX = ".piece"


class Record:
    """The moments of a file or folder, oldest first, as often as wanted."""

    def __init__(self, path: Path) -> None:
        """RecordError when there is no record at `path`; OSError when it cannot be read."""
        self.path = path
        self.problems: list[Problem] = []
        """What could not be read, of the last time it was gone through."""
        self.head: Head | None = None
        """What the newest piece that was read says of itself."""
        if not path.exists():
            raise RecordError(f"{path}: there is no such record; name its file, or the folder an agent records to")
        if not self.files():
            raise RecordError(f"{path}: there is no record in this folder; is an agent writing there?")
        if path.is_file():
            with path.open("rb") as file:
                segment.check_start(file.read(len(segment.MARK) + 1), 0, str(path))

    def files(self) -> tuple[Path, ...]:
        """The files it is made of."""
        return tuple(sorted(self.path.glob(f"*{SUFFIX}"))) if self.path.is_dir() else (self.path,)

    def moments(self, *, since: float | None = None) -> Iterator[Moment]:
        """Every moment that can be read, from `since` (seconds since the epoch) on."""
        self.problems = []
        for path in self._from(since):
            try:
                raw = path.read_bytes()
            except FileNotFoundError:
                continue  # The agent dropped its oldest piece meanwhile.
            for moment in self._of_file(raw, str(path)):
                if since is None or moment.wall >= since:
                    yield moment

    def _from(self, since: float | None) -> tuple[Path, ...]:
        """Pieces are as old as their last change: those that ended before `since` need not be read."""
        files = self.files()
        if since is None or len(files) == 1:
            return files
        return tuple(path for path in files if _changed(path) >= since)

    def _of_file(self, raw: bytes, source: str) -> Iterator[Moment]:
        at = 0
        while 0 <= at < len(raw):
            piece = _Piece(raw, segment.check_start(raw, at, source))
            yield from piece.moments()
            self.head = piece.head or self.head
            if piece.end == len(raw) or raw.startswith(segment.MARK, piece.end):
                at = piece.end
                continue
            self.problems.append(_problem(source, piece, len(raw)))
            at = raw.find(segment.MARK, piece.end + 1)


@dataclasses.dataclass
class _Piece:
    """One piece inside `raw`; `end` is where it stopped being understood."""

    raw: bytes
    end: int
    head: Head | None = None
    why: str = "the rest is cut off or damaged"

    def moments(self) -> Iterator[Moment]:
        parser = Parser()
        for after, body in segment.bodies(self.raw, self.end):
            try:
                moment = parser.take(body)
            except Damage as damage:
                self.why = str(damage)
                return
            self.head, self.end = parser.head, after
            if moment is not None:
                yield moment


def _problem(source: str, piece: _Piece, size: int) -> Problem:
    do = "what stands before it was read; nothing to do if the writer was killed or still writes"
    return Problem(source, f"byte {piece.end} of {size}", "", piece.why, do)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
