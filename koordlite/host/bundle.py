"""One machine as the agent holds it: real, emulated or recorded, behind the same four handles."""

from __future__ import annotations

import dataclasses

from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.files import RealFiles
from koordlite.model.pod import resctrl_protocol
from koordlite.ports import Clock, Files
from koordlite.resctrl.filesystem import ResctrlFS
from koordlite.resctrl.mount import Mounts, NoMounts, RealMounts


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A machine: its files, its time, and the two kernel interfaces we program."""

    files: Files
    clock: Clock
    cgroups: Cgroups
    resctrl: ResctrlFS


def bind(
    files: Files, clock: Clock, *, kubepods: str = "", required: bool = True, mounts: Mounts | None = None
) -> Host:
    """The machine behind `files`; HardwareAbsent when it has no cgroups, or kubelet's group is not there.

    Only to put back what was found, kubelet's group is not `required`: what was below it is gone with it.
    """
    return Host(files, clock, Cgroups.detect(files, kubepods=kubepods, required=required), resctrl(files, mounts))


def resctrl(files: Files, mounts: Mounts | None = None) -> ResctrlFS:
    """resctrl of the machine behind `files`. Without `mounts` it can be mounted only where this is the real machine.

    Groups the protocol does not know are never made or removed.
    """
    mounts = mounts or (RealMounts() if isinstance(files, RealFiles) else NoMounts())
    return ResctrlFS(files, mounts=mounts, owns=resctrl_protocol.may_be_ours)
