"""Put back what was found: the undo journal read backwards, every state on the way as legal as on the way there."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Collection, Iterable, Sequence

from koordlite import plan
from koordlite.apply import inherited, promises, writer
from koordlite.host import procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.host.cgroupfs import vanished
from koordlite.host.journal import ClusterEntry, Entry, FileEntry, GroupMade, Journal, TasksMoved, TopologyNote
from koordlite.model.decision import CgroupChange, CgroupField
from koordlite.model.outcome import AppliedStep
from koordlite.model.snapshot import Cgroup
from koordlite.ports import Cluster

_RESCTRL = "resctrl/"


def restore(
    host: Host, journal: Journal, cluster: Cluster | None = None, *, staying: Collection[str] = ()
) -> tuple[AppliedStep, ...]:
    """Undo every entry and forget those that were undone; what is refused stays in the journal for the next try.

    Without `cluster` only the kernel's files are restored. What the strategies `staying` promised on the Node is not
    taken back: at a start, it is ours again in a moment.
    """
    entries = journal.entries
    promised = [e for e in entries if isinstance(e, ClusterEntry) and e.strategy not in staying]
    steps = [
        *_cgroups(host, [e for e in entries if isinstance(e, FileEntry) and not e.group.startswith(_RESCTRL)]),
        *(_task(host, e) for e in entries if isinstance(e, TasksMoved)),
        *(_schemata(host, e) for e in entries if isinstance(e, FileEntry) and e.group.startswith(_RESCTRL)),
        *(_group(host, e) for e in entries if isinstance(e, GroupMade)),
        *(promises.take_back(cluster, promised) if cluster else ()),
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
        case TopologyNote(previous=previous):
            return previous or "(removed)"
        case _:
            return promises.describe(entry)


def _cgroups(host: Host, entries: Sequence[FileEntry]) -> list[AppliedStep]:
    """Values back in legal order. The last write of each file is of the very bytes that were found."""
    present = {entry.group: state for entry in entries if (state := _state(host, entry.group)) is not None}
    found = {entry.place: entry for entry in entries}
    wanted = [_change(host, entry) for entry in entries if entry.group in present]
    sets = {entry.group: entry for entry in entries if entry.field == inherited.FIELD}
    for change, state in inherited.copies(host, sets, dict(present)):
        wanted.append(change)
        present[change.group] = state
    steps = plan.order(wanted, present)
    final = {change.place: change for change in steps}
    done = [
        _final(host, found[c.place]) if final[c.place] is c and c.place in found else writer.write(host, c)
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
