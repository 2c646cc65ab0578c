"""QoS classes, priority bands and values, and what the webhook makes of them."""

from __future__ import annotations

from typing import Any

from koordlite.formulas.admission import admission
from koordlite.model.pod.values import Pod
from tests.conformance.adapters import adapter, mappings, shapes

mappings(
    {
        "GetPodQoSClassRaw": lambda given: _pod(given).raw_qos.value,
        "GetPodPriorityClassRaw": lambda given: _pod(given).raw_priority_class.value,
        # Without a pod there is nothing to have a class; we never have a missing pod.
        "GetPodPriorityClassWithDefault": lambda given: (
            _pod(given).priority_class.value if given.get("pod") is not None else ""
        ),
        "GetPodPriorityValueWithDefault": lambda given: (
            _pod(given).priority_value if given.get("pod") is not None else 0
        ),
        "GetKubeQosClass": lambda given: _pod(given).kube_qos.value,
    }
)


@adapter("pod admission (colocation)")
def admitted(given: Any, expect: Any) -> tuple[Any, Any]:
    found = admission.refusals(
        shapes.pod_of(given["newPod"]),
        shapes.pod_of(given["oldPod"]) if given["operation"] == "UPDATE" else None,
        priority_label_may_change=bool(given.get("skipValidatingPriority")),
    )
    answer: dict[str, Any] = {"allowed": not found}
    if "reason" in expect:
        answer["reason"] = admission.message(found)
    return _places(answer), _places(expect)


def _pod(given: Any) -> Pod:
    return shapes.pod_of(given.get("pod"))


def _places(answer: dict[str, Any]) -> dict[str, Any]:
    """The reason without its sentences, which are everybody's own: field, kind and value of each error."""
    if "reason" not in answer:
        return answer
    errors = answer["reason"].removeprefix("[").removesuffix("]").split(", ")
    return {**answer, "reason": [error.rpartition(": ")[0] for error in errors]}
