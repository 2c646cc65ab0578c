"""Put back what was found: the undo journal read backwards, every state on the way as legal as on the way there."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Iterable, Sequence

from koordlite import plan
from koordlite.apply import writer
from koordlite.host import procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.host.cgroupfs import vanished
from koordlite.host.journal import Entry, FileEntry, GroupMade, Journal, NodeResource, TasksMoved
from koordlite.model.decision import CgroupChange, CgroupField, NodeResourceChange
from koordlite.model.outcome import AppliedStep
from koordlite.model.snapshot import Cgroup
from koordlite.ports import Cluster

_RESCTRL = "resctrl/"


def restore(host: Host, journal: Journal, cluster: Cluster | None = None) -> tuple[AppliedStep, ...]:
    """Undo every entry and forget those that were undone; what is refused stays in the journal for the next try.

    Without `cluster` only the kernel's files are restored: at a start, the Node's resources are ours again in a moment.
    """
    entries = journal.entries
    steps = [
        *_cgroups(host, [e for e in entries if isinstance(e, FileEntry) and not e.group.startswith(_RESCTRL)]),
        *(_task(host, e) for e in entries if isinstance(e, TasksMoved)),
        *(_schemata(host, e) for e in entries if isinstance(e, FileEntry) and e.group.startswith(_RESCTRL)),
        *(_group(host, e) for e in entries if isinstance(e, GroupMade)),
        *(_node(cluster, [e for e in entries if isinstance(e, NodeResource)]) if cluster else ()),
    ]
    refused = {step.place for step in steps if not step.ok}
    journal.forget({step.place for step in steps} - refused)
    return tuple(steps)


def undo_list(host: Host, entries: Iterable[Entry]) -> list[tuple[str, str, str]]:
    """(place, present value, value to put back) of each entry, for `restore --dry-run`."""
    return [(entry.place, _present(host, entry), _found(entry)) for entry in entries]


def _present(host: Host, entry: Entry) -> str:
    try:
        match entry:
            case FileEntry(group=group) if group.startswith(_RESCTRL):
                return host.resctrl.schemata_raw(group.removeprefix(_RESCTRL), entry.field).decode().strip()
            case FileEntry(group=group, field=field):
                return host.cgroups.read_raw(group, field).decode().strip()
            case TasksMoved(tid=tid):
                return host.resctrl.group_of(tid) or "root group"
    except (OSError, KeyError):
        return writer.GONE
    return "ours"


def _found(entry: Entry) -> str:
    match entry:
        case FileEntry(text=text):
            return text.strip() or "(empty)"
        case GroupMade():
            return "(removed)"
        case TasksMoved(group=group):
            return group or "root group"
        case NodeResource(previous=previous):
            return "(removed)" if previous is None else str(previous)
    return str(entry.previous)


def _cgroups(host: Host, entries: Sequence[FileEntry]) -> list[AppliedStep]:
    """Values back in legal order. The last write of each file is of the very bytes that were found."""
    present = {entry.group: state for entry in entries if (state := _state(host, entry.group)) is not None}
    found = {entry.place: entry for entry in entries}
    wanted = [_change(host, entry) for entry in entries if entry.group in present]
    steps = plan.order(wanted, present)
    final = {change.place: change for change in steps}
    done = [
        _final(host, found[c.place]) if final[c.place] is c else writer.write(host, c)
        for c in steps
        if isinstance(c, CgroupChange)
    ]
    untouched = [AppliedStep(place, "already so" if e.group in present else writer.GONE) for place, e in found.items()]
    return [*done, *(step for step in untouched if step.place not in final)]


def _change(host: Host, entry: FileEntry) -> CgroupChange:
    field: CgroupField = "cpu.quota" if entry.field == "cpu.quota" else "cpuset.cpus"
    return CgroupChange(entry.group, field, host.cgroups.decode(field, entry.raw))


def _final(host: Host, entry: FileEntry) -> AppliedStep:
    try:
        host.cgroups.write_raw(entry.group, entry.field, entry.raw.rstrip(b"\n") or b"\n")
    except OSError as error:
        if error.errno == errno.ENOSPC and not entry.raw.strip():
            return _inherit(host, entry)
        if vanished(error):
            return AppliedStep(entry.place, writer.GONE)
        return AppliedStep(entry.place, _found(entry), False, writer.words(error))
    return AppliedStep(entry.place, _found(entry))


def _inherit(host: Host, entry: FileEntry) -> AppliedStep:
    """No kernel takes an empty set back while there are tasks in a group; all possible CPUs give it the same CPUs,
    those of its parent, also when some go offline or come back."""
    everything = sysfs.possible(host.files)
    step = writer.write(host, CgroupChange(entry.group, "cpuset.cpus", everything))
    return dataclasses.replace(step, value=f"{everything} (inherits; the kernel takes no empty set here)")


def _state(host: Host, group: str) -> Cgroup | None:
    try:
        return host.cgroups.state(group)
    except OSError as error:
        if vanished(error):
            return None
        raise


def _task(host: Host, entry: TasksMoved) -> AppliedStep:
    """A thread id that was given to another thread since is left alone."""
    if procfs.start_time(host.files, entry.tid) != entry.start_time:
        return AppliedStep(entry.place, writer.GONE)
    return _try(entry.place, _found(entry), lambda: host.resctrl.move(entry.group, (entry.tid,)))


def _schemata(host: Host, entry: FileEntry) -> AppliedStep:
    group = entry.group.removeprefix(_RESCTRL)
    return _try(entry.place, _found(entry), lambda: host.resctrl.write_raw(group, entry.raw))


def _group(host: Host, entry: GroupMade) -> AppliedStep:
    return _try(entry.place, "removed", lambda: host.resctrl.remove_group(entry.group))


def _try(place: str, value: str, act: Callable[[], object]) -> AppliedStep:
    try:
        act()
    except OSError as error:
        if vanished(error):
            return AppliedStep(place, writer.GONE)
        return AppliedStep(place, value, False, writer.words(error))
    return AppliedStep(place, value)


def _node(cluster: Cluster, entries: Sequence[NodeResource]) -> list[AppliedStep]:
    if not entries:
        return []
    error = ""
    try:
        cluster.publish([NodeResourceChange(entry.resource, entry.previous) for entry in entries])
    except OSError as refused:
        error = writer.words(refused)
    return [AppliedStep(entry.place, _found(entry), not error, error) for entry in entries]
