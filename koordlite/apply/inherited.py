"""Groups born below a set of ours: kubelet and runtimes copy the parent's set into a new v1 group, and it stays there.

What is found in such a group is not what would stand there without us; that is what its parent had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from koordlite.host.bundle import Host
from koordlite.host.cgroupfs import vanished
from koordlite.host.journal import Entry, FileEntry
from koordlite.model.decision import CgroupChange, CgroupField
from koordlite.model.snapshot import Cgroup, Snapshot

FIELD: CgroupField = "cpuset.cpus"


def found_before_us(host: Host, group: str, raw: bytes, entries: Mapping[str, Entry]) -> bytes:
    """What to note as found in `group`, where `raw` stands: if that is a copy of ours, what was noted for the nearest
    group above that has an entry.

    A pod that began a moment ago has no entry of its own, and its containers copied what it had copied.
    """
    parent = group.rpartition("/")[0]
    if host.cgroups.layout.version != 1 or not parent:
        return raw
    above = host.cgroups.read_present(parent, FIELD)
    if above is None or raw.strip() != above.strip():
        return raw
    noted = entries.get(f"{parent}/{FIELD}")
    return noted.raw if isinstance(noted, FileEntry) else found_before_us(host, parent, raw, entries)


def left_behind(
    host: Host, moved: Collection[str], seen: Snapshot, entries: Mapping[str, Entry]
) -> Iterator[FileEntry]:
    """Entries for groups that copied a set of ours and keep it while a group above them, one of `moved`, goes on.

    Afterwards nothing would tell their set from one of their own.
    """
    if host.cgroups.layout.version != 1:
        return
    for group in seen.cgroups:
        above = any(group.startswith(f"{each}/") for each in moved)
        if above and group not in moved and f"{group}/{FIELD}" not in entries:
            yield from _if_copy(host, group, seen, entries)


def _if_copy(host: Host, group: str, seen: Snapshot, entries: Mapping[str, Entry]) -> Iterator[FileEntry]:
    raw = host.cgroups.read_present(group, FIELD)
    before = raw if raw is None else found_before_us(host, group, raw, entries)
    if before is not None and before != raw:
        path = host.cgroups.path(group, FIELD)
        yield FileEntry.of(path=path, group=group, field=FIELD, raw=before, found_at=host.clock.wall())


def copies(
    host: Host, noted: Mapping[str, FileEntry], present: Mapping[str, Cgroup]
) -> Iterator[tuple[CgroupChange, Cgroup]]:
    """Groups that no entry names but that hold a copy of a set of ours, with the value their parent gets back.

    `noted` are the entries of cpusets by group, `present` what stands in those groups.
    """
    if host.cgroups.layout.version != 1:
        return
    for group, entry in noted.items():
        if group in present:
            value = host.cgroups.decode(FIELD, entry.raw)
            for child, state in _unnoted(host, group, noted):
                if state.cpuset == present[group].cpuset:
                    yield CgroupChange(child, FIELD, value), state


def _unnoted(host: Host, group: str, noted: Mapping[str, FileEntry]) -> Iterator[tuple[str, Cgroup]]:
    """Groups below `group` down to those that have an entry of their own."""
    try:
        children = [f"{group}/{name}" for name in host.cgroups.children(group)]
        states = [(child, host.cgroups.state(child)) for child in children if child not in noted]
    except OSError as error:
        if vanished(error):
            return
        raise
    for child, state in states:
        yield child, state
        yield from _unnoted(host, child, noted)
