"""Emulated nodes, and files that die, refuse or look over our shoulder."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.ports import Files

Make = Callable[..., Emulated]


class Killed(BaseException):
    """What a kill -9 is to the code it hits: nothing may catch it."""


class Watched:
    """The files of a node; `before` is called ahead of every change with (what, path), and may raise."""

    def __init__(self, files: Files, before: Callable[[str, str], None]) -> None:
        self._files, self._before = files, before

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def write(self, path: str, data: bytes) -> None:
        self._before("write", path)
        self._files.write(path, data)

    def list(self, path: str) -> Sequence[str]:
        return self._files.list(path)

    def mkdir(self, path: str) -> None:
        self._before("mkdir", path)
        self._files.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._before("rmdir", path)
        self._files.rmdir(path)


def refusing(part: str, code: int) -> Callable[[str, str], None]:
    """Refuse every change of a path that contains `part`."""

    def before(what: str, path: str) -> None:
        if part in path:
            raise OSError(code, os.strerror(code), path)

    return before


class Wrap:
    """The wrappers, for tests: pytest gives fixtures, not imports."""

    Killed = Killed
    Watched = Watched
    refusing = staticmethod(refusing)
    EBUSY, EROFS, EACCES, EINVAL = errno.EBUSY, errno.EROFS, errno.EACCES, errno.EINVAL


@pytest.fixture(scope="session")
def wrap() -> Wrap:
    """Ways in which files misbehave."""
    return Wrap()


@pytest.fixture
def emulate(tmp_path: Path) -> Make:
    """A machine of a shape with a pinned pod, a service and best-effort work, and a reserved CPU."""

    def make(shape: str, name: str = "one") -> Emulated:
        (tmp_path / name).mkdir()
        node = Emulated(shape, tmp_path / name)
        node.node(reservation='{"reservedCPUs":"0"}')
        node.pod("web", "LS", f"{node.cpus * 250}m")
        node.pod("pinned", "LSR", "500m", status='{"cpuset":"1"}')
        node.pod("crunch", "BE", "greedy")
        return node

    return make
