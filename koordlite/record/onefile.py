"""A record in one file, which must not be there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from koordlite.record.mask import Mask, Names
from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head, Writer

MOST_BYTES = 4 << 20
"""Then a further piece begins, so that a damage spoils no more than one."""


class OneFile:
    """Appends moments to a new file."""

    def __init__(self, path: Path, head: Head) -> None:
        """FileExistsError when there is one already."""
        self._head, self._file = head, path.open("xb", buffering=0)
        self._writer: Writer | None = None
        self._size = 0
        self.count = 0

    def add(self, moment: RoundRecord) -> None:
        """Append `moment`; OSError when it cannot be written."""
        if self._writer is None or self._size >= MOST_BYTES:
            self._writer, self._size = Writer(self._head), 0
            self._write(self._writer.start)
        self._write(self._writer.frame(moment))
        self.count += 1

    def close(self) -> None:
        """End it."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        while data:
            data = data[self._file.write(data) :]


def write(path: Path, head: Head, moments: Iterable[RoundRecord]) -> int:
    """A file of these moments; how many there were."""
    file = OneFile(path, head)
    try:
        for moment in moments:
            file.add(moment)
    finally:
        file.close()
    return file.count


def masked(
    path: Path,
    head: Head,
    again: Callable[[], Iterable[RoundRecord]],
    decide: Callable[[RoundRecord], RoundRecord] | None = None,
) -> int:
    """Same as `write`, with pseudonyms. `again` gives the moments each time it is called: names are collected first.

    `decide` gives a masked moment with the decisions that follow from it, so that it can be judged again.
    """
    names = Names()
    for moment in again():
        names.take_in(moment.snapshot)
    mask = Mask(names)
    shown = (mask.moment(moment) for moment in again())
    return write(path, _masked_head(head, mask), map(decide, shown) if decide else shown)


def _masked_head(head: Head, mask: Mask) -> Head:
    return Head(koordlite=head.koordlite, node=mask.text(head.node), machine="", masked=True)
