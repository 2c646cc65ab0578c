"""Requests that the tests' API server does not serve, because neither product sends them; each by a named rule."""

from __future__ import annotations

from typing import Any

from tests.conformance.apiserver_sightings import target_of

OUT = "out of scope:"
"""How the difference of such an interaction begins."""
RULES = {
    "apiserver-impersonation": "nobody asks in the name of others",
    "apiserver-forms": "answers are JSON of the objects themselves: no tables, no metadata alone, no YAML",
    "apiserver-patches": "JSON patches and server-side apply are not served",
    "apiserver-discovery": "lists of groups and paths, OpenAPI and the details of health are not served",
    "apiserver-kinds": "reviews of oneself, finalize, logs and what reaches into containers are not served",
    "apiserver-collections": "objects are deleted one by one",
    "apiserver-deletion": "there is no garbage collector, so a propagation policy means nothing",
    "apiserver-definitions": "a CustomResourceDefinition is served at once, and goes at once",
}
_KINDS = frozenset({"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})
_SUBRESOURCES = frozenset({"finalize", "log", "scale", "attach", "exec", "portforward", "proxy"})
_PATCHES = ("application/json-patch+json", "application/apply-patch+yaml")
_LISTS = ("/", "/apis", "/apis/")


def rule(interaction: Any) -> str:
    """The rule by which an interaction is out of scope; empty when it is not."""
    return next((name for name, applies in _APPLIES.items() if applies(interaction)), "")


def impersonates(interaction: Any) -> bool:
    """Whether somebody asks in the name of another; for an administrator the player has a token of that other."""
    return _header(interaction, "impersonate-user") != ""


def _impersonates(interaction: Any) -> bool:
    return impersonates(interaction) and "admin" not in (_header(interaction, "authorization") or "admin")


def _has_another_form(interaction: Any) -> bool:
    accepted, sent = _header(interaction, "accept"), _header(interaction, "content-type")
    return "as=" in accepted or "yaml" in accepted or "protobuf" in accepted or sent == "application/yaml"


def _patches_otherwise(interaction: Any) -> bool:
    manager = "fieldManager" in interaction["request"]["path"] or "force=" in interaction["request"]["path"]
    is_patch = interaction["request"]["method"] == "PATCH"
    return manager or (is_patch and _header(interaction, "content-type") in _PATCHES)


def _discovers(interaction: Any) -> bool:
    path, _, query = interaction["request"]["path"].partition("?")
    named = path in _LISTS or path.startswith("/openapi") or "verbose" in query
    return named and not target_of(interaction).resource


def _asks_for_another_kind(interaction: Any) -> bool:
    at = target_of(interaction)
    return at.resource in _KINDS or at.subresource in _SUBRESOURCES


def _deletes_many(interaction: Any) -> bool:
    return interaction["request"]["method"] == "DELETE" and not target_of(interaction).name


def _deletes_by_policy(interaction: Any) -> bool:
    asked = f"{interaction['request']['path']} {interaction['request']['body']}"
    policy = "propagationPolicy" in asked or "orphanDependents" in asked
    return interaction["request"]["method"] == "DELETE" and policy


def _follows_a_definition(interaction: Any) -> bool:
    is_definition = target_of(interaction).resource == "customresourcedefinitions"
    at_once = "immediately after" in interaction["title"]
    return (is_definition and interaction["request"]["method"] in ("GET", "DELETE")) or at_once


_APPLIES = {
    "apiserver-impersonation": _impersonates,
    "apiserver-forms": _has_another_form,
    "apiserver-patches": _patches_otherwise,
    "apiserver-discovery": _discovers,
    "apiserver-kinds": _asks_for_another_kind,
    "apiserver-collections": _deletes_many,
    "apiserver-deletion": _deletes_by_policy,
    "apiserver-definitions": _follows_a_definition,
}


def _header(interaction: Any, name: str) -> str:
    headers = {key.lower(): str(value) for key, value in interaction["request"]["headers"].items()}
    return headers.get(name, "")
