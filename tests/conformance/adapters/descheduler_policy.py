"""Policy files of both kinds: what is refused, and what the others mean."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

from descheduler.arguments.evictor import Args, PriorityThreshold
from descheduler.filters import default_evictor
from descheduler.policy import reader
from descheduler.policy.upstream import EVICTOR
from koordlite.model import duration
from koordlite.model.errors import ConfigError, InputError
from koordlite.model.reading import strict
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import picture, written

REFUSED = "refused"


@adapter("decode")
def decoded(given: Any, expect: Any) -> tuple[Any, Any]:
    """Of the arguments, those are compared that upstream's answer names; the rest are defaults on both sides."""
    asked = [_arguments(profile) for profile in _listed(expect)]
    wanted = REFUSED if expect.get("error") else [_profile(profile) for profile in _listed(expect)]
    try:
        policy = reader.parse(given["policy"], "policy.yaml")
        view = picture({"priorityClasses": given.get("priorityClasses")})
        for profile in reader.setup(policy).profiles:
            default_evictor.check(view, profile.args)
    except (ConfigError, InputError):
        return REFUSED, wanted
    named = asked or [{}] * len(policy.profiles)
    classes = view.priority_classes
    return [_found(profile, names, classes) for profile, names in zip(policy.profiles, named, strict=True)], wanted


@adapter("ValidateDeschedulerConfiguration")
def validated(given: Any, expect: Any) -> tuple[Any, Any]:
    """A profile more, since a single one gets its name before it is validated, and what a case has got it is given."""
    meta = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}
    args = written(given["args"])
    if args.get("profiles"):
        args["profiles"] = [*args["profiles"], {"name": "conformance"}]
    try:
        reader.parse(json.dumps({**meta, **args}), "configuration")
    except ConfigError:
        return False, expect["valid"]
    return True, expect["valid"]


def _listed(expect: Any) -> Any:
    return (expect.get("result") or {}).get("profiles") or []


def _arguments(profile: Any) -> dict[str, Any]:
    return {entry["name"]: written(entry.get("args")) for entry in profile.get("pluginConfigs") or ()}


def _profile(profile: Any) -> Any:
    points = profile.get("plugins") or {}
    enabled = {point: (points.get(point) or {}).get("enabled") or [] for point in ("deschedule", "balance")}
    return {"name": profile["name"], "args": _arguments(profile), **enabled}


def _found(profile: Any, names: dict[str, Any], classes: Mapping[str, int]) -> Any:
    # Upstream lists the evictor's arguments where the file does not; ours hold without being listed.
    implied = {EVICTOR: Args()} if EVICTOR in names else {}
    args = {**implied, **{entry.name: entry.args for entry in profile.plugin_config}}
    return {
        "name": profile.name,
        "args": {name: _values(given, names.get(name, {}), classes) for name, given in args.items()},
        "deschedule": list(profile.plugins.deschedule.enabled),
        "balance": list(profile.plugins.balance.enabled),
    }


def _values(args: Any, wanted: Any, classes: Mapping[str, int]) -> Any:
    """Our values of the arguments that are wanted; a PriorityClass that is named has become its number."""
    known = {name: getattr(args, field.name) for name, (field, _) in strict.fields(type(args)).items()}
    return {name: _plain(known[name], wanted[name], classes) for name in wanted}


def _plain(value: Any, wanted: Any, classes: Mapping[str, int]) -> Any:
    if isinstance(value, PriorityThreshold):
        return {name: {"value": value.number(classes), "name": ""}[name] for name in wanted}
    if dataclasses.is_dataclass(value):
        return _values(value, wanted, classes)
    if isinstance(value, tuple):
        return [_plain(one, one_wanted, classes) for one, one_wanted in itertools.zip_longest(value, wanted)]
    return wanted if (isinstance(wanted, str) and wanted[:1].isdigit()) and _same_duration(value, wanted) else value


def _same_duration(one: str, other: str) -> bool:
    """1h is 1h0m0s, as Go writes it."""
    try:
        return duration.seconds(one) == duration.seconds(other)
    except ValueError:
        return False
