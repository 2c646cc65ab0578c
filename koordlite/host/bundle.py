"""One machine as the agent holds it: real, emulated or recorded, behind the same four handles."""

from __future__ import annotations

import dataclasses

from koordlite.host.cgroupfs import Cgroups
from koordlite.host.resctrlfs import ResctrlFS
from koordlite.ports import Clock, Files


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A machine: its files, its time, and the two kernel interfaces we program."""

    files: Files
    clock: Clock
    cgroups: Cgroups
    resctrl: ResctrlFS


def bind(files: Files, clock: Clock, *, kubepods: str = "") -> Host:
    """The machine behind `files`; HardwareAbsent when it has no cgroups, or kubelet's group is not there."""
    return Host(files, clock, Cgroups.detect(files, kubepods=kubepods), ResctrlFS(files))
