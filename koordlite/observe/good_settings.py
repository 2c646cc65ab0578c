"""The last good document of each key of the settings, from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from koordlite.host import good_settings
from koordlite.model.errors import InputError, Problem
from koordlite.model.slo.settings import SLO, GoodDocument


class GoodSettings:
    """Reads once what an earlier run kept, and keeps what changes. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.problems: tuple[Problem, ...] = ()
        """Why nothing can be kept, or what was kept cannot be read."""
        self._kept: Mapping[str, GoodDocument] = {}
        try:
            self._kept = good_settings.read(folder) if folder else {}
        except InputError as error:
            self.problems = tuple(error.problems)
        self.earlier = SLO(good=self._kept) if self._kept else None
        """Settings that hold nothing but the documents of an earlier run."""

    def keep(self, documents: Mapping[str, GoodDocument]) -> None:
        """Write them where they differ from what is kept. A folder that cannot be written is reported, and tried
        again."""
        if not self._folder or documents == self._kept:
            return
        try:
            good_settings.write(self._folder, documents)
        except OSError as error:
            do = "make room or make it writable; until then a restart with broken settings falls back to older ones"
            self.problems = (Problem(str(self._folder / good_settings.NAME), "file", "", str(error), do),)
            return
        self._kept, self.problems = documents, ()
