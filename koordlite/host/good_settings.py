"""The last good document of each key of the settings, kept in the state folder so that a restart does not lose it.

One file, replaced as a whole when a document changes. It lives as long as the folder: on tmpfs it ends with the boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from koordlite.host import state_folder
from koordlite.model.errors import UNREADABLE, InputError, Problem
from koordlite.model.slo.settings import GoodDocument

NAME = "good-settings.json"


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    documents: dict[str, GoodDocument]


def read(folder: Path) -> Mapping[str, GoodDocument]:
    """The documents by key; none when nothing was kept yet. InputError when the file cannot be read."""
    path = folder / NAME
    try:
        return msgspec.json.decode(state_folder.read(path), type=_Content).documents
    except FileNotFoundError:
        return {}
    except (OSError, *UNREADABLE) as error:
        do = "remove it; until the next change of the settings a restart falls back to the defaults"
        raise InputError(Problem(str(path), "file", "", str(error), do)) from error


def write(folder: Path, documents: Mapping[str, GoodDocument]) -> None:
    """Keep these in place of what was kept. OSError when the folder cannot be written."""
    raw = msgspec.json.format(msgspec.json.encode(_Content(dict(documents))), indent=1)
    state_folder.replace(folder / NAME, raw)
