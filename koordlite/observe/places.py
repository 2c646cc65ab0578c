"""Which cgroup belongs to which pod and container, and what the groups hold at present."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordlite.host.cgroupfs import Cgroups
from koordlite.model.pod import Pod
from koordlite.model.snapshot import Cgroup, Place


def find(cgroups: Cgroups, pods: Iterable[Pod]) -> dict[str, Place]:
    """Place by pod uid; a pod whose group is not there (yet, or any more) has none."""
    found: dict[str, Place] = {}
    for pod in pods:
        place = _place(cgroups, pod)
        if place:
            found[pod.uid] = place
    return found


def states(cgroups: Cgroups, places: Iterable[Place], others: Iterable[str] = ()) -> dict[str, Cgroup]:
    """Present values of kubelet's own groups, of the whole besteffort tree (also pods we do not know), of the
    groups in `places` and of `others`. A group that vanishes meanwhile is left out."""
    layout = cgroups.layout
    wanted = [layout.kubepods, layout.burstable, *_tree(cgroups, layout.besteffort)]
    for place in places:
        wanted += [place.group, *place.containers.values(), *place.sandboxes]
    wanted += others
    return {group: state for group in dict.fromkeys(wanted) if (state := _state(cgroups, group)) is not None}


def _place(cgroups: Cgroups, pod: Pod) -> Place | None:
    group = cgroups.pod_group(pod.uid, pod.kube_qos)
    try:
        children = {f"{group}/{name}" for name in cgroups.children(group)}
    except OSError:
        return None
    containers: dict[str, str] = {}
    for container in pod.containers:
        path = _container_group(cgroups, group, container.id)
        if path in children:
            containers[container.name] = path
    return Place(group, containers, tuple(sorted(children - set(containers.values()))))


def _container_group(cgroups: Cgroups, pod_group: str, container_id: str) -> str:
    try:
        return cgroups.container_group(pod_group, container_id) or ""
    except ValueError:
        return ""  # A runtime we do not know; its containers count as sandboxes and still get the pod's set.


def _tree(cgroups: Cgroups, group: str) -> Iterator[str]:
    yield group
    try:
        names = cgroups.children(group)
    except OSError:
        return
    for name in names:
        yield from _tree(cgroups, f"{group}/{name}")


def _state(cgroups: Cgroups, group: str) -> Cgroup | None:
    try:
        return cgroups.state(group)
    except OSError:
        return None
