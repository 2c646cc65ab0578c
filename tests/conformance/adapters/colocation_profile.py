"""ClusterColocationProfile, and the annotation that repeats batch resources."""

from __future__ import annotations

import json
from typing import Any

from koordlite.formulas.admission import colocation_profile
from koordlite.formulas.admission.colocation_profile import PriorityClassValue
from koordlite.model import colocation_profile as profiles
from koordlite.model import keys
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity
from tests.conformance.adapters import adapter, qos_priority


@adapter("clusterColocationProfileMutatingPod")
def mutated(given: Any, expect: Any) -> tuple[Any, Any]:
    if "error" in expect:
        # What an error leaves of the pod is not sent, and its words are everybody's own.
        expect = {"error": True}
    if given["operation"] != "CREATE":
        return {"mutated": False, "pod": amounts_as_numbers(given["pod"])}, _numbers(expect)
    try:
        read = [profiles.from_object(each) for each in given["profiles"] or ()]
        made = colocation_profile.admitted(
            given["pod"],
            read,
            namespaces={each["name"]: each["labels"] for each in given["namespaces"]},
            priority_classes=priority_classes(given),
            draws=given.get("randomDraws", ()),
        )
    except InputError:
        return {"error": True}, _numbers(expect)
    before, after = amounts_as_numbers(given["pod"]), amounts_as_numbers(made.pod)
    applied = set(made.taken_by) - set(made.skipped)
    return {"mutated": bool(applied) or after != before, "pod": after}, _numbers(expect)


@adapter("colocationValidatingPod")
def validated(given: Any, expect: Any) -> tuple[Any, Any]:
    return qos_priority.admitted(given | {"newPod": given["pod"], "oldPod": given.get("oldPod")}, expect)


@adapter("extendedResourceSpecMutatingPod")
def mirrored(given: Any, expect: Any) -> tuple[Any, Any]:
    if given["operation"] not in ("CREATE", "UPDATE"):
        return {"mutated": False}, expect
    pod, changes = colocation_profile.with_resource_spec(given["pod"])
    answer: dict[str, Any] = {"mutated": bool(changes)}
    if "annotations" in expect:
        answer["annotations"] = pod["metadata"].get("annotations")
    return _opened(answer), _opened(expect)


def priority_classes(given: Any) -> dict[str, PriorityClassValue]:
    """The PriorityClass objects of a case."""
    return {c["name"]: PriorityClassValue(c["value"], c.get("preemptionPolicy")) for c in given["priorityClasses"]}


def amounts_as_numbers(pod: Any) -> Any:
    """A pod in which quantities compare as numbers, and empty objects count as missing."""
    made = json.loads(json.dumps(pod))
    spec, metadata = made.get("spec") or {}, made.get("metadata") or {}
    for kind in ("labels", "annotations"):
        if not metadata.get(kind, True):
            del metadata[kind]
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        lists = container.get("resources") or {}
        container["resources"] = {which: _nano(amounts) for which, amounts in lists.items() if amounts}
    if "overhead" in spec:
        spec["overhead"] = _nano(spec["overhead"])
    return made


def _nano(amounts: Any) -> dict[str, int]:
    return {name: Quantity.parse(text).nano for name, text in amounts.items()}


def _numbers(expect: Any) -> Any:
    return {**expect, "pod": amounts_as_numbers(expect["pod"])} if "pod" in expect else expect


def _opened(answer: Any) -> Any:
    text = (answer.get("annotations") or {}).get(keys.EXTENDED_RESOURCE_SPEC)
    try:
        return {**answer, "annotations": json.loads(text)} if text else answer
    except ValueError:
        return answer
