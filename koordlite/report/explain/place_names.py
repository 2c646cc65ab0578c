"""Short names of groups: what people call a QoS class, a pod or a container, whatever kubelet's driver calls its group.

A path is CALLED/FILE. CALLED is `besteffort`, `burstable` or `kubepods` (also `guaranteed`, whose pods lie in it);
a pod as NAME, NAMESPACE/NAME or UID; a container as POD/CONTAINER, CONTAINER or its id. kubelet's cgroupfs names
(`kubepods/besteffort/podUID`) mean the same with the systemd driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from koordlite.model.picture.groups import Layout
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.report.explain import places

CAN_BE = "FILE, besteffort/FILE, burstable/FILE, POD/FILE, POD/CONTAINER/FILE, or the whole path"
"""What can be asked for; a pod is NAME, NAMESPACE/NAME or UID."""
MAX_PODS = 20
_ABOVE = re.compile(r"^(?:kubepods/)?(?:(?:guaranteed|burstable|besteffort)/)?", re.IGNORECASE)


def spellings(path: str, seen: Snapshot | None) -> tuple[str, ...]:
    """Paths that mean the same as `path` on this node; none where it calls nothing by a short name."""
    folder, name = places.split(path)
    if seen is None or not folder:
        return ()
    called = dict.fromkeys([folder, folder.removeprefix("kubepods/"), _ABOVE.sub("", folder)])
    found = [*_classes(called, seen.layout), *_workloads(called, seen)]
    return tuple(dict.fromkeys(f"{each}/{name}" for each in found))


def check(path: str, seen: Snapshot) -> None:
    """ValueError when `path` calls something by a name that nothing on this node has."""
    folder, name = places.split(path)
    if path.startswith("/"):
        return
    if not folder and name not in places.NAMES:
        raise ValueError(f"there is no file {name!r} that a strategy may ask for; name {CAN_BE}")
    if folder and not spellings(path, seen) and not _is_group(folder, seen):
        raise ValueError(f"nothing on this node is called {folder!r}; name {CAN_BE}; its pods: {_pods(seen)}")


def _classes(called: dict[str, None], layout: Layout) -> Iterator[str]:
    groups = {
        "kubepods": layout.kubepods,
        "guaranteed": layout.kubepods,
        "burstable": layout.burstable,
        "besteffort": layout.besteffort,
    }
    yield from (groups[each.lower()] for each in called if each.lower() in groups)


def _workloads(called: dict[str, None], seen: Snapshot) -> Iterator[str]:
    """A pod by its key, which stands for its group and those below; a container by its group."""
    for pod in seen.pods:
        names = _names(pod)
        if not called.keys().isdisjoint(names):
            yield pod.key
        place = seen.places.get(pod.uid)
        for container, group in place.containers.items() if place else ():
            short = {container, group.rpartition("/")[2], _id(group), *(f"{name}/{container}" for name in names)}
            if not called.keys().isdisjoint(short):
                yield group


def _names(pod: Pod) -> tuple[str, ...]:
    return pod.key, pod.key.rpartition("/")[2], pod.uid, f"pod{pod.uid}"


def _id(group: str) -> str:
    """The id of a container: the systemd driver calls its group RUNTIME-ID.scope."""
    name = group.rpartition("/")[2]
    return name.removesuffix(".scope").rpartition("-")[2] if name.endswith(".scope") else name


def _is_group(folder: str, seen: Snapshot) -> bool:
    """A group of the picture, or the end of its path; kernel settings and resctrl have names of their own."""
    known = (*seen.cgroups, "system", "resctrl", *(f"resctrl/{name}" for name in seen.resctrl.groups))
    return any(f"/{group}".endswith(f"/{folder}") for group in known)


def _pods(seen: Snapshot) -> str:
    present = sorted(pod.key for pod in seen.pods)
    more = f" and {len(present) - MAX_PODS} more" if len(present) > MAX_PODS else ""
    return f"{', '.join(present[:MAX_PODS])}{more}" if present else "none"
