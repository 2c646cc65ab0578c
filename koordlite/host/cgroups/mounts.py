"""Cgroup version that holds the CPU controllers of this machine, and their mount points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.host import procfs
from koordlite.host.procfs import Mount
from koordlite.model.errors import HardwareAbsent
from koordlite.ports import Files

_ROOT = "/sys/fs/cgroup"
_V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "perf_event")


class CgroupMounts(msgspec.Struct, frozen=True):
    """The version to use, and the folder of each controller's hierarchy; v2 has one for all, under the empty name."""

    version: int
    points: Mapping[str, str]


def find(files: Files) -> CgroupMounts:
    """Hierarchy to work in: v1 when the cpu controller is mounted as v1 (also on a hybrid machine), else v2.

    HardwareAbsent when there is neither. Without a mounts file, as in a recording, the usual folders tell.
    """
    mounted = procfs.mounts(files)
    if not mounted:
        return _by_folders(files)
    legacy = [mount for mount in mounted if mount.type == "cgroup"]
    if any("cpu" in mount.options for mount in legacy):
        return CgroupMounts(1, {name: _v1_point(legacy, name) for name in _V1_CONTROLLERS})
    unified = [mount.point for mount in mounted if mount.type == "cgroup2"]
    if not unified:
        raise HardwareAbsent("cgroup cpu controller", "no cgroup file system with it is mounted")
    return _v2(files, _preferred(unified))


def _by_folders(files: Files) -> CgroupMounts:
    names = _names(files, _ROOT)
    if "cpu/" in names or "cpu,cpuacct/" in names:
        return CgroupMounts(1, {name: f"{_ROOT}/{_v1_folder(names, name)}" for name in _V1_CONTROLLERS})
    if "cgroup.controllers" in names:
        return _v2(files, _ROOT)
    raise HardwareAbsent("cgroup cpu controller", f"{_ROOT} holds neither cpu (v1) nor cgroup.controllers (v2)")


def _v2(files: Files, point: str) -> CgroupMounts:
    offered = files.read(f"{point}/cgroup.controllers").decode().split()
    if "cpu" not in offered:
        raise HardwareAbsent(
            "cgroup cpu controller", f"{point}/cgroup.controllers offers {', '.join(offered) or 'nothing'}"
        )
    return CgroupMounts(2, {"": point})


def _v1_point(legacy: Sequence[Mount], controller: str) -> str:
    """A controller that is not mounted gets its usual folder: reading there says ENOENT, as it should."""
    points = [mount.point for mount in legacy if controller in mount.options]
    return _preferred(points) if points else f"{_ROOT}/{controller}"


def _preferred(points: Sequence[str]) -> str:
    """The same hierarchy may be mounted more than once in a container: the usual place, else the first."""
    return next((point for point in points if point == _ROOT or point.startswith(f"{_ROOT}/")), points[0])


def _v1_folder(names: Iterable[str], controller: str) -> str:
    """`cpu` and `cpuacct` are often one hierarchy called `cpu,cpuacct`."""
    joint = (name.rstrip("/") for name in names if controller in name.rstrip("/").split(","))
    return next(iter(sorted(joint, key=len)), controller)


def _names(files: Files, folder: str) -> Sequence[str]:
    try:
        return files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
