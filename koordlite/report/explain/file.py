"""`koordlite explain file PATH`: which decision is behind a file, our last write of it, and who else wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from koordlite.changes import block_device, system
from koordlite.formulas import system_settings
from koordlite.model import file_names
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot, pod_names, pods_with_groups
from koordlite.report.explain import pieces
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import Remembered
from koordlite.report.tick import UNSEEN, Tick
from koordlite.resctrl.values import BANDWIDTHS, CACHES

MAX_PLACES, MAX_LISTED = 20, 8
_CGROUP = re.compile(r"^/sys/fs/cgroup/(?:(?:cpu|cpuset|cpuacct|cpu,cpuacct|memory|blkio)/)?")
_RESCTRL = re.compile(r"^/sys/fs/resctrl/")
_OOM = re.compile(r"^/proc/(\d+)/oom_score_adj$")
_ABOVE = re.compile(r"^(?:kubepods/)?(?:(?:guaranteed|burstable|besteffort)/)?", re.IGNORECASE)
_SETTINGS = {path: name for name, paths in system_settings.PATHS.items() for path in paths}
_FORMS = "FILE, besteffort/FILE, burstable/FILE, POD/FILE, POD/CONTAINER/FILE, or the whole path"
"""Forms of a question; a pod is NAME, NAMESPACE/NAME or UID."""


def answer(path: str, tick: Tick, past: Remembered) -> Answer:
    """The places that `path` means, those that another program wrote or that were refused first; the lines are of the
    first `MAX_PLACES`. ValueError when no path is given, or one of something that is not there.

    Every place counts that some decision asks for, or that was written or fought over.
    """
    if not path:
        raise ValueError("name a file: explain file PATH")
    groups, fought = pod_groups(tick.snapshot), {*past.foreign, *(trouble.place for trouble in tick.troubles)}
    every = {change.place for decision in tick.decisions for change in decision.changes} | {*past.writes, *fought}
    question = Question(path, tick.snapshot)
    places = [place for place in every if question.means(place)]
    if not places and tick.snapshot is not UNSEEN:
        question.check()
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


def _fields() -> Mapping[str, set[str]]:
    """File name → the logical fields that lie in it, on either version."""
    fields: dict[str, set[str]] = {"schemata": {*CACHES, *BANDWIDTHS}}
    for field, names in {**file_names.CGROUP, **file_names.BLOCK}.items():
        for name in names:
            fields.setdefault(name, set()).add(field)
    return fields


FIELDS = _fields()


class Question:
    """A file as somebody calls it, and what that means on one node."""

    def __init__(self, path: str, snapshot: Snapshot) -> None:
        self._path, self._snapshot = path, snapshot
        if path in _SETTINGS:
            self._folder, self._name = "system", _SETTINGS[path]
        else:
            folder, _, self._name = _CGROUP.sub("", _RESCTRL.sub("resctrl/", path)).rpartition("/")
            self._folder = folder.rstrip("/")
        names = {self._folder, self._folder.removeprefix("kubepods/"), _ABOVE.sub("", self._folder)} - {""}
        layout = snapshot.layout
        classes = {
            "kubepods": layout.kubepods,
            "guaranteed": layout.kubepods,
            "burstable": layout.burstable,
            "besteffort": layout.besteffort,
        }
        self._groups = {classes[each.lower()] for each in names if each.lower() in classes}
        """Groups that the folder means by a short name."""
        self._pods: set[str] = set()
        """Pods that it names: their groups are meant, and those below."""
        for pod in snapshot.pods:
            aliases = pod.key, pod.name, pod.uid, f"pod{pod.uid}"
            if not names.isdisjoint(aliases):
                self._pods.add(pod.key)
            place = snapshot.places.get(pod.uid)
            for container, group in place.containers.items() if place else ():
                # The group's name has the container's id: RUNTIME-ID.scope with the systemd driver.
                own = group.rpartition("/")[2]
                scope = own.removesuffix(".scope").rpartition("-")[2] if own.endswith(".scope") else own
                if not names.isdisjoint({container, own, scope, *(f"{name}/{container}" for name in aliases)}):
                    self._groups.add(group)
        self._below = tuple(f"{group}/" for pod, group in pod_groups(snapshot).items() if pod in self._pods)
        self._written = (path, *(f"{group}/{self._name}" for group in self._groups))
        """Parts of the places that are meant, as they are written: the file's name may be cut short."""

    def means(self, place: Place) -> bool:
        """Tell whether this place is meant: by its file and the end of its folder, by part of it as it is written, or
        by a short name of its group. A disk may be named with the group."""
        process = _OOM.match(self._path)
        if process:
            return place.kind is system.OOM_SCORE and place.part("pid") == process[1]
        if any(part in str(place) for part in self._written):
            return True
        if place.kind is system.SETTING:
            holder, field = "system", place.part("name")
        elif place.kind.is_resctrl:
            holder, field = f"resctrl/{place.part('group')}".rstrip("/"), place.part("resource")
        else:
            holder, field = place.part("cgroup"), place.part("field")
        if not field or field not in FIELDS.get(self._name, {self._name}):
            return False
        ends = [holder, f"{holder}/{place.part('device')}"] if place.kind is block_device.PLACE else [holder]
        return (
            not self._folder
            or any(f"/{end}".endswith(f"/{self._folder}") for end in ends)
            or holder in self._groups
            or f"{holder}/".startswith(self._below)
        )

    def check(self) -> None:
        """ValueError when something is called by a name that nothing on this node has: neither a pod or container, nor
        a group of the picture by the end of its path. Kernel settings and resctrl have names of their own."""
        folder, name, snapshot = self._folder, self._name, self._snapshot
        if self._path.startswith("/"):
            return
        if not folder and name not in FIELDS and all(name not in fields for fields in FIELDS.values()):
            raise ValueError(f"there is no file {name!r} that a strategy may ask for; name {_FORMS}")
        groups = (*snapshot.cgroups, "system", "resctrl", *(f"resctrl/{group}" for group in snapshot.resctrl.groups))
        ends = any(f"/{each}".endswith(f"/{folder}") for each in groups)
        if folder and not (self._groups or self._pods or ends):
            pods = pod_names(snapshot)
            raise ValueError(f"nothing on this node is called {folder!r}; name {_FORMS}; its pods: {pods}")


def pod_groups(snapshot: Snapshot) -> dict[str, str]:
    """Cgroup by pod, `namespace/name`, of the pods that have one."""
    return {pod.key: place.group for pod, place in pods_with_groups(snapshot)}


def pod_of(place: Place, groups: Mapping[str, str]) -> str:
    """The pod, `namespace/name`, in whose cgroup the place is; empty when it is in no pod's."""
    inside = f"{place.part('cgroup')}/"
    return next((pod for pod, group in groups.items() if inside.startswith(f"{group}/")), "")
