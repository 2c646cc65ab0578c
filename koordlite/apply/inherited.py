"""Groups born below a set of ours: kubelet and runtimes copy the parent's set into a new v1 group, and it stays there.

What is found in such a group is not what would stand there without us; that is what its parent had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from koordlite.host.bundle import Host
from koordlite.host.cgroupfs import vanished
from koordlite.host.journal import Entry, FileEntry
from koordlite.model.decision import CgroupChange, CgroupField
from koordlite.model.snapshot import Cgroup

FIELD: CgroupField = "cpuset.cpus"


def found_before_us(host: Host, group: str, raw: bytes, entries: Mapping[str, Entry]) -> bytes:
    """What to note as found in `group`, where `raw` stands: the parent's noted value if `raw` is a copy of ours."""
    parent = group.rpartition("/")[0]
    noted = entries.get(f"{parent}/{FIELD}")
    if host.cgroups.layout.version != 1 or not isinstance(noted, FileEntry):
        return raw
    try:
        ours = host.cgroups.read_raw(parent, FIELD)
    except OSError as error:
        if vanished(error):
            return raw
        raise
    return noted.raw if raw.strip() == ours.strip() else raw


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
