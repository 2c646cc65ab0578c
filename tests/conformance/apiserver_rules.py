"""Where the sandbox's API server is not the recorded one, and is not meant to be."""

from __future__ import annotations

import re
from typing import Any

_LABELS = re.compile(r"\.(major|minor|git\w+|compiler|platform): ")
_STREAMING = re.compile(
    r"\.resources lacks (nodes/proxy|(pods|services)/(attach|exec|portforward|proxy|ephemeralcontainers))"
)
_OTHER_PATHS = re.compile(r"\.paths lacks /(\.well-known|apis/(admissionregistration|apiregistration))")
_PROTOBUF = "application/vnd.kubernetes.protobuf"


def version_label(given: Any, wanted: Any, found: Any) -> bool:
    """/version names the sandbox; the recorded server was not stamped."""
    return _path(given) == "/version" and all(map(_LABELS.match, found))


def health_details(given: Any, wanted: Any, found: Any) -> bool:
    """?verbose lists the checks of whoever answers."""
    return _path(given) in ("/readyz", "/livez", "/healthz") and all(line.startswith("text") for line in found)


def streaming(given: Any, wanted: Any, found: Any) -> bool:
    """Subresources that open connections to containers are not served."""
    return all(map(_STREAMING.match, found))


def unserved_kinds(given: Any, wanted: Any, found: Any) -> bool:
    """Discovery lists what is served; kinds that neither product asks for are not."""
    if _path(given) == "/":
        return all(map(_OTHER_PATHS.match, found))
    only_count = len(found) == 1 and ".resources: 2 entries where 3 were recorded" in found[0]
    return _path(given) == "/apis/policy/v1beta1" and only_count


def protobuf(given: Any, wanted: Any, found: Any) -> bool:
    """Who accepts nothing but protobuf is refused in JSON."""
    status = given["interaction"]["response"]["status"]
    asked = given["interaction"]["request"]["headers"].get("accept", "")
    return asked == _PROTOBUF and not any(line == f"status {status}" for line in found)


def _path(given: Any) -> str:
    return str(given["interaction"]["request"]["path"]).partition("?")[0]
