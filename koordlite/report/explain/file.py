"""`koordlite explain file PATH`: which decision is behind a file, our last write of it, and who else wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from koordlite.changes import block_device, system
from koordlite.formulas import system_settings
from koordlite.model import file_names
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot, pods_with_groups
from koordlite.report.explain import pieces
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import Remembered
from koordlite.report.tick import UNSEEN, Tick
from koordlite.resctrl.values import BANDWIDTHS, CACHES

MAX_PLACES = 20
MAX_LISTED = 8


def answer(path: str, tick: Tick, past: Remembered) -> Answer:
    """The places that `path` means, those that another program wrote or that were refused first; the lines are of the
    first `MAX_PLACES`. ValueError when no path is given, or one of something that is not there.

    Every place counts that some decision asks for, or that was written or fought over.
    """
    if not path:
        raise ValueError("name a file: explain file PATH")
    groups, fought = pod_groups(tick.snapshot), {*past.foreign, *(trouble.place for trouble in tick.troubles)}
    every = {change.place for decision in tick.decisions for change in decision.changes} | {*past.writes, *fought}
    spellings = (path, *_spellings(path, tick.snapshot))
    places = [place for place in every if any(concerns(each, place, groups) for each in spellings)]
    if not places and tick.snapshot is not UNSEEN:
        _check(path, tick.snapshot)
    lines, files = [], []
    for place in sorted(places, key=lambda place: (place not in fought, place)):
        pod = pod_of(place, groups)
        # The decisions of this tick that ask for it, else the present ones of whoever asked for the last write.
        decisions = [d for d in tick.decisions if any(change.place == place for change in d.changes)]
        cause = past.writes[place].cause if place in past.writes else None
        if cause and not decisions:
            decisions = [d for d in tick.decisions if (d.strategy, d.subject) == (cause.strategy, cause.subject)]
        document = {"pod": pod, "decisions": pieces.documents(decisions)}
        files.append({**pieces.place_document(place, tick, past), **document})
        if len(files) <= MAX_PLACES:
            requests = [f"at present: {pieces.one_line(decision)}" for decision in decisions]
            writes = [*pieces.about_place(place, tick, past)] or ["not written in this run"]
            about = (*(requests or ["at present no strategy asks for it"]), *writes)
            lines += [f"{place}{f'  (pod {pod})' if pod else ''}", *(f"  {line}" for line in about), ""]
    if len(files) > MAX_PLACES:
        lines.append(f"and {len(files) - MAX_PLACES} more files; name a group or a pod: explain file POD/FILE")
    if not files:
        nobody = "no strategy asks for it and this agent has not written it in this run"
        lines.append(f"{path}: {nobody}; if it changed, another program changed it")
        listed = sorted(map(str, every))
        more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
        if listed:
            lines.append(f"files and objects this agent deals with: {', '.join(listed[:MAX_LISTED])}{more}")
    return Answer(lines if lines[-1] else lines[:-1], {"files": files})


_CGROUP = re.compile(r"^/sys/fs/cgroup/(?:(?:cpu|cpuset|cpuacct|cpu,cpuacct|memory|blkio)/)?")
_RESCTRL = re.compile(r"^/sys/fs/resctrl/")
_OOM = re.compile(r"^/proc/(\d+)/oom_score_adj$")


def _fields() -> Mapping[str, set[str]]:
    """File name → the logical fields that lie in it, on either version."""
    fields: dict[str, set[str]] = {"schemata": {*CACHES, *BANDWIDTHS}}
    for field, names in {**file_names.CGROUP, **file_names.BLOCK}.items():
        for name in names:
            fields.setdefault(name, set()).add(field)
    return fields


FIELDS = _fields()
NAMES = frozenset((*FIELDS, *(field for fields in FIELDS.values() for field in fields)))
"""Names of a file: the kernel's, or the logical field in it."""
_SETTINGS = {path: name for name, paths in system_settings.PATHS.items() for path in paths}


def pod_groups(snapshot: Snapshot) -> dict[str, str]:
    """Cgroup by pod, `namespace/name`, of the pods that have one."""
    return {pod.key: place.group for pod, place in pods_with_groups(snapshot)}


def concerns(path: str, place: Place, groups: Mapping[str, str]) -> bool:
    """Tell whether `path` means `place`. By `groups` (`pod_groups`) a pod may stand for its cgroup, a folder for the
    group whose path ends with it; a disk may be named with the group."""
    if not path:
        return False
    process = _OOM.match(path)
    if process:
        return place.kind is system.OOM_SCORE and place.part("pid") == process[1]
    if path in str(place):
        return True
    if place.kind is system.SETTING:
        holder, field = "system", place.part("name")
    elif place.kind.is_resctrl:
        holder, field = f"resctrl/{place.part('group')}".rstrip("/"), place.part("resource")
    else:
        holder, field = place.part("cgroup"), place.part("field")
    folder, name = _split(path)
    if not field or field not in FIELDS.get(name, {name}):
        return False
    ends = [holder, f"{holder}/{place.part('device')}"] if place.kind is block_device.PLACE else [holder]
    pods = (group for pod, group in groups.items() if f"/{pod}".endswith(f"/{folder}"))
    return (
        not folder
        or any(f"/{end}".endswith(f"/{folder}") for end in ends)
        or any(f"{holder}/".startswith(f"{group}/") for group in pods)
    )


def _split(path: str) -> tuple[str, str]:
    """Folder and file, without the mount point; what has a place of another form in that form."""
    if path in _SETTINGS:
        return "system", _SETTINGS[path]
    folder, _, name = _CGROUP.sub("", _RESCTRL.sub("resctrl/", path)).rpartition("/")
    return folder.rstrip("/"), name


def pod_of(place: Place, groups: Mapping[str, str]) -> str:
    """The pod, `namespace/name`, in whose cgroup the place is; empty when it is in no pod's."""
    inside = f"{place.part('cgroup')}/"
    return next((pod for pod, group in groups.items() if inside.startswith(f"{group}/")), "")


_FORMS = "FILE, besteffort/FILE, burstable/FILE, POD/FILE, POD/CONTAINER/FILE, or the whole path"
"""Forms of a question; a pod is NAME, NAMESPACE/NAME or UID."""
MAX_PODS = 20
_ABOVE = re.compile(r"^(?:kubepods/)?(?:(?:guaranteed|burstable|besteffort)/)?", re.IGNORECASE)


def _spellings(path: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Paths that mean the same as `path` on this node; none where it calls nothing by a short name."""
    folder, name = _split(path)
    if not folder:
        return ()
    names = dict.fromkeys([folder, folder.removeprefix("kubepods/"), _ABOVE.sub("", folder)])
    layout = snapshot.layout
    classes = {
        "kubepods": layout.kubepods,
        "guaranteed": layout.kubepods,
        "burstable": layout.burstable,
        "besteffort": layout.besteffort,
    }
    folders = [classes[each.lower()] for each in names if each.lower() in classes]
    return tuple(dict.fromkeys(f"{each}/{name}" for each in (*folders, *_workloads(names, snapshot))))


def _check(path: str, snapshot: Snapshot) -> None:
    """ValueError when `path` calls something by a name that nothing on this node has: neither a pod or container, nor
    a group of the picture by the end of its path. Kernel settings and resctrl have names of their own."""
    folder, name = _split(path)
    if path.startswith("/"):
        return
    if not folder and name not in NAMES:
        raise ValueError(f"there is no file {name!r} that a strategy may ask for; name {_FORMS}")
    groups = (*snapshot.cgroups, "system", "resctrl", *(f"resctrl/{group}" for group in snapshot.resctrl.groups))
    if folder and not _spellings(path, snapshot) and not any(f"/{each}".endswith(f"/{folder}") for each in groups):
        raise ValueError(f"nothing on this node is called {folder!r}; name {_FORMS}; its pods: {pod_names(snapshot)}")


def _workloads(names: dict[str, None], snapshot: Snapshot) -> Iterator[str]:
    """A pod by its key, which stands for its group and those below; a container by its group, whose name has the
    container's id: RUNTIME-ID.scope with the systemd driver."""
    for pod in snapshot.pods:
        aliases = pod.key, pod.key.rpartition("/")[2], pod.uid, f"pod{pod.uid}"
        if not names.keys().isdisjoint(aliases):
            yield pod.key
        place = snapshot.places.get(pod.uid)
        for container, group in place.containers.items() if place else ():
            own = group.rpartition("/")[2]
            scope = own.removesuffix(".scope").rpartition("-")[2] if own.endswith(".scope") else own
            if not names.keys().isdisjoint({container, own, scope, *(f"{name}/{container}" for name in aliases)}):
                yield group


def pod_names(snapshot: Snapshot) -> str:
    """The pods of the node for a message: more names do not help to find a mistyped one."""
    keys = sorted(pod.key for pod in snapshot.pods)
    more = f" and {len(keys) - MAX_PODS} more" if len(keys) > MAX_PODS else ""
    return f"{', '.join(keys[:MAX_PODS])}{more}" if keys else "none"
