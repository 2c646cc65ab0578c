"""Folders of pods and containers: which one to look into, and whose a folder is.

Ours are looked at, not watched, and found by the name that a pod's uid gives. So the question "whose is this folder" is
asked the other way round: is there a uid, or a container's id, that gives this name?
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from koordlite.host.cgroups import names as cgroup_names
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.picture.groups import Layout
from koordlite.model.pod.qos import KubeQoS
from tests.conformance.adapters import adapter, machine

TOPS = {"systemd": "kubepods.slice", "cgroupfs": "kubepods"}
RUNTIMES = ("containerd", "docker", "cri-o", "pouch")
WORDS = {"create": "Added", "delete": "Deleted"}


@adapter("pleg.watch_path")
def watch_path(given: Any, expect: Any) -> tuple[Any, Any]:
    layout = machine.layout(given["cgroupVersion"] or 1, given["driver"])
    root, controllers = given["cgroupRootDir"].rstrip("/"), ("cpu", "cpuacct", "cpuset", "memory", "blkio")
    points = {name: f"{root}/{name}" for name in controllers} if layout.version == 1 else {"": root}
    cgroups = Cgroups(None, layout, points)  # type: ignore[arg-type]
    group = cgroups.pod_group("any", KubeQoS(given["kubeQoS"])).rpartition("/")[0]
    return {"path": cgroups.folder(group, "cpu")}, expect


@adapter("pleg.event")
def event(given: Any, expect: Any) -> tuple[Any, Any]:
    layout, path = machine.layout(1, given["driver"]), given["path"].rstrip("/").split("/")
    word = WORDS.get(given["op"])
    if not given.get("isDir", True) or word is None:
        return {"event": None}, expect
    pod, above = _pod(layout, path[-1]), _pod(layout, path[-2]) if len(path) > 1 else None
    container = _container(layout, path[-1])
    if pod:
        return {"event": {"podID": pod, "type": f"pod{word}"}}, expect
    if above and container:
        return {"event": {"podID": above, "type": f"container{word}", "containerID": container}}, expect
    return {"event": None}, expect


@adapter("cgroup.parse_pod_id")
def pod_id(given: Any, expect: Any) -> tuple[Any, Any]:
    uid = _pod(machine.layout(1, given["driver"]), given["basename"])
    return {"id": uid or "", "error": uid is None}, expect


@adapter("cgroup.kube_qos_by_path")
def class_of(given: Any, expect: Any) -> tuple[Any, Any]:
    """The class whose pods have the names of the path: with either driver, from the top or from below it."""
    folders = given["path"].strip("/").split("/")
    below = (qos for qos in (KubeQoS.BEST_EFFORT, KubeQoS.BURSTABLE) if _is_of(qos, folders))
    found = next(below, KubeQoS.GUARANTEED)
    return {"kubeQoS": found.value}, expect


def _is_of(qos: KubeQoS, folders: list[str]) -> bool:
    """Whether a folder is the one of a class, or is named after a pod of it."""
    names = [cgroup_names.pod_group(cgroup_names.layout(1, top), "", qos).split("/")[1:] for top in TOPS.values()]
    classes, pods = [parts[0] for parts in names], [parts[1].removesuffix(".slice") for parts in names]
    systemd_pod = pods[list(TOPS).index("systemd")]
    return any(folder in classes or folder.startswith(systemd_pod) for folder in folders)


def _pod(layout: Layout, folder: str) -> str | None:
    """The uid that gives this name to a pod of some class."""
    groups = (
        (uid, cgroup_names.pod_group(layout, uid, qos)) for uid, qos in itertools.product(_parts(folder), KubeQoS)
    )
    return next((uid for uid, group in groups if group.rpartition("/")[2] == folder), None)


def _container(layout: Layout, folder: str) -> str | None:
    named = itertools.product(_parts(folder), RUNTIMES)
    groups = ((name, cgroup_names.container_group(layout, "pod", f"{runtime}://{name}")) for name, runtime in named)
    return next((name for name, group in groups if group == f"pod/{folder}"), None)


def _parts(folder: str) -> Iterator[str]:
    """Whatever of a name could be an id: what follows `pod` or a dash, or all of it; systemd has `_` for `-`."""
    stem = re.sub(r"\.(slice|scope)\Z", "", folder)
    starts = [match.end() for match in re.finditer(r"pod|-", stem)]
    for start in (0, *starts):
        yield from (part for part in (stem[start:].replace("_", "-"), stem[start:]) if part)
