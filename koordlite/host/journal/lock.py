"""One agent on a machine: a lock file that dies with its process."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from koordlite.host import state_folder
from koordlite.model.errors import JournalError, JournalFull

_NAME = "lock"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Lock:
    """An flock on `folder/lock`; the kernel lets go of it however the process ends."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @classmethod
    def take(cls, folder: Path) -> Lock:
        """Take the lock of `folder`, making the folder if need be; JournalError names the process that has it."""
        try:
            state_folder.make(folder)
            fd = state_folder.open_or_make(folder / _NAME)
        except OSError as error:
            if error.errno in _FULL:
                do = "make room, it is tried again each minute; or name another folder with --state-dir"
                raise JournalFull(f"the state folder {folder} cannot be used: {error}; {do}") from error
            do = "enforce as root, or name a folder of your own with --state-dir"
            raise JournalError(f"the state folder {folder} cannot be used: {error}; {do}") from error
        lock = cls(fd)
        try:
            _hold(fd, folder)
        except BaseException:
            lock.release()
            raise
        return lock

    def release(self) -> None:
        """Let go; twice is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def take_machine(group: Path) -> Lock:
    """Take the lock on kubelet's top group: two agents with folders of their own would write the same files.
    JournalError when another agent has it. Where the kernel has no such lock, there is none."""
    try:
        lock = Lock(os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return Lock(None)
    try:
        assert lock._fd is not None
        fcntl.flock(lock._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.release()
        do = "stop that one; it has another state folder"
        raise JournalError(f"another agent writes the groups in {group}: {do}") from None
    except OSError:
        pass  # No lock on this file system: as before there were any.
    return lock


def holder(folder: Path) -> int | None:
    """The process that holds `folder`, as far as can be seen without touching the lock; None when none does.
    An agent that began in this moment must not be refused because another program tests the lock."""
    try:
        pid = int((folder / _NAME).read_text())
        os.stat(f"/proc/{pid}")
    except (OSError, ValueError):
        return None
    return pid


def _hold(fd: int, folder: Path) -> None:
    """Lock the open file and write our process id in it, for the message another agent would get."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            # A full disk has no room for our process id: the lock holds without.
            if error.errno not in _FULL:
                raise
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        why = f"{folder} is held by another agent, process {holder}: stop that one, or give this one its own folder"
        raise JournalError(why) from None
    except OSError as error:
        raise JournalError(f"the state folder {folder} cannot be locked: {error}") from error
