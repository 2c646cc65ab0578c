"""Where the tests' API server is not the recorded one, and need not be: what neither product sends is not served."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.conformance.apiserver_sightings import target_of
from tests.conformance.deviations import deviation

INTERACTION = "apiserver interaction"
OUT = "out of scope:"
"""How the difference of an interaction begins that is not served."""
_KINDS = frozenset({"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})
_SUBRESOURCES = frozenset({"finalize", "log", "scale", "attach", "exec", "portforward", "proxy"})
_PATCHES = ("application/json-patch+json", "application/apply-patch+yaml")
_LISTS = ("/", "/apis", "/apis/")
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

_NOT_SERVED: dict[str, Callable[[Any], bool]] = {}


def rule(interaction: Any) -> str:
    """The rule by which an interaction is not served; empty when it is."""
    return next((name for name, applies in _NOT_SERVED.items() if applies(interaction)), "")


def _not_served(rule: str) -> Callable[[Callable[[Any], bool]], Callable[[Any], bool]]:
    """Register a predicate of interactions that are not played."""
    name = rule.partition(":")[0]

    def register(applies: Callable[[Any], bool]) -> Callable[[Any], bool]:
        _NOT_SERVED[name] = applies
        deviation(rule, INTERACTION)(lambda given, wanted, found: found == [f"{OUT} {name}"])
        return applies

    return register


def impersonates(interaction: Any) -> bool:
    """Whether somebody asks in the name of another; for an administrator the player has a token of that other."""
    return _header(interaction, "impersonate-user") != ""


@_not_served("apiserver-impersonation: nobody asks in the name of others")
def _impersonates(interaction: Any) -> bool:
    return impersonates(interaction) and "admin" not in (_header(interaction, "authorization") or "admin")


@_not_served("apiserver-forms: answers are JSON of the objects themselves: no tables, no metadata alone, no YAML")
def _has_another_form(interaction: Any) -> bool:
    accepted, sent = _header(interaction, "accept"), _header(interaction, "content-type")
    return "as=" in accepted or "yaml" in accepted or "protobuf" in accepted or sent == "application/yaml"


@_not_served("apiserver-patches: JSON patches and server-side apply are not served")
def _patches_otherwise(interaction: Any) -> bool:
    manager = "fieldManager" in interaction["request"]["path"] or "force=" in interaction["request"]["path"]
    is_patch = interaction["request"]["method"] == "PATCH"
    return manager or (is_patch and _header(interaction, "content-type") in _PATCHES)


@_not_served("apiserver-discovery: lists of groups and paths, OpenAPI and the details of health are not served")
def _discovers(interaction: Any) -> bool:
    path, _, query = interaction["request"]["path"].partition("?")
    named = path in _LISTS or path.startswith("/openapi") or "verbose" in query
    return named and not target_of(interaction).resource


@_not_served("apiserver-kinds: reviews of oneself, finalize, logs and what reaches into containers are not served")
def _asks_for_another_kind(interaction: Any) -> bool:
    at = target_of(interaction)
    return at.resource in _KINDS or at.subresource in _SUBRESOURCES


@_not_served("apiserver-collections: objects are deleted one by one")
def _deletes_many(interaction: Any) -> bool:
    return interaction["request"]["method"] == "DELETE" and not target_of(interaction).name


@_not_served("apiserver-deletion: there is no garbage collector, so a propagation policy means nothing")
def _deletes_by_policy(interaction: Any) -> bool:
    asked = f"{interaction['request']['path']} {interaction['request']['body']}"
    policy = "propagationPolicy" in asked or "orphanDependents" in asked
    return interaction["request"]["method"] == "DELETE" and policy


@_not_served("apiserver-definitions: a CustomResourceDefinition is served at once, and goes at once")
def _follows_a_definition(interaction: Any) -> bool:
    is_definition = target_of(interaction).resource == "customresourcedefinitions"
    at_once = "immediately after" in interaction["title"]
    return (is_definition and interaction["request"]["method"] in ("GET", "DELETE")) or at_once


def _header(interaction: Any, name: str) -> str:
    headers = {key.lower(): str(value) for key, value in interaction["request"]["headers"].items()}
    return headers.get(name, "")


@deviation("apiserver-version: /version names the tests' own server", INTERACTION)
def version_label(given: Any, wanted: Any, found: Any) -> bool:
    """/version names the tests' server; the recorded one was not stamped."""
    return given["interaction"]["request"]["path"] == "/version" and all(map(_LABELS.match, found))


@deviation("apiserver-served: discovery lists what is served, no more", INTERACTION)
def fewer_kinds(given: Any, wanted: Any, found: Any) -> bool:
    """Discovery lists what is served; kinds that neither product asks for are not."""
    return all(_FEWER_KINDS.match(line) or _FEWER_VERBS.match(line) for line in found)


@deviation("apiserver-managed-fields: nobody keeps who set which field", INTERACTION)
def no_owners(given: Any, wanted: Any, found: Any) -> bool:
    """Nobody keeps who set which field."""
    return all(map(_OWNERS.match, found))


@deviation("apiserver-1.36: a newer server answers so", INTERACTION)
def newer(given: Any, wanted: Any, found: Any) -> bool:
    """The recordings are of Kubernetes 1.23, and 1.36 answers so."""
    return given["interaction"]["title"] in _NEWER
