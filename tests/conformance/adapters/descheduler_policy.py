"""Policy files of both kinds: what is refused, and what the others mean."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from descheduler import config
from descheduler.evictor_args import SYSTEM_CRITICAL, PriorityThreshold
from koordlite.model import strict
from koordlite.model.errors import ConfigError
from tests.conformance.adapters import adapter

REFUSED = "refused"


@adapter("decode")
def decoded(given: Any, expect: Any) -> tuple[Any, Any]:
    """Of the arguments, those are compared that upstream's answer names; the rest are defaults on both sides."""
    try:
        policy = config.parse(given["policy"], "policy.yaml")
    except ConfigError:
        return REFUSED, REFUSED if expect["error"] else _profiles(expect)
    wanted = REFUSED if expect["error"] else _profiles(expect)
    asked = [{entry["name"]: entry["args"] for entry in p["pluginConfigs"]} for p in _listed(expect)]
    found = [
        {
            "name": profile.name,
            "args": {e.name: _values(e.args, names.get(e.name, {})) for e in profile.plugin_config},
            "deschedule": list(profile.plugins.deschedule.enabled),
            "balance": list(profile.plugins.balance.enabled),
        }
        for profile, names in zip(policy.profiles, asked or [{}] * len(policy.profiles), strict=True)
    ]
    return found, wanted


@adapter("ValidateDeschedulerConfiguration")
def validated(given: Any, expect: Any) -> tuple[Any, Any]:
    text = json.dumps({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration", **given["args"]})
    try:
        config.parse(text, "configuration")
    except ConfigError:
        return False, expect["valid"]
    return True, expect["valid"]


def _listed(expect: Any) -> Any:
    return (expect.get("result") or {}).get("profiles") or []


def _profiles(expect: Any) -> Any:
    return [
        {
            "name": profile["name"],
            "args": {entry["name"]: entry["args"] for entry in profile["pluginConfigs"]},
            "deschedule": profile["plugins"]["deschedule"].get("enabled", []),
            "balance": profile["plugins"]["balance"].get("enabled", []),
        }
        for profile in _listed(expect)
    ]


def _values(args: Any, wanted: Any) -> Any:
    """Our values of the arguments that are wanted."""
    known = {name: getattr(args, field.name) for name, (field, _) in strict.fields(type(args)).items()}
    return {name: _plain(known[name], wanted[name]) for name in wanted}


def _plain(value: Any, wanted: Any) -> Any:
    if isinstance(value, PriorityThreshold):
        return {"value": SYSTEM_CRITICAL if value.value is None else value.value}
    if dataclasses.is_dataclass(value):
        return _values(value, wanted)
    return list(value) if isinstance(value, tuple) else value
