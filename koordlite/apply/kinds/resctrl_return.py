"""A resctrl group that is given back as it was found."""

from __future__ import annotations

from typing import Never

from koordlite.apply import resctrl_undo, writer
from koordlite.apply.kind import Work
from koordlite.apply.resctrl_kind import ResctrlKind
from koordlite.changes.resctrl_return import PLACE, ResctrlReturn
from koordlite.model.errors import JournalError
from koordlite.model.status import AppliedStep


class GroupReturn(ResctrlKind[ResctrlReturn, Never]):
    """It is undone by the journal, and has no entry of its own."""

    change = ResctrlReturn
    places = (PLACE,)

    def write(self, change: ResctrlReturn, work: Work) -> AppliedStep:
        """What is undone leaves the journal: from then on the group is not ours."""
        steps = resctrl_undo.undo(work.host, resctrl_undo.of_group(change, work.journal.entries), writer.words)
        refused = [step for step in steps if not step.ok]
        error = refused[0].error if refused else ""
        try:
            work.journal.forget({step.place for step in steps} - {step.place for step in refused})
        except JournalError as unwritten:
            error = error or str(unwritten)
        return AppliedStep(change.place, change.describe(), not error, error)


KIND = GroupReturn()
