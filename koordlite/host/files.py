"""The files of the real machine, read and written one system call at a time."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from koordlite.host import beneath
from koordlite.resctrl.files import LocalFiles, with_path, write_once

P = ParamSpec("P")
T = TypeVar("T")
_HOT = frozenset(
    {
        "cpuacct.usage",
        "cpu.stat",
        "cpu.max",
        "cpu.max.burst",
        "cpu.weight",
        "cpu.idle",
        "cpu.shares",
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "cpu.cfs_burst_us",
        "cpuset.cpus",
        "cpuset.cpus.effective",
        "memory.min",
        "memory.low",
        "memory.high",
        "memory.max",
        "memory.swap.max",
        "memory.limit_in_bytes",
        "memory.stat",
        "memory.current",
        "memory.usage_in_bytes",
        "cpu.pressure",
        "memory.pressure",
    }
)
_CHUNK_BYTES = 8192
_STALE = (errno.ENODEV, errno.ENOENT)


def readable(read: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    """Result of `read`; None where its file, group or process is gone, is refused, or holds no such value."""
    try:
        return read(*arguments, **named)
    except (OSError, ValueError):
        return None


class RealFiles(LocalFiles):
    """`ports.Files` on this machine.
    Counters and limits of cgroups are kept open and read with pread: opening them for each read costs far more. What
    was opened first is closed first when there are too many. All other files are closed at once, as `LocalFiles` does,
    those of resctrl above all. For one thread at a time."""

    def __init__(self, *, most_open: int = 16_384) -> None:
        """`most_open` bounds the descriptors, as does half of the process's own limit, which is raised as far as it may
        be. The kernel holds a page for each: 250 pods of two containers need 20 MiB of it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = 2 * most_open
        if soft != resource.RLIM_INFINITY and soft < limit:
            # Up to the hard limit anyone may.
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        self._capacity = max(1, min(most_open, limit // 2))
        self._descriptors: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """The whole content; OSError with the path where the kernel refuses."""
        fd = self._descriptors.get(path)
        if fd is not None:
            try:
                content = os.pread(fd, _CHUNK_BYTES, 0)
            except OSError:
                return self._read_again(path)
            if 0 < len(content) < _CHUNK_BYTES:
                return content
        return self._read_again(path)

    def _read_again(self, path: str) -> bytes:
        """The long way: a file that is not kept, or not any more what it was, or does not fit into one read."""
        if path.rpartition("/")[2] not in _HOT:
            return super().read(path)
        was_open = path in self._descriptors
        try:
            return self._read_open(path)
        except OSError as error:
            self._drop(path)
            # A removed cgroup answers ENODEV on an old descriptor for ever, also when its path exists again.
            if not was_open or error.errno not in _STALE:
                raise
        try:
            return self._read_open(path)
        except OSError:
            self._drop(path)
            raise

    def write(self, path: str, data: bytes) -> None:
        """One write(2) of `data` to an existing file; ValueError for a path with `..`, OSError (EXDEV) where a link
        leads out of the file system it is in."""
        write_once(beneath.open_to_write(path), path, data)

    def mkdir(self, path: str) -> None:
        """Make one folder; ValueError for a path with `..`."""
        super().mkdir(beneath.absolute(path))

    def rmdir(self, path: str) -> None:
        """Remove one folder; ValueError for a path with `..`."""
        super().rmdir(beneath.absolute(path))

    def close(self) -> None:
        """Close every kept descriptor."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __enter__(self) -> RealFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read_open(self, path: str) -> bytes:
        try:
            fd = self._descriptors.get(path)
            if fd is None:
                if len(self._descriptors) >= self._capacity:
                    os.close(self._descriptors.pop(next(iter(self._descriptors))))
                # The journal names many of the same files, and a path is longer than all else that is kept of them.
                fd = self._descriptors[sys.intern(path)] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            # Kernel files that print one record give it in one read, so a short read is the end of them.
            content = os.pread(fd, _CHUNK_BYTES, 0)
            while len(content) % _CHUNK_BYTES == 0 and content:
                more = os.pread(fd, _CHUNK_BYTES, len(content))
                if not more:
                    break
                content += more
            return content
        except OSError as error:
            raise with_path(error, path) from None

    def _drop(self, path: str) -> None:
        fd = self._descriptors.pop(path, None)
        if fd is not None:
            os.close(fd)
