"""A file tree in memory whose files are functions: the `Files` port of the emulated node.

Answers as kernfs does: EACCES for writing a read-only file, EPERM for making a folder where the kernel makes none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec


def refusal(code: int) -> OSError:
    """The error the kernel answers with; `Tree` adds the path."""
    return OSError(code, os.strerror(code))


class File(msgspec.Struct, frozen=True):
    """One file. Without `write` it is read-only and answers a write with `refuses`."""

    read: Callable[[], str]
    write: Callable[[bytes], None] | None = None
    refuses: int = errno.EACCES

    @property
    def mode(self) -> int:
        """Permission bits."""
        return 0o644 if self.write else 0o444


class Link(msgspec.Struct, frozen=True):
    """A symbolic link to an absolute path."""

    target: str


class Folder(msgspec.Struct, eq=False):
    """A folder. `make` and `remove` are what mkdir and rmdir inside it do; absent means the kernel says EPERM."""

    entries: dict[str, Entry] = msgspec.field(default_factory=dict)
    make: Callable[[str], None] | None = None
    remove: Callable[[str], None] | None = None
    lookup: Callable[[str], Entry | None] | None = None
    """Finds entries that are made when they are opened, as processes and threads in /proc."""
    folders: Callable[[], Iterable[str]] = tuple
    """Names of those of them that are listed."""
    move: Callable[[str, Folder, str], None] | None = None
    """What a rename from here does: the entry's name, the folder it goes to and its name there. Absent: EPERM."""
    mode: int = 0o755
    """Permission bits."""
    mount_point: bool = False
    """Another file system begins here: it cannot be removed."""

    def find(self, name: str) -> Entry | None:
        """The entry called `name`, listed or not."""
        entry = self.entries.get(name)
        return self.lookup(name) if entry is None and self.lookup else entry


Entry = File | Folder | Link
_Way = list[Entry]

Trouble = Callable[[str, str], int | None]
"""The errno a call fails with, by its verb (read, write, list, mkdir, rmdir, rename) and path; None lets it through."""


def constant(text: str) -> File:
    """A read-only file that always says `text`."""
    return File(lambda: text)


class Fault(msgspec.Struct):
    """An injected failure of one path for the next `times` calls."""

    code: int
    times: int


class Tree:
    """`ports.Files` over a tree of functions; `fail` injects faults."""

    def __init__(self) -> None:
        self.root = Folder()
        self.trouble: Trouble | None = None
        """Asked before every call: an errno lets the call fail."""
        self._faults: dict[str, Fault] = {}

    def read(self, path: str) -> bytes:
        """The whole content."""
        self._trip("read", path)
        file = self._file(path)
        try:
            return file.read().encode()
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    def write(self, path: str, data: bytes) -> None:
        """One write(2) to an existing file."""
        self._trip("write", path)
        file = self._file(path)
        if file.write is None:
            raise OSError(file.refuses, os.strerror(file.refuses), path)
        try:
            file.write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    def list(self, path: str) -> Sequence[str]:
        """Names in a folder; those of folders end with `/`."""
        self._trip("list", path)
        folder = self._folder(path)
        names = [
            f"{name}/" if isinstance(self._find(entry.target) if isinstance(entry, Link) else entry, Folder) else name
            for name, entry in folder.entries.items()
        ]
        return names + [f"{name}/" for name in folder.folders()]

    def mkdir(self, path: str) -> None:
        """Make one folder, if the file system there allows it."""
        self._trip("mkdir", path)
        folder, name = self._parent(path)
        if folder.find(name) is not None:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._change(folder.make, name, path)

    def rmdir(self, path: str) -> None:
        """Remove one folder, if the file system there allows it."""
        self._trip("rmdir", path)
        folder, name = self._parent(path)
        entry = folder.find(name)
        if not isinstance(entry, Folder):
            code = errno.ENOENT if entry is None else errno.ENOTDIR
            raise OSError(code, os.strerror(code), path)
        if entry.mount_point:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        self._change(folder.remove, name, path)

    def rename(self, path: str, target: str) -> None:
        """Give an entry another path in the same file system, if that allows it."""
        self._trip("rename", path)
        folder, name = self._parent(path)
        into, new = self._parent(target)
        if any(isinstance(each, Folder) and each.mount_point for each in (folder.find(name), into.find(new))):
            # The folder that a mount point is in belongs to another file system.
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        self._find(path)
        if (folder, name) == (into, new):
            return
        if f"{target}/".startswith(f"{path}/"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        if f"{path}/".startswith(f"{target}/"):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._check_alike(path, folder.find(name), into.find(new))
        move = folder.move
        self._change(move and (lambda name: move(name, into, new)), name, path)

    def entry(self, path: str) -> Entry:
        """Entry at `path`: who keeps it has the file open, also when it is removed."""
        return self._find(path)

    def fail(self, path: str, code: int, times: int = 1) -> None:
        """Let the next `times` calls on `path` fail with errno `code`."""
        self._faults[path] = Fault(code, times)

    def place(self, path: str, entry: Entry) -> None:
        """Put `entry` at `path`, with plain folders on the way."""
        *folders, name = _parts(path)
        folder = self.root
        for part in folders:
            found = folder.entries.setdefault(part, Folder())
            if not isinstance(found, Folder):
                raise ValueError(f"{path}: {part} is not a folder")
            folder = found
        folder.entries[name] = entry

    def paths(self, top: str = "") -> Iterator[str]:
        """Every listed file below `top`, for tests and recordings."""
        for name in self.list(top or "/"):
            path = f"{top}/{name.rstrip('/')}"
            if name.endswith("/"):
                yield from self.paths(path)
            else:
                yield path

    def _trip(self, verb: str, path: str) -> None:
        code = self.trouble(verb, path) if self.trouble else None
        if code is not None:
            raise OSError(code, os.strerror(code), path)
        fault = self._faults.get(path)
        if fault is None:
            return
        fault.times -= 1
        if fault.times <= 0:
            del self._faults[path]
        raise OSError(fault.code, os.strerror(fault.code), path)

    def _find(self, path: str) -> Entry:
        return self._walk(_parts(path), path)

    def _walk(self, parts: Sequence[str], path: str) -> Entry:
        """The entry at `parts`; errors name `path`."""
        return self._lineage(parts, path)[-1]

    def _lineage(self, parts: Sequence[str], path: str) -> _Way:
        """The entry at `parts`, after the folders it is in: behind a link, those of its target, as `..` finds them."""
        way: _Way = [self.root]
        for part in parts:
            entry = way[-1]
            if not isinstance(entry, Folder):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if part == "..":
                way = way[:-1] or way
            elif part != ".":
                found = entry.find(part)
                if found is None:
                    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                if isinstance(found, Link):
                    way = self._lineage(_parts(found.target), found.target)
                else:
                    way.append(found)
        return way

    def _file(self, path: str) -> File:
        entry = self._find(path)
        if not isinstance(entry, File):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return entry

    def _folder(self, path: str) -> Folder:
        entry = self._find(path)
        if not isinstance(entry, Folder):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return entry

    def _parent(self, path: str) -> tuple[Folder, str]:
        *parts, name = _parts(path)
        entry = self._walk(parts, path)
        if not isinstance(entry, Folder):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if name in (".", ".."):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return entry, name

    def _check_alike(self, path: str, entry: Entry | None, target: Entry | None) -> None:
        """A folder replaces no file, a file no folder: the file layer says so before the file system is asked."""
        if target is not None and isinstance(entry, Folder) != isinstance(target, Folder):
            code = errno.ENOTDIR if isinstance(entry, Folder) else errno.EISDIR
            raise OSError(code, os.strerror(code), path)

    def _change(self, how: Callable[[str], None] | None, name: str, path: str) -> None:
        if how is None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
        try:
            how(name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
