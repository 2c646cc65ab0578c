"""Where we make batch pods of pods differently on purpose."""

from __future__ import annotations

from typing import Any

from tests.conformance.deviations import deviation


@deviation(
    "profile-selector: a selector that cannot be read is an error of the profile, and selects nothing",
    "clusterColocationProfileMutatingPod",
)
def _unreadable_selector(given: Any, wanted: Any, found: Any) -> bool:
    operators = {"In", "NotIn", "Exists", "DoesNotExist"}
    lines = [
        line
        for profile in given["profiles"]
        for line in (profile["spec"].get("selector") or {}).get("matchExpressions", ())
    ]
    return found == {"error": True} and any(line["operator"] not in operators for line in lines)


@deviation(
    "profile-namespace: a namespace whose labels are not known matches no namespaceSelector",
    "clusterColocationProfileMutatingPod",
)
def _unknown_namespace(given: Any, wanted: Any, found: Any) -> bool:
    known = {each["name"] for each in given["namespaces"]}
    asked = any(profile["spec"].get("namespaceSelector") for profile in given["profiles"])
    return asked and given["pod"]["metadata"]["namespace"] not in known and not found["mutated"]


@deviation("profile-probability: p percent is p of 100 draws", "clusterColocationProfileMutatingPod")
def _draw_is_the_probability(given: Any, wanted: Any, found: Any) -> bool:
    percents = [int(str(p["spec"].get("probability", 100)).removesuffix("%")) for p in given["profiles"]]
    return not found["mutated"] and any(draw in percents for draw in given.get("randomDraws", ()))


@deviation("profile-resource-spec: an annotation that cannot be read is replaced", "extendedResourceSpecMutatingPod")
def _broken_annotation(given: Any, wanted: Any, found: Any) -> bool:
    return "error" in wanted and bool(found["mutated"])
