"""What groups have of disks: what was found before us, the write, and the way back. One entry a disk and field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeGuard, cast

from koordlite.changes import block_device
from koordlite.changes.block_device import BlockChange
from koordlite.formulas.blkio import UNSET
from koordlite.host.block import files
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import Entry, FileEntry
from koordlite.model.picture.blocks import BlockField
from koordlite.model.place import Place


def entries(host: Host, change: BlockChange, strategy: str) -> Iterator[FileEntry]:
    """What stands where `change` is about to write for the first time; a disk without a line has the kernel's own."""
    found = files.read(host.files, host.cgroups, change.group, change.field)
    if found is not None:
        yield FileEntry.of(
            path=files.path(host.cgroups, change.group, change.field),
            group=f"io:{change.group}",
            field=f"{change.device}/{change.field}",
            raw=found.get(change.device, UNSET[change.field]).encode(),
            found_at=host.clock.wall(),
            strategy=strategy,
        )


def with_value(change: BlockChange, kept: Mapping[Place, Entry]) -> BlockChange:
    """The change with what was found, where it asks for that."""
    entry = kept.get(change.place)
    if change.value is None and isinstance(entry, FileEntry):
        return dataclasses.replace(change, value=entry.text)
    return change


def write(host: Host, change: BlockChange) -> None:
    """Carry out one change."""
    line = change.device, change.value or UNSET[change.field]
    files.write(host.files, host.cgroups, change.group, change.field, line)


def is_ours(entry: Entry) -> TypeGuard[FileEntry]:
    """Whether the entry is of a disk."""
    return isinstance(entry, FileEntry) and entry.place.kind is block_device.PLACE


def undo(entry: FileEntry) -> BlockChange:
    """The change that puts back what the entry holds."""
    group, device, field = entry.place.parts
    return BlockChange(group, device, cast(BlockField, field), entry.text, gives_back=True)


def present(host: Host, entry: FileEntry) -> str | None:
    """What stands there at this moment; None when the group is gone."""
    change = undo(entry)
    found = files.read(host.files, host.cgroups, change.group, change.field)
    return None if found is None else found.get(change.device, UNSET[change.field])


def ended(host: Host, entry: FileEntry) -> bool:
    """Whether the group is gone, and what it had with it."""
    return not host.cgroups.exists(undo(entry).group)
