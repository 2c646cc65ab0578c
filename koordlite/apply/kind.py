"""Interface of a kind of change for the applier, `restore` and their reports. Kinds answer in `koordlite.apply.kinds`;
what they are without a machine is in `koordlite.changes`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from koordlite.apply.beginnings import Beginnings
from koordlite.apply.evictions import Evictions
from koordlite.apply.foreign import ForeignWriters
from koordlite.apply.inherited import ExclusiveCPUs, RecentSets
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import Journal
from koordlite.model.change import Change, Entry
from koordlite.model.errors import kernel_words
from koordlite.model.picture.groups import Original
from koordlite.model.place import Place, PlaceKind
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.ports import Cluster

C = TypeVar("C", bound=Change)
E = TypeVar("E", bound=Entry)
GONE = "gone meanwhile"


class Work(msgspec.Struct, frozen=True):
    """State of a round of the applier."""

    host: Host
    cluster: Cluster
    journal: Journal
    snapshot: Snapshot
    foreign: ForeignWriters
    recent_sets: RecentSets
    evictions: Evictions
    beginnings: Beginnings
    noted: MutableMapping[Place, Entry]
    """The entries of the journal, and those that this round adds."""
    done: list[AppliedStep] = msgspec.field(default_factory=list)
    """The steps taken so far."""


class Undoing(msgspec.Struct, frozen=True):
    """State of a restore."""

    host: Host
    cluster: Cluster | None
    """None: what the cluster has to take back stays in the journal."""
    exclusive: ExclusiveCPUs


class Kind(Generic[C, E]):
    """A kind of change: `C` is its change, `E` what the journal keeps of what was found. Changes of a kind whose writes
    are never journaled (evictions, descriptions) have no entries, and nothing of them is undone."""

    change: type[C]
    entry_places: tuple[PlaceKind, ...] = ()
    """Kinds of place that its entries have besides those of its changes; no other kind has these."""
    carried_out_with: str = ""
    """Changes of kinds with the same word here are carried out in one go; empty for a kind on its own."""
    undone_with: str = ""
    """The same of entries that are undone."""
    undo_rank: ClassVar[int] = 30
    """Rank in an undo: the lowest goes first."""
    needs_entry: ClassVar[bool] = False
    """True where nothing is written without an entry: what was gone when it was to be read could not be put back, even
    if it were there again now."""
    is_amount: bool = False
    """True where the picture shows the time of the last write (`RunState.last_sync`)."""

    # ── there ──

    def stands(self, change: C, work: Work) -> bool:
        """Tell whether the value is there already, so that there is nothing to do."""
        return False

    def is_premature(self, change: C, work: Work) -> bool:
        """Tell whether the change has to wait for another process that is about to write first."""
        return False

    def originals(self, change: C, strategy: str, work: Work) -> Iterable[E]:
        """Value where `change` is about to write, if it is not noted. OSError or ValueError when it cannot be
        read or could not be put back: then it is not written either."""
        return ()

    def other_originals(self, changes: Sequence[C], work: Work) -> Iterable[E]:
        """Entries to note besides before `changes` are carried out."""
        return ()

    def carry_out(self, changes: Sequence[C], work: Work) -> Iterator[AppliedStep]:
        """Take the steps, each of which says what became of it."""
        for change in changes:
            yield self.write(change, work)

    def write(self, change: C, work: Work) -> AppliedStep:
        """Carry out one change in a round."""
        if self.needs_entry and change.place not in work.journal.by_place:
            return AppliedStep(change.place, GONE)
        step = self.put(work.host, change)
        self.note(change, step, work)
        return step

    def note(self, change: C, step: AppliedStep, work: Work) -> None:
        """Note what was written, so that what others write there later is told apart."""
        if step.ok:
            work.foreign.wrote(change)

    def put(self, host: Host, change: C) -> AppliedStep:
        """Write a value, there or back."""
        return self.attempt(host, change, functools.partial(self.set, host, change))

    def attempt(self, host: Host, change: C, write: Callable[[], str | None]) -> AppliedStep:
        """Try one write. `write` says what it has written; None: the value of the change. An OSError or ValueError is a
        refusal, but for what is gone: its limit went with it."""
        started, ok, error = host.clock.monotonic(), True, ""
        try:
            value = write()
        except (OSError, ValueError) as refused:
            if isinstance(refused, OSError) and self.is_gone(host, change, refused):
                return AppliedStep(change.place, GONE)
            value, ok, error = None, False, kernel_words(refused)
        seconds = host.clock.monotonic() - started
        return AppliedStep(change.place, change.describe() if value is None else value, ok, error, seconds)

    def set(self, host: Host, change: C) -> str | None:
        """Write it and say what was written, where that is not the value; OSError or ValueError when it is refused."""
        raise NotImplementedError

    def is_gone(self, host: Host, change: C, error: OSError) -> bool:
        """Tell whether `error` says that what had the value is gone, which is no refusal."""
        return False

    def is_disowned(self, step: AppliedStep) -> bool:
        """Tell whether the step left nothing of ours, so that its entry has to go."""
        return False

    # ── the journal ──

    def value_before(self, entry: E, host: Host) -> Original | None:
        """Value of the entry that strategies get to know; None for nothing."""
        return None

    def has_ended(self, entry: E, host: Host, snapshot: Snapshot) -> bool:
        """Tell whether what had the value is gone, and with it all that could be put back."""
        return False

    def owners(self, entry: E) -> Collection[str]:
        """The strategies that go on with it: as long as one of them enforces, a start does not undo it."""
        return (entry.strategy,)

    # ── back ──

    def undo(self, entries: Sequence[E], back: Undoing) -> Iterable[AppliedStep]:
        """Put back what was found: one step for each entry, and for whatever else came back."""
        return [self._put_back(entry, back.host) for entry in entries]

    def _put_back(self, entry: E, host: Host) -> AppliedStep:
        change = entry.undoing()
        assert isinstance(change, self.change), "a kind undoes its own changes"
        return self.put(host, change)

    def present(self, entry: E, host: Host) -> str | None:
        """Present value, in one line; None when it is gone."""
        return "ours"

    def to_put_back(self, entries: Sequence[E], back: Undoing) -> Mapping[Place, str]:
        """Values that `undo` would put back, in one line each."""
        return {entry.place: entry.describe() for entry in entries}
