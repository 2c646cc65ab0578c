"""The mount of the resctrl file system."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply.kind import Work
from koordlite.apply.resctrl_kind import MadeKind
from koordlite.changes.resctrl_mount import PLACE, MountMade, ResctrlMountChange
from koordlite.host.bundle import Host


class ResctrlMount(MadeKind[ResctrlMountChange, MountMade]):
    """Where it belongs."""

    change = ResctrlMountChange
    places = (PLACE,)

    def found(self, change: ResctrlMountChange, strategy: str, work: Work) -> Iterator[MountMade]:
        """It is not mounted."""
        if change.place not in work.noted:
            yield MountMade(point=work.host.resctrl.root)

    def set(self, host: Host, change: ResctrlMountChange) -> str:
        """Mount it."""
        host.resctrl.mount()
        return change.describe()


KIND = ResctrlMount()
