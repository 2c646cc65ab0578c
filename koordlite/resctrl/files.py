"""The five file operations this library needs, and the real ones of this machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Protocol


class Files(Protocol):
    """Files below /sys/fs/resctrl and /proc, by absolute path. Failures are OSError with the kernel's errno."""

    def read(self, path: str) -> bytes:
        """The whole content."""

    def write(self, path: str, data: bytes) -> None:
        """One write(2) of `data` to an existing file; never creates one."""

    def list(self, path: str) -> Sequence[str]:
        """Names in a folder; those of folders end with `/`."""

    def mkdir(self, path: str) -> None:
        """Make one folder."""

    def rmdir(self, path: str) -> None:
        """Remove one folder."""


class LocalFiles:
    """`Files` of this machine. Nothing is kept open: an open file below a resctrl mount makes its umount fail."""

    def read(self, path: str) -> bytes:
        """The whole content; OSError with the path where the kernel refuses."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
        except OSError as error:
            raise with_path(error, path) from None
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes) -> None:
        """One write(2) of `data` to an existing file, unbuffered: a buffered write that fails is repeated on close."""
        write_once(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), path, data)

    def list(self, path: str) -> Sequence[str]:
        """Names in a folder, sorted; those of folders, and of links to folders, end with `/`."""
        with os.scandir(path) as entries:
            return sorted([f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries])

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Remove one folder."""
        os.rmdir(path)


def write_once(fd: int, path: str, data: bytes) -> None:
    """One write(2) of `data` to the open file `path`, which is closed; EIO when the kernel takes only a part."""
    try:
        written = os.write(fd, data)
    except OSError as error:
        raise with_path(error, path) from None
    finally:
        os.close(fd)
    if written != len(data):
        raise OSError(errno.EIO, f"the kernel took {written} of {len(data)} bytes", path)


def with_path(error: OSError, path: str) -> OSError:
    """The same error with the path in it: a descriptor does not know its name."""
    if error.filename is not None:
        return error
    return OSError(error.errno, error.strerror, path)


_ABSENT = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


def text(files: Files, path: str) -> str:
    """The content without its newline; empty where this kernel has no such file, or the device went meanwhile."""
    try:
        return files.read(path).decode(errors="replace").strip()
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return ""


def names(files: Files, folder: str) -> Sequence[str]:
    """Names in a folder; none where there is no such folder."""
    try:
        return files.list(folder)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return ()
