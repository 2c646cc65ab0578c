"""The files of a node with hooks, for tests in which some refuse, read as something else or are counted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence

from koordlite.ports import Files

Hook = Callable[[str, str], object]


class Killed(BaseException):
    """What a kill -9 is to the code it hits: nothing may catch it."""


def nothing(call: str, path: str) -> None:
    """Let every call through."""


def unchanged(path: str, content: bytes) -> bytes:
    """Read what the file holds."""
    return content


def killed_at(number: int) -> Callable[..., None]:
    """Count steps of whatever kind; die at step `number`."""
    steps = itertools.count()

    def step(*_: object) -> None:
        if next(steps) == number:
            raise Killed

    return step


class HookedFiles:
    """Forward to `files`.

    `change` is called with call and path ahead of every write, mkdir and rmdir, `look` ahead of every read and list;
    both may raise. `content` turns what a file holds into what is read from it. Hooks may be replaced at any time.
    """

    def __init__(
        self,
        files: Files,
        change: Hook = nothing,
        look: Hook = nothing,
        content: Callable[[str, bytes], bytes] = unchanged,
    ) -> None:
        self._files, self.change, self.look, self.content = files, change, look, content

    def read(self, path: str) -> bytes:
        self.look("read", path)
        return self.content(path, self._files.read(path))

    def write(self, path: str, data: bytes) -> None:
        self.change("write", path)
        self._files.write(path, data)

    def list(self, path: str) -> Sequence[str]:
        self.look("list", path)
        return self._files.list(path)

    def mkdir(self, path: str) -> None:
        self.change("mkdir", path)
        self._files.mkdir(path)

    def rmdir(self, path: str) -> None:
        self.change("rmdir", path)
        self._files.rmdir(path)


def refusing(part: str, code: int) -> Hook:
    """Refuse every call for a path that contains `part`."""

    def hook(call: str, path: str) -> None:
        if part in path:
            raise OSError(code, os.strerror(code), path)

    return hook
