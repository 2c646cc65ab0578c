"""Takes the steps of a plan: every first value of a file is in the journal on disk before the file is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast, get_args

from koordlite.apply import block, ended, inherited, promises, resctrl, resctrl_undo, system, writer
from koordlite.apply.evictions import Evictions
from koordlite.apply.foreign import ForeignWriters
from koordlite.apply.restore import restore
from koordlite.apply.troubles import Troubles
from koordlite.changes import cgroup, undo_journal
from koordlite.changes.block_device import BlockChange
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.eviction import EvictPod
from koordlite.changes.node_resource import NodeResourceChange
from koordlite.changes.oom_score import OOMScoreChange
from koordlite.changes.resctrl_group import ResctrlGroupChange
from koordlite.changes.resctrl_mount import ResctrlMountChange
from koordlite.changes.resctrl_return import ResctrlReturn
from koordlite.changes.system_file import SystemFileChange
from koordlite.changes.zone_resource import ZoneResourceChange
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.journal.journal import Entry, FileEntry, Journal
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.change import Change, ClusterChange, NodeChange, ResctrlChange
from koordlite.model.errors import JournalError
from koordlite.model.picture.groups import Found
from koordlite.model.picture.run_state import RunState
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status.outcome import AppliedStep, FileTrouble, ForeignWrite
from koordlite.plan import Plan
from koordlite.ports import Cluster


class Applier:
    """The only writer of kernel files and of the cluster; `Watching` takes its place where there is no journal."""

    writes = True

    def __init__(self, host: Host, cluster: Cluster, journal: Journal) -> None:
        self._host, self._cluster, self._journal = host, cluster, journal
        self._foreign, self._lately = ForeignWriters(), inherited.Lately()
        self.troubles = Troubles(self._foreign)
        """Refusals and foreign writes by place."""
        self._decoded: tuple[tuple[Entry, ...], dict[Place, Found]] = ((), {})
        self.evictions = Evictions(cluster, host.clock)
        """What the cluster answered to evictions of this run."""
        self.last_sync: dict[Place, float] = {}
        """When amounts of the Node and its zones were last written in this run, by `Change.place`."""

    @property
    def held(self) -> int:
        """How many places hold a value of ours."""
        return len(self._journal.entries)

    def state(self, time: float, uids: Collection[str]) -> RunState:
        """What this run holds, and what became of its evictions of the pods `uids`."""
        evicted, refused = self.evictions.recent(time, uids)
        return RunState(
            ours=self.ours,
            found=self.found,
            last_sync=self.last_sync,
            evicted=evicted,
            refused_evictions=refused,
        )

    def trouble(self, now: float) -> tuple[FileTrouble, ...]:
        """Refusals and foreign writes by place, the worst first."""
        return self.troubles.worst(now)

    def restore(self, *, staying: Collection[str] = ()) -> tuple[AppliedStep, ...]:
        """Put back what was found before us, but for what the strategies `staying` wrote."""
        return restore(self._host, self._journal, self._cluster, staying=staying)

    @property
    def ours(self) -> frozenset[Place]:
        """Places that hold a value of ours."""
        return self._journal.places

    @property
    def found(self) -> Mapping[Place, Found]:
        """What stood in cgroup files before us, by place."""
        if self._decoded[0] != self._journal.entries:
            self._decoded = self._journal.entries, dict(_found_values(self._journal.entries, self._host.cgroups))
        return self._decoded[1]

    def foreign_writes(self, seen: Snapshot) -> tuple[ForeignWrite, ...]:
        """Values of ours that another process has changed since the last tick."""
        return self._foreign.check(seen)

    def apply(self, plan: Plan, seen: Snapshot) -> tuple[AppliedStep, ...]:
        """Take the steps in order. A refused step is reported and does not stop the others; JournalError stops them
        all."""
        due = self._due(plan, seen)
        made = resctrl.about_to_be_made(self._host, due)
        unread: dict[Place, AppliedStep] = {}
        entries: list[Entry] = []
        for change in due:
            try:
                entries += self._entries(change, plan.owners.get(change.place, ""), made, seen)
            except (OSError, ValueError) as error:
                # What cannot be read could not be put back, so it is not written either.
                unread[change.place] = AppliedStep(change.place, change.describe(), False, writer.words(error))
        moved = {c.group for c in due if isinstance(c, CgroupChange) and c.field == inherited.FIELD}
        entries += inherited.left_behind(self._host, moved, seen, self._journal.by_place, self._lately)
        self._record(entries, seen)
        able = [c for c in due if c.place not in unread]
        done: list[AppliedStep] = []
        for change in (c for c in able if not isinstance(c, ClusterChange | EvictPod)):
            done.append(resctrl.without_group(change, done) or self._write(change))
        done += self._let_go(able, done)
        published = self._publish([c for c in able if isinstance(c, ClusterChange)], seen)
        asked = self.evictions.take((c for c in able if isinstance(c, EvictPod)), time=seen.time)
        steps = (*unread.values(), *done, *published, *asked)
        self.troubles.note(steps)
        return steps

    def _due(self, plan: Plan, seen: Snapshot) -> list[Change]:
        """What does not stand already and nobody fights over. What a strategy tells of the Node waits together: an
        annotation that follows an amount would else be written on its own at each tick of a fight."""
        fought = {c.place for c in plan.steps if self._foreign.keep_off(c.place, seen.time)}
        waiting = {plan.owners.get(c.place, "") for c in plan.steps if isinstance(c, NodeChange) and c.place in fought}
        return [
            c
            for c in plan.steps
            if c.place not in fought
            and not (isinstance(c, NodeChange) and plan.owners.get(c.place) in waiting)
            and not self._stands(c, seen)
        ]

    def release(self, *, staying: Collection[str] = ()) -> tuple[AppliedStep, ...]:
        """Give everything back while the run goes on, but for what the strategies `staying` have changed: what others
        make of it from then on is not foreign.

        JournalError when that was done but the journal cannot be made to say so: it then is done once more.
        """
        places = self._journal.places
        try:
            steps = restore(self._host, self._journal, self._cluster, staying=staying)
        except JournalError:
            self._keep_no_watch(places)
            raise
        self._keep_no_watch(step.place for step in steps if step.ok)
        return steps

    def _keep_no_watch(self, places: Iterable[Place]) -> None:
        for place in places:
            self._foreign.forget(place)

    def _record(self, entries: list[Entry], seen: Snapshot) -> None:
        """What ended leaves the journal when it has to be written anyway."""
        known = self._journal.places
        if any(entry.place not in known for entry in entries):
            gone = frozenset(ended.places(self._host, self._journal.entries, seen))
            self._journal.record(entries, gone=gone)
            self._lately.keep(self._journal.places)

    def _let_go(self, able: list[Change], done: list[AppliedStep]) -> list[AppliedStep]:
        """What is not ours any more leaves the journal.

        One that cannot be written lists it still, and it would be put back once more: no reason to stop the rest.
        """
        try:
            self._give_back([c for c in able if getattr(c, "gives_back", False)], done)
            self._disown([c for c in able if isinstance(c, ResctrlGroupChange | ResctrlMountChange)], done)
        except JournalError as error:
            return [AppliedStep(undo_journal.PLACE.place(), "without what was given back", False, str(error))]
        return []

    def _give_back(self, changes: list[Change], done: list[AppliedStep]) -> None:
        """What stands as found is not ours any more: what others make of it now is not ours to undo."""
        refused = {step.place for step in done if not step.ok}
        places = {change.place for change in changes} - refused
        self._keep_no_watch(places)
        self._journal.forget(places)

    def _disown(self, made: list[ResctrlGroupChange | ResctrlMountChange], done: list[AppliedStep]) -> None:
        """What the kernel did not let us make is not ours: whoever makes such a group, or mounts, later keeps it."""
        refused = {step.place for step in done if not step.ok or step.value == resctrl.THERE}
        self._journal.forget({change.place for change in made} & refused)

    def _return(self, change: ResctrlReturn) -> AppliedStep:
        """What is undone leaves the journal: from then on the group is not ours."""
        steps = resctrl_undo.undo(self._host, resctrl_undo.of_group(change, self._journal.entries), writer.words)
        refused = [step for step in steps if not step.ok]
        error = refused[0].error if refused else ""
        try:
            self._journal.forget({step.place for step in steps} - {step.place for step in refused})
        except JournalError as unwritten:
            error = error or str(unwritten)
        return AppliedStep(change.place, change.describe(), not error, error)

    def _write(self, change: Change) -> AppliedStep:
        if isinstance(change, ResctrlReturn):
            return self._return(change)
        if isinstance(change, CgroupChange | BlockChange) and change.place not in self._journal.places:
            # It was gone when it was to be read. Were it back this moment, nobody could put it back later.
            return AppliedStep(change.place, writer.GONE)
        if isinstance(change, BlockChange):
            change = block.with_value(change, self._journal.by_place)
        step = writer.write(self._host, change)
        if isinstance(change, BlockChange) and step.ok:
            self._foreign.wrote(change)
        if isinstance(change, CgroupChange) and step.value == writer.GONE:
            self._foreign.forget(change.place)
        elif isinstance(change, CgroupChange) and step.ok:
            value = self._host.cgroups.settled(change.field, change.value)
            self._lately.wrote(change)
            self._foreign.wrote(dataclasses.replace(change, value=value))
        return step

    def _entries(self, change: Change, strategy: str, made: set[str], seen: Snapshot) -> Iterator[Entry]:
        """What stands where we are about to write for the first time; `made` are resctrl groups about to be made."""
        if isinstance(change, ResctrlChange):
            yield from resctrl.found(self._host, change, strategy, made=made, journal=self._journal.by_place)
        elif isinstance(change, ClusterChange):
            yield from promises.found(change, strategy, seen)
        elif change.place not in self._journal.places and isinstance(change, BlockChange):
            yield from block.entries(self._host, change, strategy)
        elif change.place not in self._journal.places and isinstance(change, SystemFileChange | OOMScoreChange):
            yield from system.entries(self._host, change, strategy)
        elif change.place not in self._journal.places:
            yield from self._found(change, strategy)

    def _found(self, change: Change, strategy: str) -> Iterator[Entry]:
        match change:
            case CgroupChange(group, field, value):
                yield from self._file(group, field, strategy)
                if (
                    field == "cpu.idle"
                    and value
                    and cgroup.PLACE.place(group, "cpu.shares") not in self._journal.places
                ):
                    # An idle group loses its shares, and does not get them back when it stops being idle.
                    yield from self._file(group, "cpu.shares", strategy)

    def _file(self, group: str, field: CgroupField, strategy: str) -> Iterator[FileEntry]:
        raw = self._host.cgroups.read_present(group, field)
        if raw is None:
            return
        if field == inherited.FIELD:
            raw = inherited.found_before_us(self._host, group, raw, self._journal.by_place, self._lately)
        self._host.cgroups.decode(field, raw)  # ValueError: what is no value of the field could not be put back.
        path, wall = self._host.cgroups.path(group, field), self._host.clock.wall()
        yield FileEntry.of(path=path, group=group, field=field, raw=raw, found_at=wall, strategy=strategy)

    def _stands(self, change: Change, seen: Snapshot) -> bool:
        cgroup = seen.cgroups.get(change.group) if isinstance(change, CgroupChange) else None
        return isinstance(change, CgroupChange) and cgroup is not None and writer.stands(self._host, change, cgroup)

    def _publish(self, changes: list[ClusterChange], seen: Snapshot) -> list[AppliedStep]:
        started = self._host.clock.monotonic()
        errors = promises.publish(self._cluster, changes)
        self.last_sync |= {
            c.place: seen.time
            for c in changes
            if isinstance(c, NodeResourceChange | ZoneResourceChange) and c.place not in errors
        }
        for change in (c for c in changes if isinstance(c, NodeChange)):
            self._foreign.unsure(change.place) if change.place in errors else self._foreign.wrote(change)
        seconds = self._host.clock.monotonic() - started
        found = [(c, errors.get(c.place, "")) for c in changes]
        return [AppliedStep(c.place, c.describe(), not error, error, seconds) for c, error in found]


def _found_values(entries: Sequence[Entry], cgroups: Cgroups) -> Iterator[tuple[Place, Found]]:
    """The values of cgroup files and kernel settings among the entries, with the strategy that wrote first."""
    for entry in entries:
        if isinstance(entry, FileEntry) and entry.field in get_args(CgroupField):
            value = cgroups.decode(cast(CgroupField, entry.field), entry.raw)
            yield entry.place, Found(value, entry.strategy)
    yield from system.found_values(entries)
