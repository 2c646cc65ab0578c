"""Names that kubelet and the container runtimes give the cgroups of pods and containers, for both drivers.

Source: the name tables of Koordinator's `pkg/koordlet/util/system` and kubelet's `cgroup_manager_linux`.
"""

from __future__ import annotations

import re
import sys

from koordlite.host import beneath
from koordlite.model.picture.groups import Layout
from koordlite.model.pod.qos import KubeQoS

_SLICE = ".slice"
_SCOPE = re.compile(r".+-([^-]+)\.scope", re.ASCII)
_SCOPES = {"containerd": "cri-containerd", "docker": "docker", "cri-o": "crio", "pouch": "pouch"}
_KNOWN_SCOPE = re.compile(rf"(?:{'|'.join(_SCOPES.values())})-(.+)\.scope", re.ASCII)
"""Prefixes, tried before the other pattern: an id may have dashes, and `crio-conmon-ID.scope` holds CRI-O's monitor,
not the container."""


def layout(version: int, kubepods: str) -> Layout:
    """The QoS groups below the group `kubepods`; a name that ends in `.slice` is the systemd driver's."""
    if not kubepods.endswith(_SLICE):
        return Layout(version, "cgroupfs", kubepods, f"{kubepods}/burstable", f"{kubepods}/besteffort")
    stem = _stem(kubepods)
    return Layout(
        version,
        "systemd",
        kubepods,
        burstable=f"{kubepods}/{stem}-burstable{_SLICE}",
        besteffort=f"{kubepods}/{stem}-besteffort{_SLICE}",
    )


def pod_group(names: Layout, uid: str, kube_qos: KubeQoS) -> str:
    """The group of the pod with this uid, as kubelet's own /pods reports it (a mirror pod has another at the API).
    ValueError for a uid that would lead out of kubelet's groups."""
    beneath.component(f"pod{uid}")
    parent = {
        KubeQoS.GUARANTEED: names.kubepods,
        KubeQoS.BURSTABLE: names.burstable,
        KubeQoS.BEST_EFFORT: names.besteffort,
    }[kube_qos]
    if names.driver == "systemd":
        # systemd reads a dash as a level of its hierarchy.
        return sys.intern(f"{parent}/{_stem(parent)}-pod{uid.replace('-', '_')}{_SLICE}")
    return sys.intern(f"{parent}/pod{uid}")


def container_group(names: Layout, pod: str, container_id: str) -> str | None:
    """The group of a container in the pod's group; None before the container was made.
    `container_id` is what the pod's status says, `containerd://…`; ValueError for a runtime we do not know."""
    if not container_id:
        return None
    runtime, separator, name = container_id.partition("://")
    if not separator or not name or "/" in name or runtime not in _SCOPES:
        prefixes = ", ".join(f"{prefix}://" for prefix in _SCOPES)
        raise ValueError(f"container id {container_id!r} has none of the runtimes we know: {prefixes}")
    scope = f"{_SCOPES[runtime]}-{name}.scope" if names.driver == "systemd" else beneath.component(name)
    return sys.intern(f"{pod}/{scope}")


def container_id(names: Layout, group: str) -> str:
    """The id of the container whose group this is, whatever runtime made it; the inverse of `container_group`.
    The id is what follows the prefix of a runtime we know, else the last dash. ValueError for a name no container has:
    the systemd driver's are `RUNTIME-ID.scope`, cgroupfs has the bare id. Source: Koordinator `ParseContainerId`."""
    name = group.rpartition("/")[2]
    if names.driver != "systemd":
        return name
    match = _KNOWN_SCOPE.fullmatch(name) or _SCOPE.fullmatch(name)
    if not match:
        raise ValueError(f"{name!r} is no container's group: RUNTIME-ID.scope is")
    return match[1]


def _stem(group: str) -> str:
    return group.rpartition("/")[2].removesuffix(_SLICE)
