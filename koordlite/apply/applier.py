"""Takes the steps of a plan: every first value of a file is in the journal on disk before the file is written."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from koordlite.apply import inherited, kinds, unlisted
from koordlite.apply.beginnings import Beginnings
from koordlite.apply.evictions import Evictions
from koordlite.apply.foreign import ForeignWriters
from koordlite.apply.kind import Work
from koordlite.apply.restore import restore
from koordlite.changes import JOURNAL
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import Journal
from koordlite.model.change import Change, Entry
from koordlite.model.errors import JournalError, kernel_words
from koordlite.model.picture.groups import Original, RunState
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, FileTrouble, ForeignWrite
from koordlite.plan import Plan
from koordlite.ports import Cluster, ClusterView


class Applier:
    """The only writer of kernel files and of the cluster. Where there is no journal there is none: nothing could be
    undone, so nothing is written."""

    def __init__(self, host: Host, cluster: Cluster, journal: Journal) -> None:
        self._host, self._cluster, self._journal = host, cluster, journal
        self._foreign, self._recent_sets = ForeignWriters(), inherited.RecentSets()
        self._beginnings = Beginnings()
        self._decoded: tuple[tuple[Entry, ...], dict[Place, Original]] = ((), {})
        self.evictions = Evictions(cluster, host.clock)
        """Answers of the cluster to evictions of this run."""
        self.last_sync: dict[Place, float] = {}
        """Time of the last write of amounts of the Node and its zones in this run, by `Change.place`."""

    @property
    def place_count(self) -> int:
        """Number of places that hold a value of ours."""
        return len(self._journal.entries)

    def state(self, time: float, uids: Collection[str]) -> RunState:
        """State of this run: what it holds, and what became of its evictions of the pods `uids`."""
        evicted, refused = self.evictions.recent(time, uids)
        return RunState(
            ours=self.ours,
            found=self.originals,
            last_sync=self.last_sync,
            evicted=evicted,
            refused_evictions=refused,
        )

    def trouble(self, now: float) -> tuple[FileTrouble, ...]:
        """Refusals and foreign writes by place, the worst first."""
        return self._foreign.troubles(now)

    def note_unlisted(self, view: ClusterView) -> None:
        """Note as ours what an earlier run published, where the journal is lost. JournalError as of `Journal`.

        Where there is one, what it does not list has been restored: we wrote it last, and it is not ours.
        """
        if self._journal.was_missing:
            self._journal.record(unlisted.entries(view))

    def restore(self, *, staying: Collection[str] = ()) -> tuple[AppliedStep, ...]:
        """Put back what was found before us, but for what the strategies `staying` wrote."""
        return restore(self._host, self._journal, self._cluster, staying=staying)

    @property
    def ours(self) -> frozenset[Place]:
        """Places that hold a value of ours."""
        return self._journal.places

    @property
    def originals(self) -> Mapping[Place, Original]:
        """Values of cgroup files before ours, by place."""
        (before, values), entries = self._decoded, self._journal.entries
        if before != entries:
            # Entries that were there before are not decoded again.
            decoded, originals = {id(entry) for entry in before}, dict[Place, Original]()
            for place, entry in self._journal.by_place.items():
                same = id(entry) in decoded
                value = values.get(place) if same else kinds.of_entry(entry).value_before(entry, self._host)
                if value is not None:
                    originals[place] = value
            self._decoded = entries, originals
        return self._decoded[1]

    def foreign_writes(self, snapshot: Snapshot) -> tuple[ForeignWrite, ...]:
        """Values of ours that another process has changed since the last tick. Those of new groups are not reported:
        kubelet wrote them for the first time (`begin`)."""
        now = self._host.clock.monotonic()
        self._beginnings.look(snapshot, now)
        return self._foreign.check(snapshot, besides=self._beginnings.young(now))

    def begin(self, groups: Collection[str], snapshot: Snapshot) -> None:
        """Runtimes write a new group after we did: what stands there now was found, not what we saw first.

        `groups` are those that a round before its time is about; without, in a tick, all that are new.
        """
        now = self._host.clock.monotonic()
        self._beginnings.look(snapshot, now)
        lost = {write.place for write in self._foreign.overwritten(snapshot, groups or self._beginnings.young(now))}
        self._keep_no_watch(lost)
        self._journal.forget(lost)

    def apply(self, plan: Plan, snapshot: Snapshot, *, tidy: bool = True) -> tuple[AppliedStep, ...]:
        """Take the steps in order. A refused step is reported and does not stop the others. Where the journal cannot
        be written, only those of places in it are taken: what is held already goes on being limited. JournalError when
        there are none. Without `tidy`, what ended stays in the journal: to look for it takes time."""
        work = Work(
            self._host,
            self._cluster,
            self._journal,
            snapshot,
            self._foreign,
            self._recent_sets,
            self.evictions,
            self._beginnings,
            # The journal is replaced as a whole, and never changed: a round writes into its own map.
            ChainMap({}, cast(dict[Place, Entry], self._journal.by_place)),
        )
        due = self._due(plan, work)
        entries, unread = _noted(due, plan, work)
        try:
            self._record(entries, snapshot, tidy=tidy)
        except JournalError as error:
            places = self._journal.places
            if not any(change.place in places and change.place not in unread for change in due):
                raise
            unnoted = (change for change in due if change.place not in places and change.place not in unread)
            unread |= {c.place: AppliedStep(c.place, c.describe(), False, str(error)) for c in unnoted}
        able = [change for change in due if change.place not in unread]
        for kind, run in kinds.runs(able):
            count = len(work.done)
            try:
                for step in kind.carry_out(run, work):
                    work.done.append(step)
            except JournalError as error:
                failed = {c.place: c for c in run} if count == len(work.done) else {}
                work.done.extend(AppliedStep(c.place, c.describe(), False, str(error)) for c in failed.values())
        amounts = {change.place for change in able if kinds.of(change).is_amount}
        self.last_sync |= {step.place: snapshot.time for step in work.done if step.ok and step.place in amounts}
        steps = (*unread.values(), *work.done, *self._let_go(able, work.done))
        self._foreign.count_refusals(steps)
        return steps

    def _due(self, plan: Plan, work: Work) -> list[Change]:
        """Select the changes that do not stand already, and that nobody fights over or is about to write."""
        fought = {c.place for c in plan.steps if self._foreign.keep_off(c.place, work.snapshot.time)}
        waiting = {plan.owners.get(c.place, "") for c in plan.steps if c.all_or_none and c.place in fought}
        return [
            c
            for c in plan.steps
            if c.place not in fought
            and not kinds.of(c).is_premature(c, work)
            and not (c.all_or_none and plan.owners.get(c.place) in waiting)
            and not kinds.of(c).stands(c, work)
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

    def _record(self, entries: list[Entry], snapshot: Snapshot, *, tidy: bool) -> None:
        """Note the entries. What ended leaves the journal when it has to be written anyway."""
        by_place = self._journal.by_place
        if any(entry.place not in by_place for entry in entries):
            # Groups, threads and processes come and go for ever. Nothing has ended where kubelet's whole tree is out of
            # sight.
            tidy = tidy and snapshot.layout.kubepods in snapshot.cgroups
            listed = self._journal.entries if tidy else ()
            ended = frozenset(e.place for e in listed if kinds.of_entry(e).has_ended(e, self._host, snapshot))
            self._journal.record(entries, removed=ended)
            self._recent_sets.keep(self._journal.by_place)

    def _let_go(self, able: Sequence[Change], done: Sequence[AppliedStep]) -> list[AppliedStep]:
        """Take out of the journal what is not ours any more.

        One that cannot be written lists it still, and it would be put back once more: no reason to stop the rest.
        """
        steps = {step.place: step for step in done}
        # What stands as found is not ours any more: what others make of it now is not ours to undo.
        given_back = {c.place for c in able if c.gives_back and steps[c.place].ok}
        disowned = {c.place for c in able if kinds.of(c).is_disowned(steps[c.place])}
        self._keep_no_watch(given_back)
        try:
            self._journal.forget(given_back | disowned)
        except JournalError as error:
            return [AppliedStep(JOURNAL.place(), "without what was given back", False, str(error))]
        return []


def _noted(due: Sequence[Change], plan: Plan, work: Work) -> tuple[list[Entry], dict[Place, AppliedStep]]:
    """Entries for what stands where we are about to write, and the steps that are not taken: what cannot be read could
    not be put back, so it is not written either."""
    entries: list[Entry] = []
    unread: dict[Place, AppliedStep] = {}
    for change in due:
        try:
            for entry in kinds.of(change).originals(change, plan.owners.get(change.place, ""), work):
                entries.append(entry)
                work.noted.setdefault(entry.place, entry)
        except (OSError, ValueError) as error:
            unread[change.place] = AppliedStep(change.place, change.describe(), False, kernel_words(error))
    for kind, changes in kinds.by_kind(due).items():
        entries += kind.other_originals(changes, work)
    return entries, unread
