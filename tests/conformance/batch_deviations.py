"""Where we count batch resources differently on purpose."""

from __future__ import annotations

import json
from typing import Any

from koordlite.formulas.cpu.burst import MIN_QUOTA_US
from koordlite.model import keys
from tests.conformance.deviation import Deviation

_BATCH = (keys.BATCH_CPU, keys.BATCH_MEMORY)


def _spec(given: Any) -> Any:
    return given["pod"]["spec"]


def _resources(container: Any, which: str) -> dict[str, str]:
    return dict((container.get("resources") or {}).get(which) or {})


def _recorded(container: Any) -> bool:
    return any(name in _resources(container, which) for which in ("requests", "limits") for name in _BATCH)


def _same_containers(wanted: Any, found: Any) -> bool:
    return bool(wanted["containers"] == found["containers"])


def _init_counts(given: Any, wanted: Any, found: Any) -> bool:
    """The pod has what its largest init container has, which is more than Koordinator gives it."""
    first = [each["name"] for each in _spec(given).get("initContainers", ())]
    return _same_containers(wanted, found) and found["pod"] in [found["containers"][name] for name in first]


def _sidecar_counts(given: Any, wanted: Any, found: Any) -> bool:
    """Another container of the pod has no batch resources: what it has otherwise counts, and without limits none."""
    others = [each for each in _spec(given)["containers"] if not _recorded(each)]
    if len(others) != 1 or not _same_containers(wanted, found):
        return False
    natives = _resources(others[0], "limits")
    limits = [("cpu", "cfsQuota"), ("memory", "memoryLimit")]
    return all(
        found["pod"][name] > wanted["pod"][name] if native in natives else found["pod"][name] == -1
        for native, name in limits
    )


def _no_hook(given: Any, wanted: Any, found: Any) -> bool:
    """The container has amounts of its own, of which a container runtime is not told."""
    return given["from"] == "proxy" and any(map(_recorded, _spec(given)["containers"])) and bool(found["pod"])


def _unbelieved(given: Any, wanted: Any, found: Any) -> bool:
    """The annotation has amounts, the spec has none."""
    return not any(map(_recorded, _spec(given)["containers"])) and not any(
        (found["pod"], *found["containers"].values())
    )


def _known_containers(given: Any, wanted: Any, found: Any) -> bool:
    note = json.loads(given["pod"]["metadata"]["annotations"][keys.EXTENDED_RESOURCE_SPEC])
    names = {each["name"] for each in _spec(given)["containers"]}
    return not note["containers"].keys() & names and _same_containers(wanted, found) and found["pod"] == {}


def _limit_is_request(given: Any, wanted: Any, found: Any) -> bool:
    """Only shares differ, and they are more."""

    def rest(values: Any) -> Any:
        return {name: value for name, value in values.items() if name not in ("cpuShares", "cpuWeightV2")}

    pairs = [(wanted["pod"], found["pod"])]
    pairs += [(wanted["containers"][name], each) for name, each in found["containers"].items()]
    without = [
        each
        for each in _spec(given)["containers"]
        if keys.BATCH_CPU in _resources(each, "limits") and keys.BATCH_CPU not in _resources(each, "requests")
    ]
    return bool(without) and all(
        rest(theirs) == rest(ours) and ours["cpuShares"] >= theirs["cpuShares"] for theirs, ours in pairs
    )


def _least_quota(given: Any, wanted: Any, found: Any) -> bool:
    """Only quotas differ that the ratio took below the kernel's least."""

    def raised(values: Any) -> Any:
        return {**values, "cfsQuota": MIN_QUOTA_US} if 0 < values.get("cfsQuota", 0) < MIN_QUOTA_US else values

    return bool(
        raised(wanted["pod"]) == found["pod"]
        and {name: raised(values) for name, values in wanted["containers"].items()} == found["containers"]
    )


_RULES = (
    (_least_quota, "batch-least-quota: a quota divided by the ratio is at least the kernel's least, 1 ms"),
    (_init_counts, "batch-init-containers: init containers, sidecars and overhead count in the pod as kubelet counts"),
    (_sidecar_counts, "batch-other-containers: a container without batch resources counts with its native ones"),
    (
        _no_hook,
        "batch-spec-wins: the pod's spec counts on every way, and the annotation where it asks for less",
    ),
    (_unbelieved, "batch-annotation-believed: an annotation gives nothing to a pod whose spec asks for nothing"),
    (_known_containers, "batch-known-containers: an entry for a container that the pod does not have counts nothing"),
    (_limit_is_request, "batch-limit-is-request: a limit without a request is a request as well"),
)
DEVIATIONS = tuple(Deviation(("BatchResource",), applies, rule) for applies, rule in _RULES)
