"""Pods: defaults, quality of service, admission and what may change later (Kubernetes core/v1 pod strategy)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apiserver import names, status, validation
from apiserver.resources import Resource
from apiserver.status import Cause, forbidden_field, required, wrong
from apiserver.store import Object
from koordlite.model.quantity import Quantity

GRACE_SECONDS = 30
_BUILT_IN_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_RESTARTS = ("Always", "OnFailure", "Never")
_OPERATORS = ("Equal", "Exists")
_TOLERATED_SECONDS = 300
_CONDITIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations) or "
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}


def defaulted(pod: Object) -> Object:
    """The pod with what the API fills in on create; the status is the server's own."""
    spec = {**_SPEC, **pod["spec"]}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_container(each) for each in spec[field]]
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    result = pod | {"spec": with_tolerations(spec)}
    return result | {"status": {"phase": "Pending", "qosClass": qos_class(spec)}}


def _container(container: Object) -> Object:
    image = container.get("image", "")
    latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    resources = container["resources"]
    if resources.get("limits"):
        resources = resources | {"requests": {**resources["limits"], **resources.get("requests", {})}}
    policy = {"imagePullPolicy": "Always" if latest else "IfNotPresent"}
    return {**policy, **_CONTAINER, **container, "resources": resources}


def with_tolerations(spec: Object) -> Object:
    """The spec with tolerations for trouble of the node, on create as on update (DefaultTolerationSeconds)."""
    tolerations = list(spec.get("tolerations") or ())
    for key in _CONDITIONS:
        if not any(_tolerates(each, key) for each in tolerations):
            each = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_SECONDS}
            tolerations.append(each)
    return spec | {"tolerations": tolerations}


def _tolerates(toleration: Any, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, by CPU and memory alone."""
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    requests, limits = ([_compute(each, field) for each in containers] for field in ("requests", "limits"))
    if not any(requests) and not any(limits):
        return "BestEffort"
    full = all(len(each) == 2 for each in limits)
    return "Guaranteed" if full and requests == limits else "Burstable"


def _compute(container: Object, field: str) -> dict[str, Quantity]:
    amounts = (container.get("resources") or {}).get(field) or {}
    parsed = {name: Quantity.parse(amounts[name]) for name in ("cpu", "memory") if name in amounts}
    return {name: quantity for name, quantity in parsed.items() if quantity.nano}


def with_priority(pod: Object, classes: list[Object], resource: Resource) -> Object:
    """The pod with the priority of its class; Refused 403 for an unknown class or a priority set by hand."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    known = _BUILT_IN_CLASSES | {each["metadata"]["name"]: each["value"] for each in classes}
    default = next((each for each in classes if each.get("globalDefault")), None)
    wanted = spec.get("priorityClassName") or (default["metadata"]["name"] if default else "")
    if wanted and wanted not in known:
        raise status.forbidden(resource, name, f"no PriorityClass with name {wanted} was found")
    priority = known[wanted] if wanted else 0
    if spec.get("priority", priority) != priority:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
        raise status.forbidden(resource, name, why)
    policy = next((each.get("preemptionPolicy") for each in classes if each["metadata"]["name"] == wanted), None)
    filled = {"preemptionPolicy": policy or "PreemptLowerPriority"} | spec | {"priority": priority}
    return pod | {"spec": filled | ({"priorityClassName": wanted} if wanted else {})}


def causes(pod: Object) -> Iterator[Cause]:
    """What is wrong with a pod."""
    containers = pod["spec"].get("containers") or ()
    if not containers:
        yield required("spec.containers")
    seen = set[str]()
    for field in ("containers", "initContainers"):
        for place, container in enumerate(pod["spec"].get(field) or ()):
            yield from _container_causes(f"spec.{field}[{place}]", container)
            if container.get("name") in seen:
                yield status.duplicate(f"spec.{field}[{place}].name", container["name"])
            seen.add(container.get("name", ""))
    yield from _choices(pod["spec"])


def _choices(spec: Object) -> Iterator[Cause]:
    if spec.get("restartPolicy", "Always") not in _RESTARTS:
        yield status.unsupported("spec.restartPolicy", spec["restartPolicy"], _RESTARTS)
    for place, each in enumerate(spec.get("tolerations") or ()):
        if each.get("operator", "Equal") not in _OPERATORS:
            yield status.unsupported(f"spec.tolerations[{place}].operator", each["operator"], _OPERATORS)


def _container_causes(field: str, container: Object) -> Iterator[Cause]:
    for key in ("name", "image"):
        if not container.get(key):
            yield required(f"{field}.{key}")
    yield from (wrong(f"{field}.name", container["name"], each) for each in _name_faults(container))
    limits, requests = (container["resources"].get(key) or {} for key in ("limits", "requests"))
    for name, text in limits.items():
        yield from _amount(f"{field}.resources.limits[{name}]", name, text)
    for name, text in requests.items():
        yield from _amount(f"{field}.resources.requests[{name}]", name, text)
        yield from _against_limit(f"{field}.resources", name, text, limits.get(name))


def _name_faults(container: Object) -> list[str]:
    return names.label_faults(container["name"]) if container.get("name") else []


def _amount(field: str, name: str, text: str) -> Iterator[Cause]:
    if "/" not in name and name not in validation.STANDARD and not name.startswith("hugepages-"):
        yield wrong(field, name, "must be a standard resource type or fully qualified")
        yield wrong(field, name, "must be a standard resource for containers")
    yield from validation.amount(field, name, text)


def _against_limit(field: str, name: str, text: str, limit: str | None) -> Iterator[Cause]:
    overcommits = not validation.is_extended(name) and not name.startswith("hugepages-")
    request = Quantity.parse(text)
    if limit is None:
        if not overcommits:
            yield required(f"{field}.limits", "Limit must be set for non overcommitable resources")
    elif not overcommits and request != Quantity.parse(limit):
        yield wrong(f"{field}.requests", text, f"must be equal to {name} limit")
    elif request > Quantity.parse(limit):
        yield wrong(f"{field}.requests", text, f"must be less than or equal to {name} limit")


def update_causes(old: Object, new: Object) -> Iterator[Cause]:
    """A change of the spec beyond the few fields that may change."""
    limit, wanted = old["spec"].get("activeDeadlineSeconds"), new["spec"].get("activeDeadlineSeconds")
    if limit is not None and wanted is not None and wanted > limit:
        yield wrong("spec.activeDeadlineSeconds", wanted, "must be less than or equal to previous value")
    before, after = old["spec"], new["spec"]
    if _frozen(before) != _frozen(after) or not _kept(before, after):
        yield forbidden_field("spec", _MAY_CHANGE)


def _frozen(spec: Object) -> Object:
    rest = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
    for field in ("containers", "initContainers"):
        if field in rest:
            rest[field] = [{**each, "image": ""} for each in rest[field]]
    return rest


def _kept(before: Object, after: Object) -> bool:
    return all(each in (after.get("tolerations") or ()) for each in before.get("tolerations") or ())


def is_ready(pod: Object) -> bool:
    """Whether the condition Ready is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def is_over(pod: Object) -> bool:
    """Whether the pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def grace_seconds(pod: Object, asked: int | None) -> int:
    """How long the pod has to go: nothing to wait for when no kubelet has it or it has ended."""
    if not pod["spec"].get("nodeName") or is_over(pod):
        return 0
    if asked is None:
        asked = pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
    return 1 if asked < 0 else asked


def bound(pod: Object, node: str, now: str) -> Object:
    """The pod after a binding; its nomination is over."""
    old = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = [each for each in old.get("conditions") or () if each["type"] != "PodScheduled"]
    return pod | {
        "spec": pod["spec"] | {"nodeName": node},
        "status": old | {"conditions": [*conditions, condition]},
    }
