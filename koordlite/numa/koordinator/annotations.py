"""Annotations of a pod when it is bound: its allocation, and the bind policy that was used.

Source: Koordinator v1.9 `preBindObject`, `appendResourceSpecIfMissed` (plugin.go).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koordlite.model import keys
from koordlite.model.pod.resource_spec import ResourceSpec
from koordlite.numa.koordinator.ask import PodAsk
from koordlite.numa.koordinator.node_report import NodeState
from koordlite.numa.koordinator.schedule import bind_policy, is_bound
from koordlite.numa.koordinator.values import DEFAULT_BIND, Allocation


def for_binding(ask: PodAsk, node: NodeState, allocation: Allocation | None) -> dict[str, str]:
    """The annotations of the Binding; none for a pod without CPUs of its own and without a NUMA policy."""
    if allocation is None:
        return {}
    written = {keys.RESOURCE_STATUS: resource_status(allocation)}
    spec = completed_spec(ask, node) if is_bound(ask, node) is True else ask.spec
    return written if spec == ask.spec else {**written, keys.RESOURCE_SPEC: _json(_spec(spec))}


def resource_status(allocation: Allocation) -> str:
    """Text of `scheduling.koordinator.sh/resource-status`."""
    zones = [
        {"node": zone, "resources": {name: str(amount) for name, amount in sorted(amounts.items())}}
        for zone, amounts in allocation.zones.items()
    ]
    found = {"cpuset": str(allocation.cpus), "numaNodeResources": zones}
    return _json({name: value for name, value in found.items() if value})


def completed_spec(ask: PodAsk, node: NodeState) -> ResourceSpec:
    """The pod's resource-spec with the bind policy that was used, where the pod left it open."""
    used, required = bind_policy(ask, node)
    spec = ask.spec
    if required and spec.required_cpu_bind_policy in ("", DEFAULT_BIND):
        spec = msgspec.structs.replace(spec, required_cpu_bind_policy=used)
    if spec.preferred_cpu_bind_policy == DEFAULT_BIND:
        spec = msgspec.structs.replace(spec, preferred_cpu_bind_policy=used)
    if not spec.required_cpu_bind_policy and not spec.preferred_cpu_bind_policy:
        spec = msgspec.structs.replace(spec, preferred_cpu_bind_policy=used)
    return spec


def _spec(spec: ResourceSpec) -> dict[str, str]:
    written = {
        "requiredCPUBindPolicy": spec.required_cpu_bind_policy,
        "preferredCPUBindPolicy": spec.preferred_cpu_bind_policy,
        "preferredCPUExclusivePolicy": spec.preferred_cpu_exclusive_policy,
    }
    return {name: word for name, word in written.items() if word}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
