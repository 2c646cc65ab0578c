"""Traces as entries of the undo journal: as if koordlite had found what kubelet writes, and had written the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from koordlite.adopt.traces import Trace
from koordlite.changes import cgroup, published, resctrl
from koordlite.changes.published import NodeAnnotation, NodeResource, ZoneAmount
from koordlite.changes.resctrl import GroupMade
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.change import Entry
from koordlite.model.cpuset import CPUSet


def seed(host: Host, journal: Journal, traces: Iterable[Trace]) -> tuple[Trace, ...]:
    """Note what stands in each place without koordlet; the traces that were noted. Places that the journal has already
    keep their entry. JournalError when the journal cannot be written: then nothing was adopted."""
    fresh = tuple(trace for trace in traces if trace.place not in journal.places)
    journal.record(entry for trace in fresh for entry in _entry(host, trace))
    return fresh


def _entry(host: Host, trace: Trace) -> Iterator[Entry]:
    place, strategy = trace.place, trace.strategy
    if place.kind is cgroup.PLACE:
        assert trace.before is not None
        yield _file(host, trace, trace.before)
    elif place.kind is resctrl.GROUP:
        yield GroupMade(group=place.part("group"))
    elif place.kind is published.NODE_RESOURCE:
        yield NodeResource(resource=place.part("resource"), previous=None, strategy=strategy)
    elif place.kind is published.NODE_ANNOTATION:
        yield NodeAnnotation(key=place.part("key"), previous=None, strategy=strategy)
    elif place.kind is published.ZONE_RESOURCE:
        parts = {"zone": place.part("zone"), "resource": place.part("resource")}
        yield ZoneAmount(**parts, previous=None, strategy=strategy)


def _file(host: Host, trace: Trace, before: CPUSet | int) -> FileEntry:
    group, field = trace.place.part("cgroup"), cast(CgroupField, trace.place.part("field"))
    path, raw = host.cgroups.path(group, field), _raw(host, group, field, before)
    wall = host.clock.wall()
    return FileEntry.of(path=path, group=group, field=field, raw=raw, found_at=wall, strategy=trace.strategy)


def _raw(host: Host, group: str, field: CgroupField, before: CPUSet | int) -> bytes:
    """The text that the kernel would show."""
    text = host.cgroups.encode(field, before).rstrip(b"\n")
    if field == "cpu.quota" and host.cgroups.layout.version == 2:
        text += b" %d" % host.cgroups.state(group).period_us
    return text + b"\n"
