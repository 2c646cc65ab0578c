"""A file tree in memory whose files are functions: the `Files` port of the emulated node.

Answers as kernfs does: EACCES for writing a read-only file, EPERM for making a folder where the kernel makes none.
"""

from __future__ import annotations

import contextlib
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
        with self._call("read", path):
            return self._file(path).read().encode()

    def write(self, path: str, data: bytes) -> None:
        """Make a write(2) to an existing file."""
        with self._call("write", path):
            file = self._file(path)
            if file.write is None:
                raise refusal(file.refuses)
            file.write(data)

    def list(self, path: str) -> Sequence[str]:
        """Names in a folder; those of folders end with `/`."""
        with self._call("list", path):
            folder = self.entry(path)
            if not isinstance(folder, Folder):
                raise refusal(errno.ENOTDIR)
        names = [
            f"{name}/" if isinstance(self.entry(entry.target) if isinstance(entry, Link) else entry, Folder) else name
            for name, entry in folder.entries.items()
        ]
        return names + [f"{name}/" for name in folder.folders()]

    def mkdir(self, path: str) -> None:
        """Make one folder, if the file system there allows it."""
        with self._call("mkdir", path):
            folder, name = self._parent(path)
            if folder.find(name) is not None:
                raise refusal(errno.EEXIST)
            if folder.make is None:
                raise refusal(errno.EPERM)
            folder.make(name)

    def rmdir(self, path: str) -> None:
        """Remove one folder, if the file system there allows it."""
        with self._call("rmdir", path):
            folder, name = self._parent(path)
            entry = folder.find(name)
            if not isinstance(entry, Folder):
                raise refusal(errno.ENOENT if entry is None else errno.ENOTDIR)
            if folder.remove is None:
                raise refusal(errno.EPERM)
            folder.remove(name)

    def entry(self, path: str) -> Entry:
        """The entry at `path`."""
        return self._lineage(_parts(path))[-1]

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

    @contextlib.contextmanager
    def _call(self, verb: str, path: str) -> Iterator[None]:
        """A call of the kernel: it may be made to fail, and its errors name the path."""
        try:
            code = self.trouble(verb, path) if self.trouble else None
            if code is not None:
                raise refusal(code)
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    def _lineage(self, parts: Sequence[str]) -> _Way:
        """The entry at `parts`, after the folders it is in: behind a link, those of its target, as `..` finds them."""
        way: _Way = [self.root]
        for part in parts:
            entry = way[-1]
            if not isinstance(entry, Folder):
                raise refusal(errno.ENOTDIR)
            if part == "..":
                way = way[:-1] or way
            elif part != ".":
                child = entry.find(part)
                if child is None:
                    raise refusal(errno.ENOENT)
                if isinstance(child, Link):
                    way = self._lineage(_parts(child.target))
                else:
                    way.append(child)
        return way

    def _file(self, path: str) -> File:
        entry = self.entry(path)
        if not isinstance(entry, File):
            raise refusal(errno.EISDIR)
        return entry

    def _parent(self, path: str) -> tuple[Folder, str]:
        *parts, name = _parts(path)
        entry = self._lineage(parts)[-1]
        if not isinstance(entry, Folder):
            raise refusal(errno.ENOTDIR)
        if name in (".", ".."):
            raise refusal(errno.EINVAL)
        return entry, name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
