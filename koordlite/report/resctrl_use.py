"""What classes and pods use of caches and memory bandwidth: the measurements of resctrl groups with their owners."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlite.model.pod import resctrl_protocol as resctrl
from koordlite.model.snapshot import Snapshot
from koordlite.resctrl.values import CacheUse


class OwnedUse(msgspec.Struct, frozen=True):
    """One cache as one owner uses it. A class has no pod; a pod has the class it counts with, which includes it."""

    qos: str
    cache: int
    use: CacheUse
    namespace: str = ""
    pod: str = ""


def rows(seen: Snapshot) -> tuple[OwnedUse, ...]:
    """Every measurement of a class and of a pod that has a group; the root group belongs to no pod."""
    pods = {pod.uid: pod for pod in seen.pods}
    found: list[OwnedUse] = []
    for group, by_cache in sorted(seen.resctrl.use.items()):
        pod = pods.get(resctrl.uid_of(group))
        for cache, use in sorted(by_cache.items()):
            if group in resctrl.CLASS_GROUPS:
                found.append(OwnedUse(group, cache, use))
            elif pod is not None:
                found.append(OwnedUse(str(pod.qos_class), cache, use, pod.namespace, pod.name))
    return tuple(found)


def bandwidths(use: CacheUse) -> Iterator[tuple[str, float]]:
    """Bytes per second by Koordinator's word for what is counted; nothing for what the hardware could not say."""
    for word, rate in (("local", use.local_bytes_per_second), ("total", use.total_bytes_per_second)):
        if rate is not None:
            yield word, rate
