"""The applier of an agent without a journal: nothing could be undone, so nothing is written."""

from __future__ import annotations

from collections.abc import Collection

from koordlite.model.picture.groups import RunState
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, FileTrouble, ForeignWrite
from koordlite.plan import Plan
from koordlite.ports import ClusterView


class Watching:
    """Does nothing, and holds nothing. Methods as those of `Applier`."""

    writes = False
    held = 0

    def state(self, time: float, uids: Collection[str]) -> RunState:
        """Nothing is in force."""
        return RunState()

    def foreign_writes(self, seen: Snapshot) -> tuple[ForeignWrite, ...]:
        """No value is ours."""
        return ()

    def begin(self, groups: Collection[str], seen: Snapshot) -> None:
        """No group has a value of ours."""

    def apply(self, plan: Plan, seen: Snapshot, *, tidy: bool = True) -> tuple[AppliedStep, ...]:
        """No step is taken."""
        return ()

    def note_unlisted(self, view: ClusterView) -> None:
        """There is no journal to note it in."""

    def restore(self, *, staying: Collection[str] = ()) -> tuple[AppliedStep, ...]:
        """There is nothing to put back."""
        return ()

    def release(self, *, staying: Collection[str] = ()) -> tuple[AppliedStep, ...]:
        """There is nothing to give back."""
        return ()

    def trouble(self, now: float) -> tuple[FileTrouble, ...]:
        """Nothing was tried."""
        return ()
