"""Mounting the resctrl file system and unmounting it, and the options it is mounted with.

There is one instance of it in the whole system: a second mount anywhere is EBUSY. Source: Linux resctrl document.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Protocol

from koordlite.resctrl.files import Files, text

_RELATIME, _NOSUID, _NODEV, _NOEXEC = 1 << 21, 1 << 1, 1 << 2, 1 << 3


class Mounts(Protocol):
    """The two system calls. An emulated machine has its own."""

    def mount(self, point: str, options: str = "") -> None:
        """Mount resctrl there, with the kernel's options if any; OSError as the kernel gives it."""

    def umount(self, point: str) -> None:
        """Unmount it; OSError EBUSY while a file in it is open."""


class RealMounts:
    """Mounts of this machine, in the mount namespace of this process."""

    def mount(self, point: str, options: str = "") -> None:
        """mount(2) of resctrl. Options change what every other user of it finds."""
        flags, data = ctypes.c_ulong(_RELATIME | _NOSUID | _NODEV | _NOEXEC), options.encode() or None
        _call("mount", b"resctrl", os.fsencode(point), b"resctrl", flags, data, point=point)

    def umount(self, point: str) -> None:
        """umount(2)."""
        _call("umount", os.fsencode(point), point=point)


class NoMounts:
    """A machine on which nothing can be mounted: a recording, or an emulated one that is mounted already."""

    def mount(self, point: str, options: str = "") -> None:
        """Always EOPNOTSUPP."""
        raise OSError(errno.EOPNOTSUPP, "this machine cannot mount", point)

    def umount(self, point: str) -> None:
        """Always EOPNOTSUPP."""
        raise OSError(errno.EOPNOTSUPP, "this machine cannot unmount", point)


def options(files: Files) -> frozenset[str]:
    """The options resctrl is mounted with; empty where it is not mounted, or /proc has no list of mounts.

    Only here does the kernel show `mba_MBps`: the files of info/MB are the same with it and without it.
    """
    table = text(files, "/proc/self/mounts") or text(files, "/proc/mounts")
    mounts = (line.split(" ") for line in table.splitlines())
    lists = (fields[3] for fields in mounts if len(fields) >= 4 and fields[2] == "resctrl")
    return frozenset(option for listed in lists for option in listed.split(","))


def _call(name: str, *arguments: object, point: str) -> None:
    system_call = getattr(ctypes.CDLL(None, use_errno=True), name)
    if system_call(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), point)
