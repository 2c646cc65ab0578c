"""Entries whose group or thread has ended: there is nothing left to put back, and pods come and go for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordlite.apply import kinds
from koordlite.host.bundle import Host
from koordlite.model.entry import Entry
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot


def places(host: Host, entries: Iterable[Entry], seen: Snapshot) -> Iterator[Place]:
    """The places among `entries` that do not exist any more; none when kubelet's whole tree is out of sight."""
    if seen.layout.kubepods in seen.cgroups:
        yield from (entry.place for entry in entries if kinds.of_entry(entry).has_ended(entry, host, seen))
