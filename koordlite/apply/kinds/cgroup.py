"""A value of a cgroup: every state on the way back is as legal as on the way there."""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from koordlite import plan
from koordlite.apply import inherited
from koordlite.apply.inherited import ExclusiveCPUs
from koordlite.apply.kind import GONE, Kind, Undoing, Work
from koordlite.changes.cgroup import FIELDS, PLACE, UNLIMITED, CgroupChange
from koordlite.host import sysfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.fields import NUMBERS
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import FileEntry
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import kernel_words
from koordlite.model.picture.groups import Cgroup, Original
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep

_LISTS = ("cpuset.cpus", "cpuset.mems")
_QUOTA = "cpu.quota"
_CREATION_SECONDS = 600.0
"""Time after NRI has set a container's values in which its group may not be there yet: hooks run in between."""
_RELEASE_SECONDS = (0.002, 0.006, 0.012)
"""Pauses between tries of a quota that a removed group may be in the way of."""
_SETS = ("cpuSuppress", "cpusetPools", "craneCPUManager", "numaAffinity")
"""Strategies whose sets may be copied into a group when it is made."""


class CgroupValue(Kind[CgroupChange, FileEntry]):
    """A file of a group; the entry has the very bytes that were found."""

    change = CgroupChange
    undo_rank = 10
    needs_entry = True

    def stands(self, change: CgroupChange, work: Work) -> bool:
        """Compare with the picture."""
        cgroup = work.snapshot.cgroups.get(change.group)
        return cgroup is not None and stands(work.host, change, cgroup)

    def is_premature(self, change: CgroupChange, work: Work) -> bool:
        """Wait as long as kubelet has not written its own values into a new group. A set of CPUs does not wait: the
        kernel refuses to narrow the group above while this one keeps its own."""
        return change.field != inherited.FIELD and work.beginnings.is_waited_for(change.group, work.host, work.snapshot)

    def originals(self, change: CgroupChange, strategy: str, work: Work) -> Iterator[FileEntry]:
        """The bytes of the file."""
        if change.place in work.noted:
            return
        yield from _file(change.group, change.field, strategy, work)
        if change.field == "cpu.idle" and change.value and PLACE.place(change.group, "cpu.shares") not in work.noted:
            # An idle group loses its shares, and does not get them back when it stops being idle.
            yield from _file(change.group, "cpu.shares", strategy, work)

    def other_originals(self, changes: Sequence[CgroupChange], work: Work) -> Iterator[FileEntry]:
        """Groups that copied a set of ours."""
        moved = {change.group for change in changes if change.field == inherited.FIELD}
        return inherited.entries_of_copies(work.host, moved, work.snapshot, work.journal.by_place, work.recent_sets)

    def note(self, change: CgroupChange, step: AppliedStep, work: Work) -> None:
        """Take what the kernel makes of the value as ours from then on."""
        if step.value == GONE:
            work.foreign.forget(change.place)
        elif step.ok:
            work.recent_sets.wrote(change)
            settled = work.host.cgroups.settled(change.field, change.value)
            work.foreign.wrote(change if settled == change.value else msgspec.structs.replace(change, value=settled))
            if change.field == "cpu.idle":
                # The kernel itself changes the shares of a group that becomes idle or stops being idle.
                work.foreign.forget_value(PLACE.place(change.group, "cpu.shares"))

    def set(self, host: Host, change: CgroupChange) -> str | None:
        """An empty set means the parent's CPUs (or memory nodes) on v2, but no kernel takes it while the group has
        tasks: all possible ones mean the same."""
        try:
            host.cgroups.write(change.group, change.field, change.value)
        except OSError as error:
            if change.field == _QUOTA and error.errno == errno.EINVAL:
                _write_once_released(host, change)
            elif change.field in _LISTS and not change.value and error.errno == errno.ENOSPC:
                return _write_everything(host, change.group, change.field)
            else:
                raise
        return None

    def is_gone(self, host: Host, change: CgroupChange, error: OSError) -> bool:
        """Gone with its group; one that only lacks the file is there, and the refusal stands."""
        return vanished(error) and not host.cgroups.exists(change.group)

    def value_before(self, entry: FileEntry, host: Host) -> Original | None:
        """The value; None for a field that an earlier version wrote and this one does not know."""
        if entry.field not in FIELDS:
            return None
        return Original(host.cgroups.decode(entry.field, entry.raw), entry.strategy)

    def has_ended(self, entry: FileEntry, host: Host, snapshot: Snapshot) -> bool:
        """Ended with its group. A file that is there but cannot be read is not gone, and a runtime may still be about
        to make the group."""
        if entry.group in snapshot.cgroups or entry.field not in FIELDS:
            return False
        if entry.at_creation and host.clock.wall() - entry.found_at < _CREATION_SECONDS:
            return False
        try:
            host.cgroups.read_raw(entry.group, entry.field)
        except OSError as error:
            return vanished(error)
        return False

    def owners(self, entry: FileEntry) -> Collection[str]:
        """A set that was copied from one of ours when its group was made goes with those."""
        return (entry.strategy,) if entry.strategy else _SETS

    def undo(self, entries: Sequence[FileEntry], back: Undoing) -> Iterable[AppliedStep]:
        """Undo in legal order, copies of our sets included."""
        return _undo(back.host, entries, back.exclusive)

    def present(self, entry: FileEntry, host: Host) -> str | None:
        """The text of the file."""
        return host.cgroups.read_raw(entry.group, entry.field).decode().strip()

    def to_put_back(self, entries: Sequence[FileEntry], back: Undoing) -> Mapping[Place, str]:
        """The original value without CPUs that kubelet has given away since."""
        present, _ = _states(back.host, entries)
        less = {c.place: str(c.value) for c in _reduced_sets(back.host, entries, present, back.exclusive)}
        return {entry.place: less.get(entry.place) or entry.describe() for entry in entries}


KIND = CgroupValue()


def stands(host: Host, change: CgroupChange, present: Cgroup) -> bool:
    """Tell whether a number is there already, as far as the kernel keeps it: v2 rounds shares to weights."""
    if change.gives_back or change.field not in NUMBERS:
        return False
    try:
        value = host.cgroups.settled(change.field, change.value)
    except ValueError:
        return False  # No value of this field: the write says so.
    return present.values.get(change.field) == value


def _file(group: str, field: CgroupField, strategy: str, work: Work) -> Iterator[FileEntry]:
    host = work.host
    raw = host.cgroups.read_present(group, field)
    if raw is None:
        return
    if field == inherited.FIELD:
        raw = inherited.original(host, group, raw, work.journal.by_place, work.recent_sets)
    raw = work.beginnings.original(group, field, raw, host, work.snapshot)
    host.cgroups.decode(field, raw)  # ValueError: what is no value of the field could not be put back.
    path, wall = host.cgroups.path(group, field), host.clock.wall()
    yield FileEntry.of(path=path, group=group, field=field, raw=raw, found_at=wall, strategy=strategy)


def _undo(host: Host, entries: Sequence[FileEntry], exclusive: ExclusiveCPUs) -> list[AppliedStep]:
    """Values back in legal order. The last write of each file is of the very bytes that were found, unless kubelet has
    given away CPUs of them."""
    present, unread = _states(host, entries)
    by_place = {entry.place: entry for entry in entries}
    less = {change.place: change for change in _reduced_sets(host, entries, present, exclusive)}
    changes, sets = list[CgroupChange](), dict[str, FileEntry]()
    for entry in (e for e in entries if e.group in present):
        try:
            changes.append(less.get(entry.place) or _change(host, entry))
        except ValueError as error:
            unread[entry.group] = kernel_words(error)
            continue
        if entry.field == inherited.FIELD:
            sets[entry.group] = entry
    for change, state in inherited.copies(host, sets, dict(present)):
        value = exclusive.put_back(change.group, cast(CPUSet, change.value), state.cpuset)
        changes.append(msgspec.structs.replace(change, value=value))
        present[change.group] = state
    steps = plan.order(changes, present)
    final = {change.place: change for change in steps}
    done = [
        _final(host, by_place[c.place])
        if final[c.place] is c and c.place in by_place and c.place not in less
        else KIND.put(host, c)
        for c in steps
        if isinstance(c, CgroupChange)
    ]
    for place, entry in by_place.items():
        if place not in final and entry.group in unread:
            done.append(AppliedStep(place, entry.describe(), False, unread[entry.group]))
        elif place not in final:
            done.append(AppliedStep(place, "already so" if entry.group in present else GONE))
    return done


def _reduced_sets(
    host: Host, entries: Iterable[FileEntry], present: Mapping[str, Cgroup], exclusive: ExclusiveCPUs
) -> Iterator[CgroupChange]:
    """Sets of containers that do not come back whole: kubelet has given some of their CPUs to others alone."""
    for entry in entries:
        if entry.field != inherited.FIELD or entry.group not in present:
            continue
        try:
            original = cast(CPUSet, host.cgroups.decode(inherited.FIELD, entry.raw))
        except ValueError:
            continue  # Reported where it is to be put back.
        value = exclusive.put_back(entry.group, original, present[entry.group].cpuset)
        if value != original:
            yield CgroupChange(entry.group, inherited.FIELD, value)


def _change(host: Host, entry: FileEntry) -> CgroupChange:
    if entry.field not in FIELDS:
        raise ValueError(f"this version knows no file {entry.field} of a cgroup")
    return CgroupChange(entry.group, entry.field, host.cgroups.decode(entry.field, entry.raw))


def _final(host: Host, entry: FileEntry) -> AppliedStep:
    if entry.field == "cpu.shares" and entry.raw.strip() == b"0":
        # v2 prints weight 0 for an idle group, and takes none: idle again, it has the same share.
        return AppliedStep(entry.place, "idle as it was found")
    try:
        host.cgroups.write_raw(entry.group, entry.field, entry.raw.rstrip(b"\n") or b"\n")
    except OSError as error:
        if error.errno == errno.ENOSPC and not entry.raw.strip():
            # No kernel takes an empty set back while there are tasks in a group; all possible CPUs give it the same
            # CPUs, those of its parent, also when some go offline or come back.
            change = _change(host, entry)
            write = functools.partial(_write_everything, host, entry.group, entry.field)
            step = KIND.attempt(host, change, write)
            return msgspec.structs.replace(step, value=f"{step.value} (inherits; the kernel takes no empty set here)")
        if vanished(error):
            return AppliedStep(entry.place, GONE)
        return AppliedStep(entry.place, entry.describe(), False, kernel_words(error))
    return AppliedStep(entry.place, entry.describe())


def _write_once_released(host: Host, change: CgroupChange) -> None:
    """cgroup v1 takes no quota below that of a group further down, and a removed group counts until the kernel has
    released it, some milliseconds later: tried again where the groups that are there allow the quota, as none above has
    less and none directly below has more. OSError as the kernel gives it the last time."""
    quota_us = cast(int, change.value)
    above = host.cgroups.state(change.group.rpartition("/")[0]).quota_us
    below = (host.cgroups.state(f"{change.group}/{name}").quota_us for name in host.cgroups.children(change.group))
    allowed = above in (None, UNLIMITED) or above >= quota_us
    if allowed and all(quota is None or quota <= quota_us for quota in below):
        for pause in _RELEASE_SECONDS:
            host.clock.wait(pause)
            with contextlib.suppress(OSError):
                host.cgroups.write(change.group, change.field, change.value)
                return
    host.cgroups.write(change.group, change.field, change.value)


def _write_everything(host: Host, group: str, field: str) -> str:
    everything = sysfs.possible(host.files) if field == inherited.FIELD else sysfs.memory_nodes(host.files)
    host.cgroups.write_raw(group, field, str(everything).encode())
    return str(everything)


def _states(host: Host, entries: Iterable[FileEntry]) -> tuple[dict[str, Cgroup], dict[str, str]]:
    """Present values of the groups that are still there: of their sets, quotas and whatever is to come back; and the
    kernel's words about groups that cannot be read, which must not keep the others from being put back."""
    fields: dict[str, list[str]] = {}
    for entry in entries:
        fields.setdefault(entry.group, []).append(entry.field)
    present, unread = dict[str, Cgroup](), dict[str, str]()
    for group, named in fields.items():
        try:
            present[group] = host.cgroups.state(group, NUMBERS.keys() & set(named))
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError) or not vanished(error):
                unread[group] = kernel_words(error)
    return present, unread
