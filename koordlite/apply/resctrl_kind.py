"""What kinds of resctrl have in common: a group of ours needs no notes, since removing it undoes all that happened to
it; and they are undone together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koordlite.apply import resctrl_undo, writer
from koordlite.apply.kind import C, E, Kind, Undoing, Work
from koordlite.changes import resctrl_group
from koordlite.model.change import Change
from koordlite.model.entry import Entry
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep

THERE = "was there already"


class ResctrlKind(Kind[C, E]):
    """One kind of resctrl."""

    undone_with = "resctrl"
    undo_rank = 40

    def undo(self, entries: Sequence[Entry], back: Undoing) -> Iterable[AppliedStep]:
        """All of resctrl in one go: threads first, the mount last."""
        return resctrl_undo.undo(back.host, entries, writer.words)


class MadeKind(ResctrlKind[C, E]):
    """Something that is made, and is nobody's when it was not made by us."""

    def is_disowned(self, step: AppliedStep) -> bool:
        """What the kernel did not let us make is not ours: whoever makes it later keeps it."""
        return not step.ok or step.value == THERE


class InGroup(ResctrlKind[C, E]):
    """Something that is written into a group."""

    def write(self, change: C, work: Work) -> AppliedStep:
        """Not where the group was refused a moment ago, or turned out to be another's."""
        return _without_group(change, work) or self.put(work.host, change)


def is_ours(group: str, noted: Mapping[Place, Entry]) -> bool:
    """Whether we made the group, or are about to."""
    return resctrl_group.PLACE.place(group) in noted


def _without_group(change: Change, work: Work) -> AppliedStep | None:
    """Nobody noted what was found in a group that we were about to make: the next reading finds and notes it."""
    needed = resctrl_group.PLACE.place(change.place.part("group"))
    for step in work.done:
        if step.place == needed and (not step.ok or step.value == THERE):
            why = f"its group {THERE}: it is looked at first" if step.ok else "its group was not made"
            return AppliedStep(change.place, change.describe(), False, why)
    return None
