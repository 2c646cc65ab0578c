"""Takes the steps of a plan: every first value of a file is in the journal on disk before the file is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast, get_args

from koordlite.apply import ended, inherited, promises, writer
from koordlite.apply.foreign import ForeignWriters
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroupfs import Cgroups
from koordlite.host.journal import Entry, FileEntry, GroupMade, Journal, TasksMoved
from koordlite.model.decision import (
    CgroupChange,
    CgroupField,
    Change,
    ClusterChange,
    NodeResourceChange,
    ResctrlGroupChange,
    SchemataChange,
    TasksChange,
    ZoneResourceChange,
)
from koordlite.model.errors import InputError
from koordlite.model.outcome import AppliedStep, ForeignWrite
from koordlite.model.snapshot import Found, Snapshot
from koordlite.plan import Plan
from koordlite.ports import Cluster


class Applier:
    """The only writer of kernel files and of the cluster."""

    def __init__(self, host: Host, cluster: Cluster, journal: Journal) -> None:
        self._host, self._cluster, self._journal = host, cluster, journal
        self._foreign = ForeignWriters()
        self._decoded: tuple[tuple[Entry, ...], dict[str, Found]] = ((), {})
        self.last_sync: dict[str, float] = {}
        """When amounts of the Node and its zones were last written in this run, by `Change.place`."""

    @property
    def ours(self) -> frozenset[str]:
        """Places that hold a value of ours."""
        return self._journal.places

    @property
    def found(self) -> Mapping[str, Found]:
        """What stood in cgroup files before us, by place."""
        if self._decoded[0] != self._journal.entries:
            self._decoded = self._journal.entries, dict(_found_values(self._journal.entries, self._host.cgroups))
        return self._decoded[1]

    def foreign_writes(self, seen: Snapshot) -> tuple[ForeignWrite, ...]:
        """Values of ours that somebody else has changed since the last look."""
        return self._foreign.look(seen)

    def apply(self, plan: Plan, seen: Snapshot) -> tuple[AppliedStep, ...]:
        """Take the steps in order. A refused step is told and does not stop the others; JournalError stops them all."""
        due = [c for c in plan.steps if not self._foreign.keep_off(c.place, seen.time)]
        made = {c.group for c in due if isinstance(c, ResctrlGroupChange)}
        unread: dict[str, AppliedStep] = {}
        entries: list[Entry] = []
        for change in due:
            try:
                entries += self._entries(change, plan.owners.get(change.place, ""), made, seen)
            except OSError as error:
                # What cannot be read could not be put back, so it is not written either.
                unread[change.place] = AppliedStep(change.place, writer.describe(change), False, writer.words(error))
        moved = {c.group for c in due if isinstance(c, CgroupChange) and c.field == inherited.FIELD}
        entries += inherited.left_behind(self._host, moved, seen, self._journal.by_place)
        self._record(entries, seen)
        able = [c for c in due if c.place not in unread]
        done = [self._write(c) for c in able if not isinstance(c, ClusterChange)]
        self._give_back([c for c in able if isinstance(c, CgroupChange) and c.gives_back], done)
        self._disown([c for c in able if isinstance(c, ResctrlGroupChange)], done)
        return (*unread.values(), *done, *self._publish([c for c in able if isinstance(c, ClusterChange)], seen))

    def _record(self, entries: list[Entry], seen: Snapshot) -> None:
        """What ended leaves the journal when it has to be written anyway."""
        known = self._journal.places
        if any(entry.place not in known for entry in entries):
            gone = frozenset(ended.places(self._host, self._journal.entries, seen))
            self._journal.record(entries, gone=gone)

    def _give_back(self, changes: list[CgroupChange], done: list[AppliedStep]) -> None:
        """What stands as found is not ours any more: what others make of it now is not ours to undo."""
        refused = {step.place for step in done if not step.ok}
        places = {change.place for change in changes} - refused
        for place in places:
            self._foreign.forget(place)
        self._journal.forget(places)

    def _disown(self, groups: list[ResctrlGroupChange], done: list[AppliedStep]) -> None:
        """A group the kernel did not let us make is not ours: whoever makes one of that name later keeps it."""
        refused = {step.place for step in done if not step.ok}
        self._journal.forget({group.place for group in groups} & refused)

    def _write(self, change: Change) -> AppliedStep:
        step = writer.write(self._host, change)
        if isinstance(change, CgroupChange) and step.value == writer.GONE:
            self._foreign.forget(change.place)
        elif isinstance(change, CgroupChange) and step.ok:
            self._foreign.wrote(change)
        return step

    def _entries(self, change: Change, strategy: str, made: set[str], seen: Snapshot) -> Iterator[Entry]:
        """What stands where we are about to write for the first time; `made` are resctrl groups about to be made."""
        if isinstance(change, TasksChange):
            yield from self._tasks(change, made)
        elif isinstance(change, ClusterChange):
            yield from promises.found(change, strategy, seen)
        elif change.place not in self._journal.places:
            yield from self._found(change, strategy, made)

    def _found(self, change: Change, strategy: str, made: set[str]) -> Iterator[Entry]:
        wall = self._host.clock.wall()
        match change:
            case CgroupChange(group, field, _):
                raw = self._host.cgroups.read_present(group, field)
                if raw is not None:
                    if field == inherited.FIELD:
                        raw = inherited.found_before_us(self._host, group, raw, self._journal.by_place)
                    path = self._host.cgroups.path(group, field)
                    yield FileEntry.of(path=path, group=group, field=field, raw=raw, found_at=wall, strategy=strategy)
            case ResctrlGroupChange(group):
                yield GroupMade(group=group)
            case SchemataChange(group, resource, _) if group not in made and not self._is_ours(group):
                yield FileEntry.of(
                    path=f"{self._host.resctrl.root}/{group}/schemata",
                    group=f"resctrl/{group}",
                    field=resource,
                    raw=self._host.resctrl.schemata_raw(group, resource),
                    found_at=wall,
                    strategy=strategy,
                )

    def _is_ours(self, group: str) -> bool:
        """A group we made needs no notes: removing it undoes all that happened to it."""
        return ResctrlGroupChange(group).place in self._journal.places

    def _tasks(self, change: TasksChange, made: set[str]) -> Iterator[Entry]:
        """Threads whose way back is not simply the end of a group of ours."""
        own = change.group in made or self._is_ours(change.group)
        for tid in change.tids:
            group = self._host.resctrl.group_of(tid)
            started = procfs.start_time(self._host.files, tid)
            if group is None or started is None or (own and group == "") or self._is_ours(group):
                continue
            yield TasksMoved(tid=tid, start_time=started, group=group)

    def _publish(self, changes: list[ClusterChange], seen: Snapshot) -> list[AppliedStep]:
        if not changes:
            return []
        started, error = self._host.clock.monotonic(), ""
        try:
            self._cluster.publish(changes)
        except OSError as refused:
            error = writer.words(refused)
        except InputError as refused:
            error = str(refused)
        if not error:
            self.last_sync |= {
                c.place: seen.time for c in changes if isinstance(c, NodeResourceChange | ZoneResourceChange)
            }
        seconds = self._host.clock.monotonic() - started
        return [AppliedStep(c.place, writer.describe(c), not error, error, seconds) for c in changes]


def _found_values(entries: Iterable[Entry], cgroups: Cgroups) -> Iterator[tuple[str, Found]]:
    """The values of cgroup files among the entries, with the strategy that wrote first."""
    for entry in entries:
        if isinstance(entry, FileEntry) and entry.field in get_args(CgroupField):
            value = cgroups.decode(cast(CgroupField, entry.field), entry.raw)
            yield entry.place, Found(value, entry.strategy)
