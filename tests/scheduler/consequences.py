"""What kube-scheduler 1.36 makes of an extender's answer, as the recordings show it."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Filtered:
    """After filter: the nodes that are left, why the others are not, or the error that ends the attempt."""

    passed: frozenset[str] = frozenset()
    reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)
    error: str = ""
    preemption_tried: bool = False


def of_filter(request: Any, answer: Mapping[str, Any], url_prefix: str) -> Filtered:
    """Rules 14 to 20."""
    answer = _any_case(answer)
    question = frozenset(_names(request))
    if answer.get("error"):
        return Filtered(error=answer["error"])
    passed = frozenset(_names({"NodeNames": answer.get("nodenames"), "Nodes": answer.get("nodes")}))
    for name in sorted(passed - question):
        text = f'extender "{url_prefix}" claims a filtered node "{name}" which is not found in the input node list'
        return Filtered(error=text)
    if passed:
        return Filtered(passed)
    failed = {**(answer.get("failednodes") or {}), **(answer.get("failedandunresolvablenodes") or {})}
    resolvable = (answer.get("failednodes") or {}).keys() - (answer.get("failedandunresolvablenodes") or {}).keys()
    return Filtered(reasons=collections.Counter(failed.values()), preemption_tried=bool(resolvable & question))


def of_preempt(
    request: Any, answer: Mapping[str, Any], pods: Mapping[str, set[str]]
) -> tuple[dict[str, list[str]], str]:
    """Rules 39 to 42: victims by node, or the fault that cancels all of it. `pods`: uids by node."""
    result = {
        node: [pod["UID"] for pod in victims.get("Pods") or []]
        for node, victims in (answer.get("NodeNameToMetaVictims") or {}).items()
    }
    for node, uids in result.items():
        if node not in pods:
            return {}, f'nodeinfo not found for node name "{node}"'
        if strange := [uid for uid in uids if uid not in pods[node]]:
            return {}, f"the pod is not found on that node: {strange[0]}"
        if not uids:
            return {}, f'expected at least one victim pod on node "{node}"'
    return result, ""


def part(parts: Any, title: str) -> Any:
    """The part of a recording with this title."""
    return next(each for each in parts if each["title"] == title)


def _names(request: Any) -> list[str]:
    if request.get("NodeNames") is not None:
        return list(request["NodeNames"])
    return [item["metadata"]["name"] for item in (request.get("Nodes") or {}).get("items") or []]


def _any_case(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in answer.items()}


def read(path: Any) -> Any:
    """The parts of a recording."""
    return json.loads(path.read_text())["parts"]
