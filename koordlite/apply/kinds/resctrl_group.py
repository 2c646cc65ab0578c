"""A resctrl group that is made."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply.kind import Work
from koordlite.apply.resctrl_kind import THERE, MadeKind
from koordlite.changes.resctrl_group import PLACE, GroupMade, ResctrlGroupChange
from koordlite.host.bundle import Host
from koordlite.resctrl.values import MON_GROUPS


class ResctrlGroup(MadeKind[ResctrlGroupChange, GroupMade]):
    """A control group, or one for monitoring."""

    change = ResctrlGroupChange
    places = (PLACE,)

    def found(self, change: ResctrlGroupChange, strategy: str, work: Work) -> Iterator[GroupMade]:
        """Nobody's group becomes ours by being asked for."""
        if not _exists(work.host, change.group):
            yield GroupMade(group=change.group)

    def set(self, host: Host, change: ResctrlGroupChange) -> str:
        """Make it."""
        return change.describe() if host.resctrl.make_group(change.group) else THERE


def _exists(host: Host, group: str) -> bool:
    control, monitors, _ = group.partition(MON_GROUPS)
    return group in (host.resctrl.mon_group_names(control) if monitors else host.resctrl.group_names())


KIND = ResctrlGroup()
