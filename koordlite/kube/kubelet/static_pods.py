"""Static pods: kubelet runs them from files, and shows each at the API server as a mirror with a uid of its own.

On the node (cgroups, checkpoints, kubelet's /pods) such a pod goes by kubelet's uid, which the mirror carries in an
annotation. Source: kubelet `applyDefaults` and `CreateMirrorPod`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from koordlite.model.wire import objects

MIRROR = "kubernetes.io/config.mirror"
"""On a mirror: the uid of its static pod."""
SOURCE = "kubernetes.io/config.source"
"""On any pod kubelet reports: `api`, or where the static pod comes from."""
WHY = "it is a static pod, which no eviction ends: change its file on the node"


class PodsOnNode:
    """Pods under the uids they have on the node. What did not change stays the same object."""

    def __init__(self) -> None:
        self._reported: Mapping[str, objects.PodObject] | None = None
        self._pods: tuple[objects.PodObject, ...] = ()
        self._renamed: dict[str, tuple[objects.PodObject, objects.PodObject]] = {}

    def of(self, reported: Mapping[str, objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods of one mapping, which does not change afterwards."""
        if reported is not self._reported:
            before, self._renamed = self._renamed, {}
            self._reported, self._pods = (
                reported,
                tuple(self._on_node(key, pod, before) for key, pod in reported.items()),
            )
        return self._pods

    def _on_node(
        self, key: str, pod: objects.PodObject, before: Mapping[str, tuple[objects.PodObject, objects.PodObject]]
    ) -> objects.PodObject:
        uid = (pod.metadata.annotations or {}).get(MIRROR)
        if not uid:
            return pod
        held = before.get(key)
        fresh = held if held and held[0] is pod else (pod, _with_uid(pod, uid))
        self._renamed[key] = fresh
        return fresh[1]


def is_static(pod: objects.PodObject) -> bool:
    """Whether kubelet runs it from a file or a URL."""
    notes = pod.metadata.annotations or {}
    return MIRROR in notes or notes.get(SOURCE, "api") != "api"


def _with_uid(pod: objects.PodObject, uid: str) -> objects.PodObject:
    return structs.replace(pod, metadata=structs.replace(pod.metadata, uid=uid))
