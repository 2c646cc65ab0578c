"""A machine from a folder: files captured on a node, read-only, behind the same port as a real one.

A folder holds plain files at their path below it (`proc/stat`, `sys/…`), JSON files that map absolute paths to
`{"mode", "content" | "error" | "link" | "dir"}`, or both.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from koordlite.model.errors import UNREADABLE

_ERRNO = {os.strerror(number): number for number in errno.errorcode}
_RENAMED = (("/proc/pressure_", "/proc/pressure/"), ("/var_lib_kubelet/", "/var/lib/kubelet/"))
_MOST_LINKS = 40


class _Item(msgspec.Struct, frozen=True):
    """A recording of one path; exactly one of the fields after `mode` is set."""

    mode: str = "0o444"
    content: str | None = None
    error: str | None = None
    link: str | None = None
    dir: bool | list[str] | None = None
    file: Path | None = None


class RecordedFiles:
    """`ports.Files` over captured folders; later folders win. Every change is refused with EROFS."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._items: dict[str, _Item] = {}
        for folder in folders:
            self._items.update(_items(folder))
        self._children = _tree(self._items)

    def read(self, path: str) -> bytes:
        """The recorded content, or the error the kernel gave when it was recorded."""
        target = self._resolve(path)
        item = self._items.get(target)
        if target in self._children:
            raise _refusal(errno.EISDIR, path)
        if item is None:
            raise _refusal(errno.ENOENT, path)
        if item.error is not None:
            raise _refusal(_ERRNO.get(item.error, errno.EIO), path)
        if item.content is not None:
            return item.content.encode(errors="surrogateescape")
        if item.file is not None:
            return item.file.read_bytes()
        raise _refusal(errno.EACCES, path)

    def write(self, path: str, data: bytes) -> None:
        """Always EROFS, or ENOENT where nothing was recorded."""
        self._check(path)
        raise _refusal(errno.EROFS, path)

    def list(self, path: str) -> Sequence[str]:
        """Names in a recorded folder, sorted."""
        target = self._resolve(path)
        if target not in self._children:
            raise _refusal(errno.ENOTDIR if target in self._items else errno.ENOENT, path)
        names = self._children[target]
        return sorted(
            f"{name}/" if self._resolve(posixpath.join(target, name)) in self._children else name for name in names
        )

    def mkdir(self, path: str) -> None:
        """Always EROFS."""
        raise _refusal(errno.EROFS, path)

    def rmdir(self, path: str) -> None:
        """Always EROFS, or ENOENT where nothing was recorded."""
        self._check(path)
        raise _refusal(errno.EROFS, path)

    def _check(self, path: str) -> None:
        target = self._resolve(path)
        if target not in self._items and target not in self._children:
            raise _refusal(errno.ENOENT, path)

    def _resolve(self, path: str) -> str:
        """`path` with every recorded link on the way followed, relative ones from the folder they lie in."""
        for _ in range(_MOST_LINKS):
            parts = posixpath.normpath(path).split("/")
            above = ("/".join(parts[:count]) for count in range(2, len(parts) + 1))
            link = next((at for at in above if at in self._items and self._items[at].link is not None), None)
            if link is None:
                return posixpath.normpath(path)
            target = posixpath.join(posixpath.dirname(link), self._items[link].link or "")
            path = posixpath.normpath(target + path[len(link) :])
        raise _refusal(errno.ELOOP, path)


def _items(folder: Path) -> Iterator[tuple[str, _Item]]:
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "a recording is a folder", str(folder))
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield from _captured(path) or [(_renamed(f"/{path.relative_to(folder)}"), _Item(file=path))]


def _captured(path: Path) -> list[tuple[str, _Item]]:
    """The items of a JSON file of paths; none when it is any other file."""
    if path.suffix != ".json":
        return []
    try:
        items = msgspec.json.decode(path.read_bytes(), type=dict[str, _Item])
    except UNREADABLE:
        return []
    return list(items.items()) if all(key.startswith("/") for key in items) else []


def _renamed(path: str) -> str:
    """Captures avoid some folder names; give them back."""
    for short, full in _RENAMED:
        if path.startswith(short):
            return full + path.removeprefix(short)
    return path


def _tree(items: Mapping[str, _Item]) -> dict[str, set[str]]:
    """Folder → names in it: the recorded folders and those that the paths imply."""
    children: dict[str, set[str]] = {"/": set()}
    for path, item in items.items():
        if item.dir is not None:
            children.setdefault(path, set())
        below, is_new = path, True
        while below != "/" and is_new:
            parent, name = posixpath.split(below)
            is_new = parent not in children
            children.setdefault(parent, set()).add(name)
            below = parent
    return children


def _refusal(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
