"""The CPUs that pods have by Koordinator's annotation, kept in the state folder so that a restart knows who was first.

One file, replaced as a whole before the first CPU set is written. It lives as long as the folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from koordlite.host import state_folder
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError, Problem

NAME = "cpu-promises.json"


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pods: dict[str, str]


def read(folder: Path) -> Mapping[str, CPUSet]:
    """The CPUs by pod uid; none when nothing was kept yet. InputError when the file cannot be read."""
    path = folder / NAME
    try:
        content = msgspec.json.decode(state_folder.read(path), type=_Content)
        return {uid: CPUSet.parse(text) for uid, text in content.pods.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        do = "nothing: the next promise replaces it; of two pods that name one CPU the older one has it until then"
        raise InputError(Problem(str(path), "file", "", str(error), do)) from error


def write(folder: Path, promises: Mapping[str, CPUSet]) -> None:
    """Keep these in place of what was kept. OSError when the folder cannot be written."""
    content = _Content({uid: str(promises[uid]) for uid in sorted(promises)})
    state_folder.replace(folder / NAME, msgspec.json.format(msgspec.json.encode(content), indent=1))
