"""`koordlite explain file PATH`: which decision is behind a file, our last write of it, and who else wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from koordlite.changes import block_device, system
from koordlite.formulas import system_settings
from koordlite.model import file_names
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Layout
from koordlite.model.place import Place
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.report.explain import pieces
from koordlite.report.history import Remembered
from koordlite.report.json import run_report
from koordlite.report.tick import UNSEEN, Tick
from koordlite.resctrl.values import BANDWIDTHS, CACHES

SUBJECT = "file "
"""Prefix of such a question."""
MAX_PLACES = 20
MAX_KNOWN = 8


def text(path: str, tick: Tick, past: Remembered) -> str:
    """The answer as lines; ValueError when no path is given, or one of something that is not there."""
    found, groups = matching(path, tick, past), pod_groups(tick.snapshot)
    shown = [(place, pod_of(place, groups)) for place in found[:MAX_PLACES]]
    lines = [line for place, pod in shown for line in (*_about(place, pod, tick, past), "")]
    if len(found) > MAX_PLACES:
        lines.append(f"and {len(found) - MAX_PLACES} more files; name a group or a pod: explain file POD/FILE")
    return "\n".join(lines or _nothing(path, tick, past)).rstrip("\n") + "\n"


def document(path: str, tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values, every file."""
    groups = pod_groups(tick.snapshot)
    files = [
        {
            **pieces.place_document(place, tick, past),
            "pod": pod_of(place, groups),
            "decisions": [run_report.decided(decision) for decision in behind(place, tick, past)],
        }
        for place in matching(path, tick, past)
    ]
    return {"files": files}


def matching(path: str, tick: Tick, past: Remembered) -> list[Place]:
    """The places that `path` means, those that another program wrote or that were refused first.

    ValueError when nothing on the node has the name that `path` calls it by.
    """
    if not path:
        raise ValueError("name a file: explain file PATH")
    fought = {*past.foreign, *(found.place for found in tick.troubles)}
    groups = pod_groups(tick.snapshot)
    spelled = (path, *spellings(path, tick.snapshot))
    found = [p for p in known(tick, past) if any(concerns(each, p, groups) for each in spelled)]
    if not found and tick.snapshot is not UNSEEN:
        check(path, tick.snapshot)
    return sorted(found, key=lambda place: (place not in fought, place))


def known(tick: Tick, past: Remembered) -> set[Place]:
    """Every place some decision asks for, or that was written or fought over."""
    asked = {change.place for decision in tick.decisions for change in decision.changes}
    return {*asked, *past.writes, *past.foreign, *(found.place for found in tick.troubles)}


def behind(place: Place, tick: Tick, past: Remembered) -> list[Decision]:
    """The decisions of this tick that ask for the place, else the present ones of whoever asked for the last write."""
    asking = [d for d in tick.decisions if any(change.place == place for change in d.changes)]
    cause = past.writes[place].cause if place in past.writes else None
    if asking or cause is None:
        return asking
    return [d for d in tick.decisions if (d.strategy, d.subject) == (cause.strategy, cause.subject)]


def _about(place: Place, pod: str, tick: Tick, past: Remembered) -> Iterator[str]:
    yield f"{place}{f'  (pod {pod})' if pod else ''}"
    decisions = behind(place, tick, past)
    for decision in decisions:
        yield f"  at present: {pieces.one_line(decision)}"
    if not decisions:
        yield "  at present no strategy asks for it"
    history = list(pieces.about_place(place, tick, past))
    yield from (f"  {line}" for line in history or ["not written in this run"])


def _nothing(path: str, tick: Tick, past: Remembered) -> Sequence[str]:
    """Also an answer: then another program wrote it."""
    return [
        f"{path}: no strategy asks for it and this agent has not written it in this run; "
        "if it changed, another program changed it",
        *_some(known(tick, past)),
    ]


def _some(found: Iterable[Place]) -> Iterator[str]:
    listed = sorted(map(str, found))
    if listed:
        more = f" and {len(listed) - MAX_KNOWN} more" if len(listed) > MAX_KNOWN else ""
        yield f"files and objects this agent deals with: {', '.join(listed[:MAX_KNOWN])}{more}"


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
"""Names of a file: the kernel's, or the logical field in it."""
_SETTINGS = {path: name for name, paths in system_settings.PATHS.items() for path in paths}


def pod_groups(snapshot: Snapshot) -> dict[str, str]:
    """Cgroup by pod, `namespace/name`, of the pods that have one."""
    placed = ((pod, snapshot.places.get(pod.uid)) for pod in snapshot.pods)
    return {pod.key: place.group for pod, place in placed if place}


def concerns(path: str, place: Place, groups: Mapping[str, str]) -> bool:
    """Tell whether `path` means `place`. By `groups` (`pod_groups`) a pod may stand for its cgroup."""
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


CAN_BE = "FILE, besteffort/FILE, burstable/FILE, POD/FILE, POD/CONTAINER/FILE, or the whole path"
"""Forms of a question; a pod is NAME, NAMESPACE/NAME or UID."""
MAX_PODS = 20
_ABOVE = re.compile(r"^(?:kubepods/)?(?:(?:guaranteed|burstable|besteffort)/)?", re.IGNORECASE)


def spellings(path: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Paths that mean the same as `path` on this node; none where it calls nothing by a short name."""
    folder, name = split(path)
    if not folder:
        return ()
    called = dict.fromkeys([folder, folder.removeprefix("kubepods/"), _ABOVE.sub("", folder)])
    found = [*_classes(called, snapshot.layout), *_workloads(called, snapshot)]
    return tuple(dict.fromkeys(f"{each}/{name}" for each in found))


def check(path: str, snapshot: Snapshot) -> None:
    """ValueError when `path` calls something by a name that nothing on this node has."""
    folder, name = split(path)
    if path.startswith("/"):
        return
    if not folder and name not in NAMES:
        raise ValueError(f"there is no file {name!r} that a strategy may ask for; name {CAN_BE}")
    if folder and not spellings(path, snapshot) and not _is_group(folder, snapshot):
        raise ValueError(f"nothing on this node is called {folder!r}; name {CAN_BE}; its pods: {pod_names(snapshot)}")


def _classes(called: dict[str, None], layout: Layout) -> Iterator[str]:
    groups = {
        "kubepods": layout.kubepods,
        "guaranteed": layout.kubepods,
        "burstable": layout.burstable,
        "besteffort": layout.besteffort,
    }
    yield from (groups[each.lower()] for each in called if each.lower() in groups)


def _workloads(called: dict[str, None], snapshot: Snapshot) -> Iterator[str]:
    """A pod by its key, which stands for its group and those below; a container by its group."""
    for pod in snapshot.pods:
        names = _pod_names(pod)
        if not called.keys().isdisjoint(names):
            yield pod.key
        place = snapshot.places.get(pod.uid)
        for container, group in place.containers.items() if place else ():
            short = {container, group.rpartition("/")[2], _id(group), *(f"{name}/{container}" for name in names)}
            if not called.keys().isdisjoint(short):
                yield group


def _pod_names(pod: Pod) -> tuple[str, ...]:
    return pod.key, pod.key.rpartition("/")[2], pod.uid, f"pod{pod.uid}"


def _id(group: str) -> str:
    """The id of a container: the systemd driver calls its group RUNTIME-ID.scope."""
    name = group.rpartition("/")[2]
    return name.removesuffix(".scope").rpartition("-")[2] if name.endswith(".scope") else name


def _is_group(folder: str, snapshot: Snapshot) -> bool:
    """A group of the picture, or the end of its path; kernel settings and resctrl have names of their own."""
    known = (*snapshot.cgroups, "system", "resctrl", *(f"resctrl/{name}" for name in snapshot.resctrl.groups))
    return any(f"/{group}".endswith(f"/{folder}") for group in known)


def pod_names(snapshot: Snapshot) -> str:
    """The pods of the node for a message: more names do not help to find a mistyped one."""
    present = sorted(pod.key for pod in snapshot.pods)
    more = f" and {len(present) - MAX_PODS} more" if len(present) > MAX_PODS else ""
    return f"{', '.join(present[:MAX_PODS])}{more}" if present else "none"
