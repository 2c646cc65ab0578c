"""Limits and weights of a cgroup at one disk. One entry a disk and field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec

from koordlite.apply.kind import Kind, Work
from koordlite.changes.block_device import BlockChange
from koordlite.formulas.blkio import UNSET
from koordlite.host import block
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import FileEntry
from koordlite.model.picture.blocks import BlockField
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep


class BlockDevice(Kind[BlockChange, FileEntry]):
    """A disk without a line has what the kernel gives it."""

    change = BlockChange
    undo_rank = 20
    needs_entry = True

    def originals(self, change: BlockChange, strategy: str, work: Work) -> Iterator[FileEntry]:
        """The line of the disk."""
        host = work.host
        if change.place in work.noted:
            return
        lines = block.read(host.files, host.cgroups, change.group, change.field)
        if lines is not None:
            yield FileEntry.of(
                path=block.path(host.cgroups, change.group, change.field),
                group=f"io:{change.group}",
                field=f"{change.device}/{change.field}",
                raw=lines.get(change.device, UNSET[change.field]).encode(),
                found_at=host.clock.wall(),
                strategy=strategy,
            )

    def write(self, change: BlockChange, work: Work) -> AppliedStep:
        """Write the change; the value found before, where the change asks for that."""
        entry = work.journal.by_place.get(change.place)
        if change.value is None and isinstance(entry, FileEntry):
            change = msgspec.structs.replace(change, value=entry.text)
        return super().write(change, work)

    def set(self, host: Host, change: BlockChange) -> None:
        """Write the line of the disk."""
        line = change.device, change.value or UNSET[change.field]
        block.write(host.files, host.cgroups, change.group, change.field, line)

    def is_gone(self, host: Host, change: BlockChange, error: OSError) -> bool:
        """Gone or ended with its group."""
        return vanished(error) and not host.cgroups.exists(change.group)

    def has_ended(self, entry: FileEntry, host: Host, snapshot: Snapshot) -> bool:
        """Gone or ended with its group."""
        return not host.cgroups.exists(_undoing(entry).group)

    def _put_back(self, entry: FileEntry, host: Host) -> AppliedStep:
        return self.put(host, _undoing(entry))

    def present(self, entry: FileEntry, host: Host) -> str | None:
        """The line of the disk."""
        change = _undoing(entry)
        lines = block.read(host.files, host.cgroups, change.group, change.field)
        return None if lines is None else lines.get(change.device, UNSET[change.field])


def _undoing(entry: FileEntry) -> BlockChange:
    group, device, field = entry.place.parts
    return BlockChange(group, device, cast(BlockField, field), entry.text, gives_back=True)


KIND = BlockDevice()
