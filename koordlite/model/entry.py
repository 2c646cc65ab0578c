"""An entry of the undo journal: what stood in one place before us. A kind of change has its own form of it,
in its module in `koordlite.changes`; kinds that write files of the kernel share `host.journal.file.FileEntry`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from koordlite.model.change import Change
from koordlite.model.place import Place


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Value in one place before our first write. The tag of a class is its name in the file, for ever."""

    dies_with_boot: ClassVar[bool] = True
    """Whether it means nothing after the machine was started again."""

    @property
    def strategy(self) -> str:
        """Strategy that wrote first; empty where that is not known."""
        return ""

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that it names, below their root. An entry that names others counts as damaged."""
        return ()

    @property
    def place(self) -> Place:
        """The place as the change of its kind names it."""
        raise NotImplementedError

    def describe(self) -> str:
        """Value that comes back, in one line."""
        raise NotImplementedError

    def undoing(self) -> Change:
        """The change that puts it back, where one change does."""
        raise NotImplementedError
