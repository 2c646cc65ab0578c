"""A pod's wishes about its own eviction, and the amounts that leave the node with it.

Labels and annotations are Koordinator's (`apis/extension`); what they mean to its agent is in
`pkg/koordlet/qosmanager/plugins/util`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from koordlite.model import keys
from koordlite.model.errors import UNREADABLE
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.pod.values import Pod

USED = "podUsed"
"""Releases are counted by the use of pods."""
REQUESTED = "podResourceRequest"
"""Releases are counted by the requests of pods."""

_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
OWN_NAMES = {
    PriorityClass.BATCH: {"cpu": keys.BATCH_CPU, "memory": keys.BATCH_MEMORY},
    PriorityClass.MID: {"cpu": keys.MID_CPU, "memory": keys.MID_MEMORY},
}


def priority(pod: Pod) -> int:
    """Annotation `eviction-priority`, 0 when it is missing or no 32-bit integer; the lowest goes first.
    Source: Koordinator `GetPodEvictionPriority`."""
    return _integer(pod.annotations.get(keys.EVICTION_PRIORITY), bits=32, default=0)


def sub_priority(pod: Pod, default: int) -> int:
    """Label `koordinator.sh/priority`, `default` when it is missing or no 64-bit integer.
    Source: Koordinator `GetPodPriorityLabel`."""
    return _integer(pod.labels.get(keys.PRIORITY), bits=64, default=default)


def enabled(pod: Pod) -> bool:
    """Tell whether the label lets rules that go by priority evict the pod: it has to say `true`, letter by letter."""
    return pod.labels.get(keys.EVICTION_ENABLED) == "true"


def allows(annotations: Mapping[str, str], feature: str) -> bool:
    """Tell whether the annotation `eviction-policy` lets `feature` evict the pod: it is missing, or lists the feature.
    One that cannot be read protects the pod: a typing mistake must not evict it.
    Source: Koordinator `IsEvictionPolicyAllowed`."""
    text = annotations.get(keys.EVICTION_POLICY)
    if text is None:
        return True
    try:
        return feature in (msgspec.json.decode(text, type=list[str] | None) or ())
    except UNREADABLE:
        return False


def request(pod: Pod, resource: str) -> dict[str, int]:
    """Request of the pod for `resource` (cpu in millicores, memory in bytes), under the name that its class pays in.
    Batch and mid pods: the sum over containers and sidecars of the batch or mid resource, none of them below 0. Others:
    the request that the scheduler counts. Source: Koordinator `GetRequestFromPod`."""
    own = OWN_NAMES.get(pod.priority_class)
    if own is None:
        return {resource: pod.request_milli() if resource == "cpu" else pod.request_value(resource)}
    return {own[resource]: _sum(pod, own[resource])}


def largest_request(pod: Pod, resource: str) -> int:
    """The most that the pod requests of `resource` (cpu in millicores, memory in bytes) under any of its names."""
    own = pod.request_milli() if resource == "cpu" else pod.request_value(resource)
    return max(own, *(_sum(pod, name) for name in promised(resource)))


def batch_cpu(pod: Pod) -> int:
    """batch-cpu that containers and sidecars request, in millicores, whatever the pod's class."""
    return _sum(pod, keys.BATCH_CPU)


def promised(resource: str) -> tuple[str, ...]:
    """Names under which batch and mid pods request `resource`."""
    return tuple(names[resource] for names in OWN_NAMES.values())


def _sum(pod: Pod, name: str) -> int:
    requests = (container.requests.get(name) for container in pod.containers if not container.one_shot)
    return sum(max(amount.value, 0) for amount in requests if amount is not None)


def _integer(text: str | None, *, bits: int, default: int) -> int:
    if text is None or len(text) > 20 or not _INTEGER.match(text):
        return default
    value = int(text)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else default
