"""Containers of a pod that are given CPUs: those that ask for whole CPUs and no more than that.

Source: crane-agent `GetPodTargetContainerIndices`, `GuaranteedCPUs`; crane-scheduler has the same rule. The class of
the pod does not matter, nor do init containers count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordlite.model.quantity import NANO, Quantity

Container = tuple[str, Mapping[str, Quantity], Mapping[str, Quantity]]
"""Name, requests, limits."""
_ZERO = Quantity(0)


def guaranteed_cpus(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> int:
    """Whole CPUs that the container requests, where its limit is the same; else 0."""
    asked = requests.get("cpu", _ZERO)
    if asked != limits.get("cpu", _ZERO) or asked.nano % NANO or asked.nano < 0:
        return 0
    return asked.value


def targets(policy: str, containers: Sequence[Container]) -> dict[str, int]:
    """CPUs by name of the containers that are given some; none under policy `none`."""
    if policy == "none":
        return {}
    found = {name: guaranteed_cpus(requests, limits) for name, requests, limits in containers}
    return {name: count for name, count in found.items() if count}
