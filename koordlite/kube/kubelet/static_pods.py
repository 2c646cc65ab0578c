"""Static pods: kubelet runs them from files, and shows each at the API server as a mirror with a uid of its own.

On the node (cgroups, checkpoints, kubelet's /pods) such a pod goes by kubelet's uid, which the mirror carries in an
annotation. Source: kubelet `applyDefaults` and `CreateMirrorPod`.

Whoever may create a pod may write that annotation, so it alone proves nothing. What proves it is a status that names
containers: only kubelet writes a status, and of a pod with this annotation it writes one only for the mirror of a pod
it runs itself; any other it removes. The API server lets nobody add or change the annotation later. Sources: kubelet
`deleteOrphanedMirrorPods`; API server `ValidatePodSpecificAnnotationUpdates` and `podStrategy.PrepareForCreate`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import structs

from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.model.wire import objects

_UID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
"""Kubelet's hash of a file, or a UUID that the file names."""
WHY = "it is a static pod, which no eviction ends: change its file on the node"


class PodsOnNode:
    """Pods under the uids they have on the node. What did not change stays the same object."""

    def __init__(self) -> None:
        self._reported: Mapping[str, objects.PodObject] | None = None
        self._pods: tuple[objects.PodObject, ...] = ()
        self._renamed: dict[str, tuple[objects.PodObject, objects.PodObject]] = {}
        self.problems: tuple[Problem, ...] = ()
        """Mirrors of the last mapping whose annotation is not believed."""

    def of(self, reported: Mapping[str, objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods of one mapping, which does not change afterwards."""
        if reported is not self._reported:
            mirrors, self.problems = _mirrors(reported)
            before, self._renamed = self._renamed, {}
            for key, uid in mirrors.items():
                mirror, same = reported[key], before.get(key)
                # The mirror, and the same under the uid it has on the node.
                if same is None or same[0] is not mirror or same[1].metadata.uid != uid:
                    same = mirror, structs.replace(mirror, metadata=structs.replace(mirror.metadata, uid=uid))
                self._renamed[key] = same
            self._reported = reported
            self._pods = tuple(self._renamed[key][1] if key in mirrors else pod for key, pod in reported.items())
        return self._pods


def is_static(pod: objects.PodObject, *, by_kubelet: bool) -> bool:
    """True if kubelet runs it from a file or a URL. `by_kubelet` says that the pod comes from kubelet's /pods: there
    kubelet has written the source of each pod itself. Else it is one whose mirror `PodsOnNode` has believed."""
    notes = pod.metadata.annotations or {}
    if by_kubelet:
        return notes.get(keys.CONFIG_SOURCE, "api") != "api"
    return notes.get(keys.CONFIG_MIRROR) == pod.metadata.uid


def _mirrors(reported: Mapping[str, objects.PodObject]) -> tuple[dict[str, str], tuple[Problem, ...]]:
    """The uids of static pods by the key of their mirror, and what is wrong with the others. No uid of another pod is
    taken, and of two mirrors of one the older counts."""
    claims = {key: (pod.metadata.annotations or {}).get(keys.CONFIG_MIRROR, "") for key, pod in reported.items()}
    uids = {pod.metadata.uid for pod in reported.values()}
    mirrors: dict[str, str] = {}
    problems: list[Problem] = []
    for key in sorted(
        (key for key, uid in claims.items() if uid),
        key=lambda key: (reported[key].metadata.creation_timestamp or "", key),
    ):
        uid, pod = claims[key], reported[key]
        statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
        why = "it is the uid of another pod on this node" if uid in uids else ""
        if not _UID.fullmatch(uid):
            why = "it is no uid: kubelet's are 32 hexadecimal digits or a UUID"
        if why:
            do = "the pod counts under its own uid; remove it unless kubelet made it"
            name = f"pod/{pod.metadata.namespace}/{pod.metadata.name}"
            problems.append(Problem(name, keys.CONFIG_MIRROR, uid[:80], why, do))
        elif any(each.container_id for each in statuses):
            mirrors[key] = uid
            uids.add(uid)
    return mirrors, tuple(problems)
