"""The agent's state folder: closed to other users, and nothing that another user put there is believed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

MODE = 0o700
_OTHERS = 0o077


def make(folder: Path) -> None:
    """Make the folder if need be, and close it to everybody else.
    OSError when it cannot be made, is a symbolic link, or belongs to another user."""
    folder.mkdir(mode=MODE, parents=True, exist_ok=True)
    fd = _opened(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.fstat(fd)
        _check_owner(status, folder, {os.geteuid()})
        if stat.S_IMODE(status.st_mode) & _OTHERS:
            os.fchmod(fd, MODE)
    finally:
        os.close(fd)


def open_or_make(path: Path) -> int:
    """A descriptor to read and write a file of ours. OSError when it is a link, or belongs to another user."""
    fd = _opened(path, os.O_RDWR | os.O_CREAT)
    try:
        _check_owner(os.fstat(fd), path, {os.geteuid()})
    except BaseException:
        os.close(fd)
        raise
    return fd


def read(path: Path) -> bytes:
    """The content. OSError when there is no file, it is a link, or it belongs neither to this user nor to root."""
    fd = _opened(path, os.O_RDONLY)
    with os.fdopen(fd, "rb") as file:
        _check_owner(os.fstat(fd), path, {os.geteuid(), 0})
        return file.read()


def replace(path: Path, content: bytes) -> None:
    """Replace a file as a whole: written aside, flushed, renamed, and the folder flushed too. A crash before the rename
    leaves the old file, after it the new one; what lies aside is removed next time. Only this user may read it."""
    aside = path.with_suffix(".new")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside)
    # O_EXCL follows no link that was put there meanwhile.
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(aside, path)
    _flush_folder(path.parent)


def append(path: Path, content: bytes) -> None:
    """Add to a file of ours, flushed; it is made if need be. OSError as of `open_or_make`, and of the disk."""
    is_new = not path.exists()
    fd = _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        _check_owner(os.fstat(fd), path, {os.geteuid()})
        _write_all(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)
    if is_new:
        _flush_folder(path.parent)


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and path.is_symlink()):
            raise OSError(errno.ELOOP, "it is a symbolic link: name the place itself", str(path)) from None
        raise


def _check_owner(status: os.stat_result, path: Path, allowed: set[int]) -> None:
    if status.st_uid not in allowed:
        why = f"it belongs to user {status.st_uid}, this is user {os.geteuid()}: remove it, or name another folder"
        raise PermissionError(errno.EPERM, why, str(path))


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def _flush_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
