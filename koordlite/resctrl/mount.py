"""Mounting the resctrl file system, where the configuration allows it, and taking it away again.

There is one instance of it in the whole system: a second mount anywhere is EBUSY. Source: Linux resctrl document.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Protocol

_RELATIME, _NOSUID, _NODEV, _NOEXEC = 1 << 21, 1 << 1, 1 << 2, 1 << 3


class Mounts(Protocol):
    """The two system calls, so that a machine that is not this one can answer for itself."""

    def mount(self, point: str, options: str = "") -> None:
        """Mount resctrl there, with the kernel's options if any; OSError as the kernel gives it."""

    def umount(self, point: str) -> None:
        """Take it away; OSError EBUSY while a file in it is open."""


class RealMounts:
    """Mounts of this machine, in the mount namespace of this process."""

    def mount(self, point: str, options: str = "") -> None:
        """mount(2) of resctrl. Options change what every other user of it finds."""
        flags, given = ctypes.c_ulong(_RELATIME | _NOSUID | _NODEV | _NOEXEC), options.encode() or None
        _called("mount", b"resctrl", os.fsencode(point), b"resctrl", flags, given, point=point)

    def umount(self, point: str) -> None:
        """umount(2)."""
        _called("umount", os.fsencode(point), point=point)


class NoMounts:
    """A machine on which nothing can be mounted: a recording, or an emulated one that is mounted already."""

    def mount(self, point: str, options: str = "") -> None:
        """Always EOPNOTSUPP."""
        raise OSError(errno.EOPNOTSUPP, "this machine cannot mount", point)

    def umount(self, point: str) -> None:
        """Always EOPNOTSUPP."""
        raise OSError(errno.EOPNOTSUPP, "this machine cannot unmount", point)


def _called(name: str, *arguments: object, point: str) -> None:
    call = getattr(ctypes.CDLL(None, use_errno=True), name)
    if call(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), point)
