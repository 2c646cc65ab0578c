"""The values of one resource of a resctrl group."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply import resctrl_undo
from koordlite.apply.kind import Work
from koordlite.apply.resctrl_kind import InGroup, is_ours
from koordlite.changes.resctrl_schemata import PLACE, SchemataChange
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import FileEntry


class ResctrlSchemata(InGroup[SchemataChange, FileEntry]):
    """The line of the resource."""

    change = SchemataChange
    places = (PLACE,)

    def found(self, change: SchemataChange, strategy: str, work: Work) -> Iterator[FileEntry]:
        """The line of a foreign group."""
        if change.place not in work.noted and not is_ours(change.group, work.noted):
            resctrl = work.host.resctrl
            yield FileEntry.of(
                path=f"{resctrl.root}/{change.group}/schemata",
                group=f"{resctrl_undo.PREFIX}{change.group}",
                field=change.resource,
                raw=resctrl.schemata_raw(change.group, change.resource),
                found_at=work.host.clock.wall(),
                strategy=strategy,
            )

    def set(self, host: Host, change: SchemataChange) -> str:
        """The line."""
        host.resctrl.write_schemata(change.group, {change.resource: change.values})
        return change.describe()

    def present(self, entry: FileEntry, host: Host) -> str | None:
        """The line."""
        group = entry.group.removeprefix(resctrl_undo.PREFIX)
        return host.resctrl.schemata_raw(group, entry.field).decode().strip()


KIND = ResctrlSchemata()
