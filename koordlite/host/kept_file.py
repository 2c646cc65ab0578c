"""Values kept in the state folder, so that a restart does not lose them: one file each, replaced as a whole.

They live as long as the folder: on tmpfs they end with the boot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from koordlite.host import state_folder
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import UNREADABLE, InputError, Problem
from koordlite.model.slo.settings import GoodDocument

T = TypeVar("T")
CPU_PROMISES, GOOD_SETTINGS, PREDICTIONS = "cpu-promises.json", "good-settings.json", "predictions.json"


def read(path: Path, decode: Callable[[bytes], T], *, do: str) -> T | None:
    """The value; None when nothing was kept yet. InputError says what to `do` when the file cannot be read."""
    raw = b""
    try:
        raw = state_folder.read(path)
        return decode(raw)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        text = raw[:80].decode(errors="replace")
        raise InputError(Problem(str(path), "file", text, str(error), do)) from error


class KeptFile(Generic[T]):
    """One value, from one round to the next and from one run to the next. Without a folder it ends with the run."""

    def __init__(
        self,
        path: Path | None,
        empty: T,
        *,
        decode: Callable[[bytes], T],
        encode: Callable[[T], object],
        unreadable: str,
        unwritable: str,
    ) -> None:
        """`encode` gives what JSON is made of; the last two say what to do."""
        self._path, self._encode, self._unwritable = path, encode, unwritable
        self.problems: tuple[Problem, ...] = ()
        """Reasons why the file cannot be read or written."""
        self.value = empty
        try:
            value = read(path, decode, do=unreadable) if path else None
            self.value = empty if value is None else value
        except InputError as error:
            self.problems = tuple(error.problems)
        self._on_disk = self.value

    def keep(self, value: T) -> None:
        """Take `value`, and write it where it differs from what is kept. A folder that cannot be written is reported,
        and tried again."""
        self.value = value
        if self._path is None or value == self._on_disk:
            return
        try:
            state_folder.replace(self._path, msgspec.json.format(msgspec.json.encode(self._encode(value)), indent=1))
        except OSError as error:
            self.problems = (Problem(str(self._path), "file", "", str(error), self._unwritable),)
            return
        self._on_disk, self.problems = value, ()


class _Promises(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pods: dict[str, str]


class _Documents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    documents: dict[str, GoodDocument]


def cpu_promises(folder: Path | None) -> KeptFile[Mapping[str, CPUSet]]:
    """The CPUs that pods have by Koordinator's annotation, by uid: a restart knows who was first. They are written
    before the first CPU set is."""
    return KeptFile(
        folder and folder / CPU_PROMISES,
        {},
        decode=lambda raw: {
            uid: CPUSet.parse(text) for uid, text in msgspec.json.decode(raw, type=_Promises).pods.items()
        },
        encode=lambda promises: _Promises({uid: str(promises[uid]) for uid in sorted(promises)}),
        unreadable="nothing: the next promise replaces it; until then of two pods that name one CPU the older has it",
        unwritable="make room or make it writable; until then a restart gives a CPU named twice to the older pod",
    )


def good_settings(folder: Path | None) -> KeptFile[Mapping[str, GoodDocument]]:
    """The last good document of each key of the settings."""
    return KeptFile(
        folder and folder / GOOD_SETTINGS,
        {},
        decode=lambda raw: msgspec.json.decode(raw, type=_Documents).documents,
        encode=lambda documents: _Documents(dict(documents)),
        unreadable="remove it; until the next change of the settings a restart falls back to the defaults",
        unwritable="make room or make it writable; until then a restart with broken settings falls back to older ones",
    )
