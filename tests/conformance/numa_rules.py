"""Where NUMA promises are judged otherwise than in the worked cases, on purpose."""

from __future__ import annotations

from typing import Any

from koordlite.model.cpuset import CPUSet


def promise_stands_wrong(given: Any, wanted: Any, found: Any) -> bool:
    """The promised CPUs span NUMA nodes themselves, and all that differs is that the finding is hard."""
    promises = {c["name"]: c.get("promise") or {} for c in given["pod"]["containers"]}
    numa = {row[0]: row[3] for row in given["node"]["topology"]}
    wrong = {name for name, promise in promises.items() if len(_nodes(promise, numa)) > 1}
    softened = [_softened(one, wrong) for one in found["violations"]]
    return bool(wrong) and softened == wanted["violations"]


def _nodes(promise: Any, numa: Any) -> set[int]:
    return {numa[cpu] for cpu in CPUSet.parse(promise.get("cpuset", "")) if cpu in numa}


def _softened(one: Any, wrong: set[str]) -> Any:
    spans = one["container"] in wrong and one["code"] in ("CPUSpansNUMA", "CPUWrongNUMA")
    return {**one, "severity": "fixable"} if spans else one
