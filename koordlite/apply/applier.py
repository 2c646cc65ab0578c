"""Takes the steps of a plan: every first value of a file is in the journal on disk before the file is written."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply import writer
from koordlite.apply.foreign import ForeignWriters
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroupfs import vanished
from koordlite.host.journal import Entry, FileEntry, GroupMade, Journal, NodeResource, TasksMoved
from koordlite.model.decision import (
    CgroupChange,
    Change,
    ClusterChange,
    NodeResourceChange,
    ResctrlGroupChange,
    SchemataChange,
    TasksChange,
    TopologyChange,
    ZonesChange,
)
from koordlite.model.errors import InputError
from koordlite.model.outcome import AppliedStep, ForeignWrite
from koordlite.model.snapshot import Snapshot
from koordlite.plan import Plan
from koordlite.ports import Cluster

CLUSTER_CHANGES = (NodeResourceChange, TopologyChange, ZonesChange)


class Applier:
    """The only writer of kernel files and of the cluster."""

    def __init__(self, host: Host, cluster: Cluster, journal: Journal) -> None:
        self._host, self._cluster, self._journal = host, cluster, journal
        self._foreign = ForeignWriters()
        self.last_sync: float | None = None
        """When the Node's resources were last written in this run."""

    @property
    def ours(self) -> frozenset[str]:
        """Places that hold a value of ours."""
        return self._journal.places

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
        self._journal.record(entries)
        able = [c for c in due if c.place not in unread]
        done = [self._write(c) for c in able if not isinstance(c, CLUSTER_CHANGES)]
        return (*unread.values(), *done, *self._publish([c for c in able if isinstance(c, CLUSTER_CHANGES)], seen))

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
        elif isinstance(change, NodeResourceChange):
            previous = seen.published.node_resources.get(change.resource)
            yield NodeResource(resource=change.resource, previous=previous)
        elif change.place not in self._journal.places:
            yield from self._found(change, strategy, made)

    def _found(self, change: Change, strategy: str, made: set[str]) -> Iterator[Entry]:
        wall = self._host.clock.wall()
        match change:
            case CgroupChange(group, field, _):
                raw = self._read(group, field)
                if raw is not None:
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

    def _read(self, group: str, field: str) -> bytes | None:
        try:
            return self._host.cgroups.read_raw(group, field)
        except OSError as error:
            if vanished(error):
                return None
            raise

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
        if not error and any(isinstance(c, NodeResourceChange) for c in changes):
            self.last_sync = seen.time
        seconds = self._host.clock.monotonic() - started
        return [AppliedStep(c.place, writer.describe(c), not error, error, seconds) for c in changes]
