"""Files by path, in memory: for tests of one reader or writer that need no machine around it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence


class MemoryFiles:
    """Files of these contents, absent where there is none, and empty `folders`. Nothing can be made or removed."""

    def __init__(self, files: Mapping[str, str | bytes | None], folders: Sequence[str] = ()) -> None:
        contents = {path: content for path, content in files.items() if content is not None}
        self.files = {path: text.encode() if isinstance(text, str) else text for path, text in contents.items()}
        self.folders = folders
        self.writes: list[tuple[str, bytes]] = []

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.files[path]

    def write(self, path: str, data: bytes) -> None:
        self.read(path)
        self.files[path] = data
        self.writes.append((path, data))

    def list(self, path: str) -> Sequence[str]:
        paths = [*self.files, *(f"{folder}/" for folder in self.folders)]
        below = [other.removeprefix(f"{path}/").partition("/") for other in paths if other.startswith(f"{path}/")]
        if not below:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return sorted({f"{head}{slash}" for head, slash, _ in below if head})

    def mkdir(self, path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    rmdir = mkdir
