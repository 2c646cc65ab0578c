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
_NEWER = re.compile(
    r"status 400|header warning: None"
    r"|\.message: 'error decoding patch: |\.reason: 'BadRequest' where 'Invalid'|\.code: '400' where '422'"
    r"|\.details is missing|.*Invalid value: 0: must be specified for an update"
    r"|.*Invalid value: \{\"Path\":|.*Available representations"
)
"""Answers of a server of 1.36 where that of 1.23 said something else; the recordings of 1.36 show them."""


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
    return all(map(_NEWER.match, found))
