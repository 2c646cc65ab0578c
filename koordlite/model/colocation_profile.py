"""Koordinator's ClusterColocationProfile: which pods become batch pods, and what is written on them.

Source: `config.koordinator.sh/v1alpha1`, cluster scoped, and the webhook that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite.model import keys, label_selectors
from koordlite.model.errors import InputError, Problem, mismatch, noting, refusing
from koordlite.model.wire.objects import LabelRequirement, LabelSelector, ObjectMeta

API_VERSION = "config.koordinator.sh/v1alpha1"
KIND = "ClusterColocationProfile"

_PERCENT = re.compile(r"([0-9]{1,3})%\Z", re.ASCII)
_DO = "correct the profile; no pod is judged by it until then"


class _Requirement(LabelRequirement, frozen=True, forbid_unknown_fields=True):
    key: str
    operator: str


class _Selector(LabelSelector, frozen=True, forbid_unknown_fields=True):
    match_expressions: tuple[_Requirement, ...] | None = None


class Spec(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """spec of a profile; a field that nobody knows is a mistake. Empty text and None mean: leave it as it is."""

    namespace_selector: _Selector | None = None
    selector: _Selector | None = None
    """None and an empty selector select everything."""
    probability: int | str = 100
    """Percent of the matching pods that it applies to; a number and the same number with % mean the same."""
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    label_keys_mapping: dict[str, str] = {}
    """Old key to new key: the value of the old one is copied."""
    annotation_keys_mapping: dict[str, str] = {}
    label_suffixes: dict[str, str] = {}
    """Key to what is appended to the value of that label."""
    scheduler_name: str = ""
    patch: dict[str, Any] = {}
    """Strategic merge patch of the pod."""


_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(Spec))


class _Object(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: Spec = Spec()


class Profile(Spec, frozen=True, kw_only=True):
    """One ClusterColocationProfile."""

    name: str
    probability: int = 100
    keep_resources: bool = False
    """The annotation `config.koordinator.sh/skip-update-resources` is there."""


def from_object(document: Mapping[str, Any], owner: str = "") -> Profile:
    """The profile that a manifest describes; InputError names every field that is wrong.
    `owner` says where it comes from, such as a file; without it, problems name the profile."""
    spec = document.get("spec")
    if isinstance(spec, dict):  # A null leaves a field out; one that nobody knows is a mistake also then.
        spec = {name: value for name, value in spec.items() if value is not None or name not in _FIELDS}
    try:
        obj = msgspec.convert(document if spec is None else {**document, "spec": spec}, _Object)
    except msgspec.ValidationError as error:
        metadata, (field, why) = document.get("metadata"), mismatch(error)
        name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
        raise InputError(Problem(owner or f"clustercolocationprofile/{name}", field or "$", "", why, _DO)) from error
    owner, problems = owner or f"clustercolocationprofile/{obj.metadata.name}", list[Problem]()
    if not obj.metadata.name:
        problems.append(Problem(owner, "metadata.name", "", "a profile needs a name", _DO))
    percent = obj.spec.probability
    match = _PERCENT.match(percent if isinstance(percent, str) else f"{percent}%")
    if not match or int(match[1]) > 100:
        why = "a probability is a number from 0 to 100, or such a number with %"
        problems.append(Problem(owner, "spec.probability", str(percent), why, _DO))
    for field, selector in (("namespaceSelector", obj.spec.namespace_selector), ("selector", obj.spec.selector)):
        with noting(problems), refusing(owner, f"spec.{field}", "", _DO):
            label_selectors.matches(selector or LabelSelector(), {})
    if problems or not match:
        raise InputError(problems)
    fields = msgspec.structs.asdict(obj.spec) | {"probability": int(match[1])}
    keep_resources = keys.SKIP_RESOURCES in (obj.metadata.annotations or {})
    return Profile(name=obj.metadata.name, keep_resources=keep_resources, **fields)
