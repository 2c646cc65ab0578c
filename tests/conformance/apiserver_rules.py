"""Where the tests' API server is not the recorded one, and is not meant to be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.conformance import apiserver_scope

_LABELS = re.compile(r"\.(major|minor|git\w+|compiler|platform): ")
_FEWER_KINDS = re.compile(
    r"\.resources lacks (nodes/proxy|(pods|services)/(attach|exec|log|portforward|proxy|ephemeralcontainers))"
    r"|\.resources: \d entries where \d were recorded"
)
_FEWER_VERBS = re.compile(r"\.resources\[\d+\]\.verbs: \d entries where \d were recorded")
_OWNERS = re.compile(r"\.metadata\.managedFields is missing")
_NEWER = frozenset(
    {
        *("accept text/html", "accept on create", "watch accept text/html", "v1beta1 PDB deprecation warning header"),
        *("merge patch: not an object", "merge patch: malformed", "PUT without resourceVersion", "SAR invalid: both"),
        *("dryRun bad value", "bad dryRun", "configmap over 1 MiB", "resourceVersion not a number"),
        *("resourceVersion in the future, limit", "wrong types", "bad quantity pattern", "no kind in the body"),
        "events.k8s.io: changing the note with a merge patch is accepted",
    }
)
"""Titles of interactions to which a server of 1.36 says something else; `tests/apiserver/recorded` has its answers."""


def out_of_scope(name: str) -> Callable[[Any, Any, Any], bool]:
    """Whether the interaction was not played by the rule of this name."""
    return lambda given, wanted, found: found == [f"{apiserver_scope.OUT} {name}"]


def version_label(given: Any, wanted: Any, found: Any) -> bool:
    """/version names the tests' server; the recorded one was not stamped."""
    return given["interaction"]["request"]["path"] == "/version" and all(map(_LABELS.match, found))


def fewer_kinds(given: Any, wanted: Any, found: Any) -> bool:
    """Discovery lists what is served; kinds that neither product asks for are not."""
    return all(_FEWER_KINDS.match(line) or _FEWER_VERBS.match(line) for line in found)


def no_owners(given: Any, wanted: Any, found: Any) -> bool:
    """Nobody keeps who set which field."""
    return all(map(_OWNERS.match, found))


def newer(given: Any, wanted: Any, found: Any) -> bool:
    """The recordings are of Kubernetes 1.23, and 1.36 answers so."""
    return given["interaction"]["title"] in _NEWER
