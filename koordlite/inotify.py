"""inotify(7) by the C library: Python has no binding of its own."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator

CREATE, CLOSE_WRITE, MOVED_TO = 0x100, 0x8, 0x80
"""A name was made; a file that was open for writing was closed; a name was moved here, as by a replacing rename."""
ONLYDIR = 0x0100_0000
"""Flag of a mask to watch: fail with ENOTDIR where the path is no folder."""
ISDIR, IGNORED, OVERFLOW = 0x4000_0000, 0x8000, 0x4000
"""Flags of an event: it is about a folder; the watch has ended; events were lost."""

Event = tuple[int, int, str]
"""Number of the watch, bits, and the name in the folder."""
_HEADER = struct.Struct("iIII")
_BYTES = 64 * 1024


class Inotify:
    """A descriptor with watches. Reading never waits."""

    def __init__(self) -> None:
        """OSError where there is no inotify, or the user has no instance of it left."""
        self._library = ctypes.CDLL(None, use_errno=True)
        try:
            self._fd = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            raise OSError(errno.ENOSYS, "this system has no inotify") from None

    def fileno(self) -> int:
        """The descriptor, which can be read when something was reported."""
        return self._fd

    def add(self, path: str, mask: int) -> int:
        """Watch `path`; the number of the watch. OSError when that is not possible."""
        return self._call("inotify_add_watch", self._fd, os.fsencode(path), ctypes.c_uint32(mask))

    def remove(self, watch: int) -> None:
        """Watch no more; a watch that has ended is no error."""
        try:
            self._call("inotify_rm_watch", self._fd, watch)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def events(self) -> Iterator[Event]:
        """Events since the last call."""
        while True:
            try:
                raw = os.read(self._fd, _BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(raw):
                watch, mask, _, length = _HEADER.unpack_from(raw, at)
                at += _HEADER.size
                yield watch, mask, os.fsdecode(raw[at : at + length].rstrip(b"\0"))
                at += length

    def close(self) -> None:
        """Give the descriptor and all watches back."""
        os.close(self._fd)

    def _call(self, name: str, *arguments: object) -> int:
        answer: int = getattr(self._library, name)(*arguments)
        if answer < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        return answer
