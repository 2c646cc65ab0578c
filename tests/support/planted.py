"""Real files in a folder that stand for those of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from koordlite.host.files import RealFiles


class Rooted:
    """Real files below a folder, by the absolute paths they would have on the machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.real = RealFiles()
        self.writes: list[tuple[str, bytes]] = []

    def plant(self, tree: Mapping[str, str]) -> Rooted:
        for path, content in tree.items():
            (self.root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path.lstrip("/")).write_text(content)
        return self

    def folder(self, *paths: str) -> Rooted:
        for path in paths:
            (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return self

    def at(self, path: str) -> str:
        return f"{self.root}{path}"

    def read(self, path: str) -> bytes:
        return self.real.read(self.at(path))

    def write(self, path: str, data: bytes) -> None:
        self.real.write(self.at(path), data)
        self.writes.append((path, data))

    def list(self, path: str) -> Sequence[str]:
        return self.real.list(self.at(path))

    def mkdir(self, path: str) -> None:
        self.real.mkdir(self.at(path))

    def rmdir(self, path: str) -> None:
        self.real.rmdir(self.at(path))
