"""One machine as the agent holds it: real, emulated or recorded, behind the same handles."""

from __future__ import annotations

import msgspec

from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.core_scheduling import Cookies, NoCoreScheduling, RealCoreScheduling
from koordlite.host.files import RealFiles
from koordlite.model.pod import resctrl_protocol
from koordlite.ports import Clock, CoreScheduling, Files
from koordlite.resctrl.files import LocalFiles
from koordlite.resctrl.filesystem import ResctrlFS
from koordlite.resctrl.mount import Mounts, NoMounts, RealMounts


class Host(msgspec.Struct, frozen=True):
    """A machine: its files, its time, and the three kernel interfaces we program."""

    files: Files
    clock: Clock
    cgroups: Cgroups
    resctrl: ResctrlFS
    cookies: Cookies

    def for_another_thread(self) -> Host:
        """The same machine for a thread beside the one that has this: descriptors that `RealFiles` keeps may be closed,
        and their numbers given to other files, in the middle of another thread's read."""
        if not isinstance(self.files, RealFiles):
            return self
        files = LocalFiles()
        return msgspec.structs.replace(self, files=files, cgroups=self.cgroups.through(files))


def bind(
    files: Files,
    clock: Clock,
    *,
    kubepods: str = "",
    required: bool = True,
    mounts: Mounts | None = None,
    cores: CoreScheduling | None = None,
) -> Host:
    """The machine behind `files`; HardwareAbsent when it has no cgroups, or kubelet's group is not there.
    Only to put back what was found, kubelet's group is not `required`: what was below it is gone with it. Without
    `cores` there is core scheduling only where this is the real machine."""
    cgroups = Cgroups.detect(files, kubepods=kubepods, required=required)
    return Host(files, clock, cgroups, resctrl(files, mounts), Cookies(cores or core_scheduling(files), cgroups, files))


def core_scheduling(files: Files) -> CoreScheduling:
    """That of the machine behind `files`, where this is the real one."""
    return RealCoreScheduling() if isinstance(files, RealFiles) else NoCoreScheduling()


def resctrl(files: Files, mounts: Mounts | None = None) -> ResctrlFS:
    """resctrl of the machine behind `files`. Without `mounts` it can be mounted only where this is the real machine.
    Groups the protocol does not know are never made or removed."""
    mounts = mounts or (RealMounts() if isinstance(files, RealFiles) else NoMounts())
    return ResctrlFS(files, mounts=mounts, owns=resctrl_protocol.may_be_ours)
