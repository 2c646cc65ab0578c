"""The host applications a document of key `host-application-config` lists.

Source: Koordinator `HostApplicationSpec`. An application that cannot be placed is left out and reported; the others
stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.reading.declared import Values
from koordlite.model.reading.lenient_json import JSONDocument
from koordlite.model.slo.settings import HostApplication

_PRIORITIES = {each.value: each for each in PriorityClass}
_CLASSES = {each.value: each for each in QoSClass}
_NAMES = ("name", "priority", "qos", "cgroupPath", "strategy")
_PATH = ("base", "parentDir", "relativePath")
_BASES = ("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort")
_LEFT_OUT = "fix it; the application is left out"


class HostApplications(msgspec.Struct, frozen=True, kw_only=True):
    """The whole key. Nothing is merged: a group's list, also an empty one, takes the place of the cluster's."""

    applications: tuple[HostApplication, ...] = ()


def read(document: JSONDocument, members: Mapping[str, Any], path: str, meanwhile: str) -> tuple[Values, bool]:
    """`applications` as values; a strategy without the list has no applications."""
    del meanwhile  # a mistake costs one application, never the strategy
    where = f"{path}.applications" if path else "applications"
    listed = document.items(members.get("applications"), where)
    found = [_application(document, item, f"{where}[{index}]") for index, item in enumerate(listed)]
    return {("applications",): tuple(each for each in found if each)}, True


def _application(document: JSONDocument, item: Any, path: str) -> HostApplication | None:
    members = document.object(item, path, _NAMES)
    name = document.text(members, "name", path)
    place = _place(document, members.get("cgroupPath"), f"{path}.cgroupPath")
    if not name:
        document.note(f"{path}.name", name, "an application without a name", _LEFT_OUT)
        return None
    if place is None:
        return None
    return HostApplication(
        name=name,
        priority=_known(document, members, path, "priority", _PRIORITIES) or PriorityClass.NONE,
        qos=_known(document, members, path, "qos", _CLASSES) or QoSClass.NONE,
        **place,
    )


def _place(document: JSONDocument, value: Any, path: str) -> dict[str, str] | None:
    """Path of its cgroup; nothing when not given, None when it leads out of its base."""
    if value is None:
        return {}
    members = document.object(value, path, _PATH)
    base, parent, relative = (document.text(members, name, path) for name in _PATH)
    for name, text in (("parentDir", parent), ("relativePath", relative)):
        if ".." in text.split("/") or "\0" in text:
            document.note(f"{path}.{name}", text, "leads out of its base", _LEFT_OUT)
            return None
    if not any(part not in ("", ".") for part in (*parent.split("/"), *relative.split("/"))):
        why = "names the root of all cgroups, or kubelet's own group, and not one of the application"
        document.note(f"{path}.relativePath", relative, why, _LEFT_OUT)
        return None
    if base and base not in _BASES:
        document.note(
            f"{path}.base", base, "not a known base", f"write one of {', '.join(_BASES)}; it means CgroupRoot"
        )
    return {"base": base if base in _BASES else "CgroupRoot", "parent_dir": parent, "relative_path": relative}


def _known(document: JSONDocument, members: Mapping[str, Any], path: str, name: str, words: Mapping[str, Any]) -> Any:
    text = document.text(members, name, path)
    if text not in words:
        known = ", ".join(word for word in words if word)
        document.note(f"{path}.{name}", text, "unknown word", f"write one of {known}; it counts as not given")
    return words.get(text)
