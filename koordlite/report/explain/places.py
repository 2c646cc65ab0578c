"""From a file as people name it to the places of decisions and writes: `…/cpu.max` with or without its mount point.

A place is what `Change.place` says: the same on cgroup v1 and v2, `…/cpu.quota` for `cpu.max` and `cpu.cfs_quota_us`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from koordlite.changes import block_device, system
from koordlite.formulas import system_settings
from koordlite.model import file_names
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.resctrl.values import BANDWIDTHS, CACHES

_CGROUP = re.compile(r"^/sys/fs/cgroup/(?:(?:cpu|cpuset|cpuacct|cpu,cpuacct|memory|blkio)/)?")
_RESCTRL = re.compile(r"^/sys/fs/resctrl/")
_OOM = re.compile(r"^/proc/(\d+)/oom_score_adj$")


def _fields() -> Mapping[str, frozenset[str]]:
    """File name → the logical fields that lie in it, on either version."""
    found: dict[str, set[str]] = {"schemata": {*CACHES, *BANDWIDTHS}}
    for field, names in {**file_names.CGROUP, **file_names.BLOCK}.items():
        for name in names:
            found.setdefault(name, set()).add(field)
    return {name: frozenset(fields) for name, fields in found.items()}


FIELDS = _fields()
NAMES = frozenset((*FIELDS, *(field for fields in FIELDS.values() for field in fields)))
"""What a file may be called: by the kernel, or by the logical field in it."""
_SETTINGS = {path: name for name, paths in system_settings.PATHS.items() for path in paths}


def groups(seen: Snapshot | None) -> dict[str, str]:
    """Cgroup by pod, `namespace/name`, of the pods that have one."""
    if seen is None:
        return {}
    placed = ((pod, seen.places.get(pod.uid)) for pod in seen.pods)
    return {pod.key: place.group for pod, place in placed if place}


def concerns(path: str, place: Place, groups: Mapping[str, str]) -> bool:
    """Whether `path` means `place`. By `groups` (see there) a pod may stand for its cgroup."""
    if not path:
        return False
    process = _OOM.match(path)
    if process:
        return place.kind is system.OOM_SCORE and place.part("pid") == process[1]
    if path in str(place):
        return True
    folder, name = split(path)
    holder, field = _file(place)
    if not field or field not in FIELDS.get(name, {name}):
        return False
    return not folder or _inside(folder, holder, place) or _of_pod(folder, holder, groups)


def _file(place: Place) -> tuple[str, str]:
    """Folder and field of a place, as `split` names them; no field where it is no file."""
    if place.kind is system.SETTING:
        return "system", place.part("name")
    if place.kind.is_resctrl:
        return f"resctrl/{place.part('group')}".rstrip("/"), place.part("resource")
    return place.part("cgroup"), place.part("field")


def split(path: str) -> tuple[str, str]:
    """Folder and file, without the mount point; what has a place of another form in that form."""
    if path in _SETTINGS:
        return "system", _SETTINGS[path]
    text = _CGROUP.sub("", _RESCTRL.sub("resctrl/", path))
    folder, _, name = text.rpartition("/")
    return folder.rstrip("/"), name


def pod_of(place: Place, groups: Mapping[str, str]) -> str:
    """The pod, `namespace/name`, in whose cgroup the place is; empty when it is in no pod's."""
    inside = f"{place.part('cgroup')}/"
    return next((pod for pod, group in groups.items() if inside.startswith(f"{group}/")), "")


def _inside(folder: str, holder: str, place: Place) -> bool:
    """The folder is the holder's, or the end of it; a disk may be named with it."""
    ends = [holder, f"{holder}/{place.part('device')}"] if place.kind is block_device.PLACE else [holder]
    return any(end == folder or end.endswith(f"/{folder}") for end in ends)


def _of_pod(folder: str, holder: str, groups: Mapping[str, str]) -> bool:
    return any(f"{holder}/".startswith(f"{groups[pod]}/") for pod in _named(folder, groups))


def _named(folder: str, groups: Mapping[str, str]) -> Iterator[str]:
    yield from (pod for pod in groups if pod == folder or pod.endswith(f"/{folder}"))
