"""One picture with what it was taken from: a folder that `koordlite run --recorded` takes for a machine.

files.json       every file and folder that was looked at: content, or the kernel's refusal
cluster.msgpack  what the cluster sent, in the form of `record.codec`
moment.record    the picture itself and what was decided on it, as a flight record
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from koordlite.kube.folder.recorded import FixedCluster
from koordlite.ports import ClusterView, Files
from koordlite.record import codec
from koordlite.record.round_record import RecordError

FILES, CLUSTER, MOMENT = "files.json", "cluster.msgpack", "moment.record"
_OLDER = "cluster.json"
"""File with what the cluster sent, in captures of format 1."""
VERSION = 2
_SEEN, _UNREAD = "0o444", "0o000"


class Watching:
    """Files that remember what was asked of them and what came back; nothing can be changed through them."""

    def __init__(self, inner: Files) -> None:
        self._inner = inner
        self.items: dict[str, dict[str, object]] = {}
        """Items by path, in the form of `host.recorded`."""
        self.raw: dict[str, bytes] = {}
        """Contents that are no text, by path."""

    def read(self, path: str) -> bytes:
        """Same as `ports.Files`."""
        try:
            data = self._inner.read(path)
        except OSError as error:
            self._refused(path, error)
            raise
        try:
            self.items[path] = {"mode": _SEEN, "content": data.decode()}
        except UnicodeDecodeError:
            self.raw[path] = data
        return data

    def list(self, path: str) -> Sequence[str]:
        """Same as `ports.Files`."""
        try:
            names = self._inner.list(path)
        except OSError as error:
            self._refused(path, error)
            raise
        self.items[path] = {"dir": True}
        for name in names:
            item: dict[str, object] = {"dir": True} if name.endswith("/") else {"mode": _UNREAD}
            self.items.setdefault(posixpath.join(path, name.rstrip("/")), item)
        return names

    def write(self, path: str, data: bytes) -> None:
        """Always EROFS."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def mkdir(self, path: str) -> None:
        """Always EROFS."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def rmdir(self, path: str) -> None:
        """Always EROFS."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def _refused(self, path: str, error: OSError) -> None:
        """Leave out what is not there, so that it is not there again."""
        if error.errno not in (errno.ENOENT, errno.ENOTDIR) and error.errno is not None:
            self.items.setdefault(path, {"mode": _SEEN, "error": os.strerror(error.errno)})


def write(folder: Path, watching: Watching, view: ClusterView, mask: Callable[[Any], Any] | None = None) -> None:
    """Fill the new folder `folder`; `mask` gives texts and objects with pseudonyms. FileExistsError when it exists."""
    show = mask or (lambda value: value)
    folder.mkdir(mode=0o700)
    items = dict(sorted(watching.items.items()))
    for path, item in items.items():
        if isinstance(item.get("content"), str):
            items[path] = {**item, "content": show(item["content"])}
    (folder / FILES).write_bytes(msgspec.json.format(msgspec.json.encode(items), indent=1))
    for path, data in watching.raw.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    masked = msgspec.structs.replace(view, **{name: show(part) for name, part in msgspec.structs.asdict(view).items()})
    (folder / CLUSTER).write_bytes(codec.encode([VERSION, masked]))


def is_capture(folder: Path) -> bool:
    """Tell whether `folder` was written by `write`."""
    return (folder / FILES).is_file() and any((folder / name).is_file() for name in (CLUSTER, _OLDER))


class CapturedCluster(FixedCluster):
    """The cluster of a capture."""

    def __init__(self, folder: Path) -> None:
        """RecordError when the folder's file cannot be understood."""
        path = folder / CLUSTER
        if not path.exists() and (folder / _OLDER).exists():
            raise RecordError(f"{folder / _OLDER}: the capture is of an older format; take it again")
        try:
            version, view = codec.decode(path.read_bytes())
            if version != VERSION:
                raise RecordError(f"it has the format {version}, this koordlite reads format {VERSION}")
            super().__init__(codec.build_object(ClusterView, view), "captured", path)
        except (RecordError, TypeError, ValueError) as error:
            raise RecordError(f"{path}: this is no capture this version can read: {error}; take it again") from error
