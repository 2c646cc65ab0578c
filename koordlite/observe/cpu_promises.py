"""The CPUs that pods have by Koordinator's annotation, from one round to the next and from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from koordlite.host import cpu_promises
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError, Problem


class CPUPromises:
    """Remembers who holds what. Without a folder it is forgotten with the run."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.problems: tuple[Problem, ...] = ()
        """Why the promises of an earlier run are not known, or those of this one cannot be kept."""
        self.by_uid: Mapping[str, CPUSet] = {}
        try:
            self.by_uid = cpu_promises.read(folder) if folder else {}
        except InputError as error:
            self.problems = tuple(error.problems)
        self._kept = self.by_uid

    def keep(self, promises: Mapping[str, CPUSet], *, complete: bool) -> None:
        """Take `promises`; until the pods are `complete`, those of pods that are not known yet stay too.

        They are written where they differ from what is kept. A folder that cannot be written is reported, and tried
        again.
        """
        self.by_uid = promises if complete else {**self.by_uid, **promises}
        if not self._folder or self.by_uid == self._kept:
            return
        try:
            cpu_promises.write(self._folder, self.by_uid)
        except OSError as error:
            do = "make room or make it writable; until then a restart gives a CPU that two pods name to the older one"
            self.problems = (Problem(str(self._folder / cpu_promises.NAME), "file", "", str(error), do),)
            return
        self._kept, self.problems = self.by_uid, ()
