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
    """A file. Without `write` it is read-only and answers a write with `refuses`."""

    read: Callable[[], str]
    write: Callable[[bytes], None] | None = None
    refuses: int = errno.EACCES


class Link(msgspec.Struct, frozen=True):
    """A symbolic link to an absolute path."""

    target: str


class Folder(msgspec.Struct, eq=False):
    """A folder. `make` and `remove` are what mkdir and rmdir inside it do; absent means the kernel says EPERM."""

    entries: dict[str, Entry] = msgspec.field(default_factory=dict)
    make: Callable[[str], object] | None = None
    remove: Callable[[str], object] | None = None
    lookup: Callable[[str], Entry | None] | None = None
    """Finds entries that are made when they are opened, as processes and threads in /proc."""
    folders: Callable[[], Iterable[str]] = tuple
    """Names of those of them that are listed."""

    def find(self, name: str) -> Entry | None:
        """The entry called `name`, listed or not."""
        entry = self.entries.get(name)
        return self.lookup(name) if entry is None and self.lookup else entry


Entry = File | Folder | Link
_Way = list[Entry]

Trouble = Callable[[str, str], int | None]
"""The errno a call fails with, by its verb (read, write, list, mkdir, rmdir) and path; None lets it through."""


def constant(text: str) -> File:
    """A read-only file that always says `text`."""
    return File(lambda: text)


class Tree:
    """`ports.Files` over a tree of functions."""

    def __init__(self) -> None:
        self.root = Folder()
        self.trouble: Trouble | None = None
        """Asked before every call: an errno lets the call fail."""

    def read(self, path: str) -> bytes:
        """The whole content."""
        self._trip("read", path)
        file = self._file(path)
        try:
            return file.read().encode()
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    def write(self, path: str, data: bytes) -> None:
        """Make a write(2) to an existing file."""
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
            f"{name}/" if isinstance(self.entry(entry.target) if isinstance(entry, Link) else entry, Folder) else name
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
        self._change(folder.remove, name, path)

    def entry(self, path: str) -> Entry:
        """The entry at `path`."""
        return self._lineage(_parts(path), path)[-1]

    def place(self, path: str, entry: Entry) -> None:
        """Put `entry` at `path`, with plain folders on the way."""
        *folders, name = _parts(path)
        folder = self.root
        for part in folders:
            folder_entry = folder.entries.setdefault(part, Folder())
            if not isinstance(folder_entry, Folder):
                raise ValueError(f"{path}: {part} is not a folder")
            folder = folder_entry
        folder.entries[name] = entry

    def paths(self, top: str = "") -> Iterator[str]:
        """Every listed file below `top`."""
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

    def _lineage(self, parts: Sequence[str], path: str) -> _Way:
        """The entry at `parts`, after the folders it is in: behind a link, those of its target, as `..` finds them.
        Errors name `path`."""
        way: _Way = [self.root]
        for part in parts:
            entry = way[-1]
            if not isinstance(entry, Folder):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if part == "..":
                way = way[:-1] or way
            elif part != ".":
                child = entry.find(part)
                if child is None:
                    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                if isinstance(child, Link):
                    way = self._lineage(_parts(child.target), child.target)
                else:
                    way.append(child)
        return way

    def _file(self, path: str) -> File:
        entry = self.entry(path)
        if not isinstance(entry, File):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return entry

    def _folder(self, path: str) -> Folder:
        entry = self.entry(path)
        if not isinstance(entry, Folder):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return entry

    def _parent(self, path: str) -> tuple[Folder, str]:
        *parts, name = _parts(path)
        entry = self._lineage(parts, path)[-1]
        if not isinstance(entry, Folder):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if name in (".", ".."):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return entry, name

    def _change(self, how: Callable[[str], object] | None, name: str, path: str) -> None:
        if how is None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
        try:
            how(name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
