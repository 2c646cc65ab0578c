"""A setting of the whole kernel."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply.kind import Kind, Work
from koordlite.changes.system_file import PLACE, SystemFileChange
from koordlite.formulas.system_settings import FEATURES
from koordlite.host import system_files
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import FileEntry
from koordlite.model.picture.groups import Found
from koordlite.model.status import AppliedStep

_GROUP = "system"
"""What stands in place of a cgroup in the entries."""


class SystemFile(Kind[SystemFileChange, FileEntry]):
    """Numbers, and features of the scheduler, which are words."""

    change = SystemFileChange
    places = (PLACE,)

    def found(self, change: SystemFileChange, strategy: str, work: Work) -> Iterator[FileEntry]:
        """The text; nothing where this kernel has no such setting."""
        host = work.host
        text = None if change.place in work.noted else system_files.read(host.files, change.name)
        if text is None:
            return
        if not _is_feature(change.name):
            int(text)  # ValueError: later, what is not a number would look like a value of ours.
        yield FileEntry.of(
            path=system_files.path(host.files, change.name),
            group=_GROUP,
            field=change.name,
            raw=text.encode(),
            found_at=host.clock.wall(),
            strategy=strategy,
        )

    def set(self, host: Host, change: SystemFileChange) -> str:
        """The text."""
        system_files.write(host.files, change.name, change.value)
        return change.describe()

    def value_before(self, entry: FileEntry, host: Host) -> Found | None:
        """Of a feature of the scheduler 1 for on, 0 for off."""
        value = int(not entry.text.startswith("NO_")) if _is_feature(entry.field) else int(entry.text)
        return Found(value, entry.strategy)

    def _put_back(self, entry: FileEntry, host: Host) -> AppliedStep:
        return self.put(host, SystemFileChange(entry.field, entry.text))

    def present(self, entry: FileEntry, host: Host) -> str | None:
        """The text."""
        return system_files.read(host.files, entry.field)


def _is_feature(name: str) -> bool:
    return name.startswith(f"{FEATURES}/")


KIND = SystemFile()
