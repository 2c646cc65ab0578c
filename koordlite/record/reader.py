"""Reads a record: a file, or the folder an agent writes at this moment. What is damaged is left out, and reported."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from koordlite.model.errors import Problem
from koordlite.record import segment
from koordlite.record.round_record import Damage, RecordError, RoundRecord
from koordlite.record.segment import Head, Parser

SUFFIX = ".piece"


def pieces(folder: Path) -> tuple[Path, ...]:
    """The files of a recorder in `folder`, oldest first."""
    return tuple(sorted(path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()))


class Record:
    """The rounds of a file or folder, oldest first, as often as wanted."""

    def __init__(self, path: Path) -> None:
        """RecordError when there is no record at `path`; OSError when it cannot be read."""
        self.path = path
        self.problems: list[Problem] = []
        """Unreadable parts of the last pass."""
        self.head: Head | None = None
        """Head of the newest piece that was read."""
        if not path.exists():
            raise RecordError(f"{path}: there is no such record; name its file, or the folder an agent records to")
        if not self.files():
            raise RecordError(f"{path}: there is no record in this folder; is an agent writing there?")
        if path.is_file():
            with path.open("rb") as file:
                segment.check_start(file.read(len(segment.MARK) + 1), 0, str(path))

    def files(self) -> tuple[Path, ...]:
        """The files it is made of."""
        return pieces(self.path) if self.path.is_dir() else (self.path,)

    def rounds(self, *, since: float | None = None) -> Iterator[RoundRecord]:
        """Every round that can be read, from `since` (seconds since the epoch) on."""
        self.problems = []
        for path in self._from(since):
            try:
                raw = path.read_bytes()
            except FileNotFoundError:
                continue  # The agent dropped its oldest piece meanwhile.
            for record in self._sound(raw, path):
                if since is None or record.wall >= since:
                    yield record

    def _from(self, since: float | None) -> tuple[Path, ...]:
        """Files that ended before `since` need not be read: the one after them begins no later than that."""
        files = self.files()
        for at in range(len(files) - 1, 0, -1):
            if since is not None and _begins(files[at]) <= since:
                return files[at:]
        return files

    def _sound(self, raw: bytes, path: Path) -> Iterator[RoundRecord]:
        """Read the files of a folder; one that is no record (a machine lost its power) or of another version is
        reported and left out: the others can be read."""
        try:
            yield from self._of_file(raw, str(path))
        except RecordError as error:
            if not self.path.is_dir():
                raise
            self.problems.append(Problem(str(path), "piece", "", str(error), "the other pieces were read"))

    def _of_file(self, raw: bytes, source: str) -> Iterator[RoundRecord]:
        """The rounds of its pieces; where one stops being understood, the next one is looked for."""
        at = 0
        while 0 <= at < len(raw):
            parser, end, why = Parser(), segment.check_start(raw, at, source), "the rest is cut off or damaged"
            for after, body in segment.bodies(raw, end):
                try:
                    record = parser.take(body)
                except Damage as damage:
                    why = str(damage)
                    break
                except RecordError as error:
                    by = parser.head.koordlite if parser.head else "another version"
                    raise RecordError(f"{source}: {error}; koordlite {by} wrote it: read it with that") from error
                self.head, end = parser.head, after
                if record is not None:
                    yield record
            if end == len(raw) or raw.startswith(segment.MARK, end):
                at = end
                continue
            do = "what stands before it was read; nothing to do if the writer was killed or still writes"
            self.problems.append(Problem(source, f"byte {end} of {len(raw)}", "", why, do))
            at = raw.find(segment.MARK, end + 1)


def _begins(path: Path) -> float:
    """Time of the first round of a file, in seconds since the epoch; without one it is later than all."""
    try:
        first = next(Record(path).rounds(), None)
    except (FileNotFoundError, RecordError):
        return math.inf
    return math.inf if first is None else first.wall
