"""Waits of the node and its groups for CPU, memory, input and output: each tick, pods in turns.

A kernel without pressure stall information, or one that has it only for the machine, is normal: what is not there is
missing in the picture. It is looked for each time, since a remount or a later kernel module may bring it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from koordlite.host import procfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.picture.usage import Pressure
from koordlite.observe.rotation import Rotation
from koordlite.ports import Files

MACHINE = ""
RESOURCES = ("cpu", "memory", "io")
PODS_SECONDS = 15.0
"""Time within which every pod is read again: the kernel's shortest mean is over ten seconds."""
AT_LEAST_PODS = 16

Pressures = Mapping[str, Pressure]
"""Pressure by resource."""


class PressureReader:
    """Remembers the pressure of pods and containers from one turn to the next."""

    def __init__(self, files: Files, cgroups: Cgroups) -> None:
        self._files, self._cgroups = files, cgroups
        self._pods = Rotation(self._of_group, seconds=PODS_SECONDS, at_least=AT_LEAST_PODS)
        self._containers = Rotation(self._of_group, seconds=PODS_SECONDS, at_least=AT_LEAST_PODS)

    def read(self, now: float, pods: Iterable[str], containers: Iterable[str] = ()) -> dict[str, Pressures]:
        """Read the pressure by group: the machine (empty), best effort, and the groups of `pods` and `containers`; a
        group without is missing."""
        best_effort = self._cgroups.layout.besteffort
        machine = _read(lambda resource: self._files.read(f"/proc/pressure/{resource}"))
        by_group = {MACHINE: machine, best_effort: self._of_group(best_effort)}
        if by_group[best_effort] is not None:
            for turns, groups in ((self._pods, pods), (self._containers, containers)):
                by_group |= turns.turn(now, groups)
        return {group: pressures for group, pressures in by_group.items() if pressures}

    def _of_group(self, group: str) -> Pressures | None:
        """None where the group has no such files, or is gone."""
        return _read(lambda resource: self._cgroups.read_raw(group, f"{resource}.pressure")) or None


def _read(read: Callable[[str], bytes]) -> Pressures:
    """Pressure files that can be read. A kernel that was booted with psi=0 refuses with EOPNOTSUPP, one without it with
    ENOENT."""
    by_resource: dict[str, Pressure] = {}
    for resource in RESOURCES:
        try:
            by_resource[resource] = procfs.pressure(read(resource))
        except (OSError, ValueError):
            continue
    return by_resource
