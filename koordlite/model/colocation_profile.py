"""Koordinator's ClusterColocationProfile: which pods become batch pods, and what is written on them.

Source: `config.koordinator.sh/v1alpha1`, cluster scoped, and the webhook that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koordlite.model import keys, label_selectors
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire.objects import LabelSelector, ObjectMeta

API_VERSION = "config.koordinator.sh/v1alpha1"
KIND = "ClusterColocationProfile"

_PERCENT = re.compile(r"([0-9]{1,3})%\Z", re.ASCII)
_AT = re.compile(r" - at `\$\.?(.*)`\Z")
_DO = "correct the profile; no pod is judged by it until then"


class _Strict(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of a profile; a field that nobody knows is a mistake."""


class _Requirement(_Strict, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class _Selector(_Strict, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] | None = None


class _Spec(_Strict, frozen=True):
    namespace_selector: _Selector | None = None
    selector: _Selector | None = None
    probability: int | str | None = None
    qos_class: str | None = None
    priority_class_name: str | None = None
    koordinator_priority: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    label_keys_mapping: dict[str, str] | None = None
    annotation_keys_mapping: dict[str, str] | None = None
    label_suffixes: dict[str, str] | None = None
    scheduler_name: str | None = None
    patch: dict[str, Any] | None = None


class _Object(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One ClusterColocationProfile. Empty text and None mean: leave it as it is."""

    name: str
    keep_resources: bool = False
    """The annotation `config.koordinator.sh/skip-update-resources` is there."""
    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    """None and an empty selector select everything."""
    probability: int = 100
    """Percent of the matching pods that it applies to."""
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    label_keys_mapping: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Old key to new key: the value of the old one is copied."""
    annotation_keys_mapping: Mapping[str, str] = msgspec.field(default_factory=dict)
    label_suffixes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Key to what is appended to the value of that label."""
    scheduler_name: str = ""
    patch: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Strategic merge patch of the pod."""


def from_object(document: Mapping[str, Any], owner: str = "") -> Profile:
    """The profile that a manifest describes; InputError names every field that is wrong.

    `owner` says where it comes from, such as a file; without it, problems name the profile.
    """
    try:
        obj = msgspec.convert(document, _Object)
    except msgspec.ValidationError as error:
        raise InputError(_mismatch(document, owner, str(error))) from error
    owner = owner or f"clustercolocationprofile/{obj.metadata.name}"
    spec, problems = obj.spec, list[Problem]()
    if not obj.metadata.name:
        problems.append(Problem(owner, "metadata.name", "", "a profile needs a name", _DO))
    read: dict[str, Any] = {
        "probability": _probability(spec.probability, owner, problems),
        "namespace_selector": _selector("spec.namespaceSelector", spec.namespace_selector, owner, problems),
        "selector": _selector("spec.selector", spec.selector, owner, problems),
    }
    if problems:
        raise InputError(problems)
    written = {name: value for name, value in msgspec.structs.asdict(spec).items() if value is not None}
    keep_resources = keys.SKIP_RESOURCES in (obj.metadata.annotations or {})
    return Profile(name=obj.metadata.name, keep_resources=keep_resources, **{**written, **read})


def _mismatch(document: Mapping[str, Any], owner: str, message: str) -> Problem:
    """msgspec ends its message with the path of the value."""
    at = _AT.search(message)
    if not owner:
        metadata = document.get("metadata")
        owner = f"clustercolocationprofile/{metadata.get('name', '') if isinstance(metadata, Mapping) else ''}"
    return Problem(owner, (at[1] if at else "") or "$", "", _AT.sub("", message).replace("`", ""), _DO)


def _probability(written: int | str | None, owner: str, problems: list[Problem]) -> int:
    """100 where none is written; a number and the same number with % mean the same."""
    match = _PERCENT.match(written) if isinstance(written, str) else None
    percent = 100 if written is None else int(match[1]) if match else written
    if isinstance(percent, int) and 0 <= percent <= 100:
        return percent
    why = "a probability is a number from 0 to 100, or such a number with %"
    problems.append(Problem(owner, "spec.probability", str(written), why, _DO))
    return 0


def _selector(field: str, written: _Selector | None, owner: str, problems: list[Problem]) -> LabelSelector | None:
    if written is None:
        return None
    selector = msgspec.convert(msgspec.to_builtins(written), LabelSelector)
    problems.extend(Problem(owner, field, "", why, _DO) for why in _mistake(selector))
    return selector


def _mistake(selector: LabelSelector) -> Iterator[str]:
    try:
        label_selectors.matches(selector, {})
    except ValueError as error:
        yield str(error)
