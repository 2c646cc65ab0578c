"""What batch resources come to, worked out from Koordinator's behaviour: as it is, or with rules of ours.

A difference is explained by a rule when ours is what all rules together make of the pod, theirs is what none of them
does, and the rule matters to it: so any number of rules may meet in one pod.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from koordlite.formulas.cpu.burst import MIN_QUOTA_US
from koordlite.model import keys
from koordlite.model.cgroup_fields import weight_of_shares
from koordlite.model.quantity import Quantity
from tests.conformance.deviations import deviation

BATCH_AMOUNTS = (keys.BATCH_CPU, keys.BATCH_MEMORY)
LEAST, INIT, OTHERS, SPEC, UNBELIEVED, KNOWN, REQUEST = RULES = (
    "batch-least-quota: a quota divided by the ratio is at least the kernel's least, 1 ms",
    "batch-init-containers: init containers, sidecars and overhead count in the pod as kubelet counts",
    "batch-other-containers: a container without batch resources counts with its native ones",
    "batch-spec-wins: the pod's spec counts on every way, and the annotation where it asks for less",
    "batch-annotation-believed: an annotation gives nothing to a pod whose spec asks for nothing",
    "batch-known-containers: an entry for a container that the pod does not have counts nothing",
    "batch-limit-is-request: a limit without a request is a request as well",
)
ALL = frozenset(RULES)
Amounts = Mapping[str, Mapping[str, Any]]
"""`requests` and `limits` of a container."""
Values = Mapping[str, int]
"""Millicores and bytes that are asked for."""


def values(given: Any, rules: frozenset[str]) -> dict[str, Any]:
    """Shares, quota and memory limit of the pod and of each of its containers."""
    metadata, spec = given["pod"]["metadata"], given["pod"]["spec"]
    first, ordinary = spec.get("initContainers") or [], spec["containers"]
    nothing = {"pod": {}, "containers": {each["name"]: {} for each in (*first, *ordinary)}}
    if (metadata.get("labels") or {}).get(keys.QOS_CLASS) != "BE":
        return nothing
    noted = _annotation(metadata)
    of_container = {each["name"]: _record(each, noted, given["from"], rules) for each in (*first, *ordinary)}
    value = functools.partial(_values, given, rules)
    containers = {
        each["name"]: _native(given, each, rules) if record is None else value([(_whole(each, record, rules), False)])
        for each in (*first, *ordinary)
        for record in (of_container[each["name"]],)
    }
    counted = [*first, *ordinary] if INIT in rules else ordinary
    in_spec = [each for each in counted if _batch(each, rules)]
    if in_spec and (given["from"] != "proxy" or SPEC in rules):
        parts = [
            (_whole(each, of_container[each["name"]], rules), each in first and each.get("restartPolicy") != "Always")
            for each in counted
            if OTHERS in rules or each in in_spec
        ]
        overhead = spec.get("overhead") or {}
        both = {"requests": overhead, "limits": overhead}
        more = _whole({"resources": both}, both, rules)
        return {"pod": value(parts, more if INIT in rules else None), "containers": containers}
    names = {each["name"] for each in ordinary}
    entries = [
        (_whole({}, entry, frozenset()), False)
        for name, entry in noted.items()
        if (name not in names and KNOWN not in rules) or (name in names and of_container[name] is not None)
    ]
    if not entries:
        return {"pod": {}, "containers": containers if in_spec or UNBELIEVED not in rules else nothing["containers"]}
    return {"pod": value(entries), "containers": containers}


def _annotation(metadata: Any) -> dict[str, Amounts]:
    try:
        document = json.loads((metadata.get("annotations") or {}).get(keys.EXTENDED_RESOURCE_SPEC) or "{}")
        return dict(document.get("containers") or {})
    except ValueError:
        return {}


def _resources(container: Any, rules: frozenset[str]) -> dict[str, dict[str, Any]]:
    resources = container.get("resources") or {}
    requests, limits = (dict(resources.get(which) or {}) for which in ("requests", "limits"))
    return {"requests": {**limits, **requests} if REQUEST in rules else requests, "limits": limits}


def _batch(container: Any, rules: frozenset[str]) -> Amounts | None:
    found = {
        which: {name: amount for name, amount in amounts.items() if name in BATCH_AMOUNTS}
        for which, amounts in _resources(container, rules).items()
    }
    return found if any(found.values()) else None


def _record(container: Any, noted: Mapping[str, Amounts], way: str, rules: frozenset[str]) -> Amounts | None:
    """The batch amounts that count for a container; None without any."""
    spec, note = _batch(container, rules), noted.get(container["name"])
    if spec is None:
        return None if UNBELIEVED in rules else note
    if way == "proxy" and SPEC not in rules:
        return note
    if SPEC not in rules or note is None:
        return spec
    lower: dict[str, dict[str, Any]] = {}
    for which, amounts in spec.items():
        theirs = {name: text for name, text in (note.get(which) or {}).items() if _units(text) > 0}
        lower[which] = {name: min(text, theirs.get(name, text), key=_units) for name, text in amounts.items()}
    return lower


def _whole(container: Any, record: Amounts | None, rules: frozenset[str]) -> dict[str, int]:
    """Millicores and bytes; 0 is none. With `OTHERS` the native amount counts where the batch one is missing."""
    record, native = record or {}, _resources(container, rules) if OTHERS in rules else {}

    def amount(which: str, batch: str, name: str) -> int:
        found = max(_units((record.get(which) or {}).get(batch, 0)), 0)
        fallback = Quantity.parse((native.get(which) or {}).get(name, 0))
        return found or max(fallback.milli if name == "cpu" else fallback.value, 0)

    return {
        "request": amount("requests", keys.BATCH_CPU, "cpu"),
        "limit": amount("limits", keys.BATCH_CPU, "cpu"),
        "memory": amount("limits", keys.BATCH_MEMORY, "memory"),
    }


def _units(text: Any) -> int:
    return Quantity.parse(text).value


def _native(given: Any, container: Any, rules: frozenset[str]) -> dict[str, int]:
    """Kubelet's quota, divided by the ratio as the pod's is."""
    limit = _whole(container, None, rules)["limit"]
    quota = _quota(given, limit, rules)
    divided = OTHERS in rules and limit > 0 and (given.get("cpuNormalizationRatio") or 1) > 1 and quota > 0
    return {"cfsQuota": quota} if divided and _asks(given, rules) else {}


def _asks(given: Any, rules: frozenset[str]) -> bool:
    spec = given["pod"]["spec"]
    return any(_batch(each, rules) for each in (*(spec.get("initContainers") or ()), *spec["containers"]))


def _values(
    given: Any,
    rules: frozenset[str],
    parts: Iterable[tuple[Mapping[str, int], bool]],
    overhead: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The values of parts that come with whether they end before the next one starts."""
    found, more = list(parts), overhead or {"request": 0, "limit": 0, "memory": 0}
    shares = min(max((_peak(found, "request") + more["request"]) * 1024 // 1000, 2), 262144)
    limits = {
        name: _peak(found, name) + more[name] if all(part[name] > 0 for part, _ in found) else 0
        for name in ("limit", "memory")
    }
    return {
        "cpuShares": shares,
        "cpuWeightV2": weight_of_shares(shares),
        "cfsQuota": _quota(given, limits["limit"], rules),
        "memoryLimit": limits["memory"] or -1,
    }


def _peak(parts: Iterable[tuple[Values, bool]], name: str) -> int:
    staying = largest = 0
    for part, ends in parts:
        largest = max(largest, staying + part[name])
        staying += 0 if ends else part[name]
    return largest


def _quota(given: Any, milli: int, rules: frozenset[str]) -> int:
    quota, ratio = milli * 100, given.get("cpuNormalizationRatio") or 1
    if quota <= 0 or given.get("cfsQuotaEnabled") is False:
        return -1
    quota = max(quota, MIN_QUOTA_US)
    divided = math.ceil(quota / ratio) if ratio > 1 else quota
    return max(divided, MIN_QUOTA_US) if LEAST in rules else divided


def _matters(rule: str, given: Any, wanted: Any, found: Any) -> bool:
    explained = values(given, frozenset()) == wanted and values(given, ALL) == found
    return explained and (values(given, ALL - {rule}) != found or values(given, frozenset((rule,))) != wanted)


for rule_of_ours in RULES:
    deviation(rule_of_ours, "BatchResource")(functools.partial(_matters, rule_of_ours))
