"""Containers that have begun and that their pod's status does not name yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from koordlite.host import container_name
from koordlite.host.bundle import Host
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.values import Pod


def names(
    host: Host,
    pods: Iterable[Pod],
    places: Mapping[str, PodGroups],
    groups: Collection[str],
    *,
    told: Mapping[str, str],
) -> dict[str, str]:
    """Container by group, of those of `groups`, and of the groups below pods in `groups`, that no status names.

    What the runtime has `told` goes before what mounts say, which are made only later.
    """
    parents = {group.rpartition("/")[0] for group in groups}
    asked = (
        (pod.uid, group)
        for pod in pods
        if (place := places.get(pod.uid)) and (place.group in parents or place.group in groups)
        for group in place.sandboxes
        if group in groups or place.group in groups
    )
    found = ((group, told.get(group) or container_name.of_group(host, group, uid)) for uid, group in asked)
    return {group: name for group, name in found if name}
