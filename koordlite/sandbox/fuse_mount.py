"""The emulated resctrl as a mounted file system, so that any program that speaks resctrl can be pointed at it.

Masks and bandwidths have no effect. The threads are those of this machine: they can be put into groups, but threads
that they make later start in the root group, since nobody tells us of them.
"""

from __future__ import annotations

import importlib
import itertools
import os
import pathlib
import stat
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from koordlite.model.errors import KoordliteError
from koordlite.sandbox.machine.processes import Process, Processes
from koordlite.sandbox.machine.shapes import Machine
from koordlite.sandbox.machine.tree import File, Tree
from koordlite.sandbox.resctrl.filesystem import POINT, Resctrl
from koordlite.sandbox.resctrl.state import Caller
from koordlite.sandbox.resctrl.vfs import LONGEST_NAME, ResctrlVFS

BINDING = "mfusepy"
_BLOCK = 4096
_STOPPED_BY_SIGNAL = 8
"""What libfuse's main loop returns then."""


class MountFailed(KoordliteError):
    """The folder cannot be served; the message says why and what to do."""


class HostThreads(Processes):
    """The threads of this machine instead of emulated ones."""

    def __init__(self) -> None:
        super().__init__(1)

    def find(self, tid: int) -> Process | None:
        """A stand-in for a thread that lives; None when there is none of that id."""
        return Process(tid, "", (tid,), 0) if pathlib.Path(f"/proc/{tid}").exists() else None

    def tids(self) -> list[int]:
        """Every thread id, ascending."""
        return sorted(itertools.chain.from_iterable(_threads(pid) for pid in os.listdir("/proc") if pid.isdecimal()))


def serve(machine: Machine, folder: str, *, options: str = "", mounted: Callable[[], None] = lambda: None) -> None:
    """Mount the resctrl of `machine` on `folder` and serve it until SIGINT or SIGTERM. `mounted` hears when it is.

    MountFailed when the machine has no resctrl or not with these mount options, when the binding or libfuse is not
    installed, or when libfuse gives up.
    """
    vfs = _emulation(machine, options)
    binding = _binding()
    served = type("Served", (Operations, binding.Operations), {"told": staticmethod(mounted)})
    try:
        binding.FUSE(
            served(vfs, lambda: int(binding.fuse_get_context()[0])),
            folder,
            foreground=True,
            nothreads=True,
            direct_io=True,
            attr_timeout=0,
            entry_timeout=0,
            fsname="resctrl",
            subtype="resctrl",
        )
    except RuntimeError as error:
        if error.args != (_STOPPED_BY_SIGNAL,):
            raise MountFailed(f"{folder}: libfuse gave up with code {error}; what it printed says why") from error


class Operations:
    """What the file system does, named as libfuse calls it. What the emulation refuses becomes the caller's errno."""

    use_ns = True
    told: Callable[[], None]

    def __init__(self, vfs: ResctrlVFS, user: Callable[[], int]) -> None:
        self._vfs, self._user = vfs, user
        self._owner = os.getuid()
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[File, bytes]] = {}
        """Open files by number, with what a reader that began at the start is being given."""

    def init(self, path: str) -> None:
        """It is mounted."""
        type(self).told()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        """stat(2)."""
        seen = self._vfs.attributes(_inside(path))
        kind = stat.S_IFDIR if seen.folder else stat.S_IFREG
        return {"st_mode": kind | seen.mode, "st_nlink": seen.links, "st_size": 0, "st_uid": self._owner}

    def readdir(self, path: str, fh: int) -> Iterator[str]:
        """The names in a folder."""
        yield from (".", "..")
        yield from (name.rstrip("/") for name in self._vfs.files.list(_inside(path)))

    def open(self, path: str, flags: int) -> int:
        """open(2): a number for the file."""
        self._act()
        file = self._vfs.open(_inside(path), write=bool(flags & (os.O_WRONLY | os.O_RDWR)))
        number = next(self._numbers)
        self._open[number] = (file, b"")
        return number

    def release(self, path: str, fh: int) -> int:
        """The last close(2)."""
        del self._open[fh]
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """read(2). Who reads in pieces is given one content."""
        self._act()
        file, content = self._open[fh]
        if offset == 0:
            content = file.read().encode()
            self._open[fh] = (file, content)
        return content[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        """write(2): each is an operation of its own, wherever it is meant to go."""
        self._act()
        file, _ = self._open[fh]
        if file.write:
            file.write(bytes(data))
        return len(data)

    def mkdir(self, path: str, mode: int) -> int:
        """A group."""
        self._act()
        self._vfs.files.mkdir(_inside(path))
        return 0

    def rmdir(self, path: str) -> int:
        """No group any more."""
        self._vfs.files.rmdir(_inside(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        """A monitor group gets another name or another control group."""
        self._vfs.files.rename(_inside(old), _inside(new))
        return 0

    def unlink(self, path: str) -> int:
        """Refused."""
        self._vfs.unlink(_inside(path))
        return 0

    def create(self, path: str, mode: int) -> int:
        """Refused."""
        self._vfs.create(_inside(path))
        return 0

    def symlink(self, target: str, source: str) -> int:
        """Refused."""
        self._vfs.link(_inside(target))
        return 0

    def link(self, target: str, source: str) -> int:
        """Refused."""
        self._vfs.link(_inside(target))
        return 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        """Taken or refused by the name."""
        self._vfs.set_attribute(_inside(path), name)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        """Taken, without effect."""
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        """Taken, without effect."""
        return 0

    def utimens(self, path: str, times: object = None) -> int:
        """Taken, without effect."""
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Nothing: shells do it before they write."""
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """statfs(2). The type is FUSE's."""
        return {"f_bsize": _BLOCK, "f_namemax": LONGEST_NAME}

    def _act(self) -> None:
        """Who is asking: whoever mounted it stands for root."""
        user = self._user()
        self._vfs.resctrl.caller = Caller(uid=0 if user in (0, self._owner) else user)


def _emulation(machine: Machine, options: str) -> ResctrlVFS:
    if machine.rdt is None:
        raise MountFailed(f"the machine {machine.name} has no resctrl; name another one")
    tree = Tree()
    resctrl = Resctrl(machine, machine.rdt, HostThreads(), time.monotonic)
    if resctrl.mounted and options:
        resctrl.umount()
    if not resctrl.mounted:
        try:
            resctrl.mount(options)
        except OSError as error:
            raise MountFailed(f"the machine {machine.name} refuses the mount options {options!r}: {error}") from error
    tree.place(POINT, resctrl.folder)
    return ResctrlVFS(tree, resctrl)


def _binding() -> ModuleType:
    try:
        return importlib.import_module(BINDING)
    except ImportError as error:
        raise MountFailed(f"{BINDING} is not installed; install koordlite with the extra sandbox-mount") from error
    except OSError as error:
        raise MountFailed(f"{BINDING}: {error}; install libfuse 3 (Debian: libfuse3-3)") from error


def _threads(pid: str) -> list[int]:
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _inside(path: str) -> str:
    return f"{POINT}{path}".rstrip("/")
