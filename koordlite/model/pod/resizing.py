"""Amounts of a pod that is resized in place: what it asks for, what its node granted, and what its containers have.

Source: Kubernetes 1.36, `determineEffectiveRequests` and `determineEffectiveLimits`, by which kube-scheduler and
kubelet count.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.errors import Problem
from koordlite.model.quantity import parse_resources
from koordlite.model.wire import objects

Texts = Mapping[str, str | int | float]


def counted(obj: objects.PodObject) -> objects.PodObject:
    """Replace the amounts in the pod's spec by those that count against its node.
    Until a container has shrunk, what it still has counts, and a growth counts from the moment it is asked for. One
    that the node can never grant (PodResizePending: Infeasible) counts with what it has. The same object where nothing
    differs, which is nearly always."""
    spec, status = obj.spec, obj.status
    states = {each.name: each for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))}
    if not (status.resources or any(state.resources for state in states.values())):
        return obj
    pending = next((each for each in status.conditions or () if each.type == "PodResizePending"), None)
    infeasible = pending is not None and pending.reason == "Infeasible"

    def several(containers: tuple[objects.Container, ...] | None) -> tuple[objects.Container, ...] | None:
        return containers and tuple(_container(each, states.get(each.name), infeasible) for each in containers)

    containers, init_containers = several(spec.containers), several(spec.init_containers)
    resources = spec.resources and _amounts(spec.resources, status.resources, status.allocated_resources, infeasible)
    if containers == spec.containers and init_containers == spec.init_containers and resources == spec.resources:
        return obj
    changed = msgspec.structs.replace(spec, containers=containers, init_containers=init_containers, resources=resources)
    return msgspec.structs.replace(obj, spec=changed)


def granted(
    obj: objects.PodObject, container: objects.Container, state: objects.ContainerStatus | None
) -> objects.Resources:
    """Requests and limits that the container runs with while its pod is resized: its cgroup has those, not the ones it
    is still to get.

    At other times the spec says the same. The status may then say something else: a runtime also reports what a plugin
    (NRI) made of the values, ours included.
    """
    resized = any(each.type in ("PodResizePending", "PodResizeInProgress") for each in obj.status.conditions or ())
    return (resized and state and state.resources) or container.resources or objects.Resources()


def _container(
    container: objects.Container, state: objects.ContainerStatus | None, infeasible: bool
) -> objects.Container:
    if state is None or state.resources is None:
        return container
    desired = container.resources or objects.Resources()
    amounts = _amounts(desired, state.resources, state.allocated_resources, infeasible)
    return container if amounts == desired else msgspec.structs.replace(container, resources=amounts)


def _amounts(
    desired: objects.Resources, actual: objects.Resources | None, allocated: Texts | None, infeasible: bool
) -> objects.Resources:
    if actual is None:
        return desired
    requests = () if infeasible else (desired.requests,)
    return objects.Resources(
        requests=_largest(*requests, actual.requests, allocated),
        limits=actual.limits if infeasible else _largest(desired.limits, actual.limits),
    )


def _largest(first: Texts | None, *more: Texts | None) -> dict[str, str | int | float] | None:
    """The largest amount of each resource, as it is written. One that cannot be read is left as the first has it."""
    largest = dict(first or {})
    for texts in more:
        for name, text in (texts or {}).items():
            if name not in largest or (text != largest[name] and _exceeds(text, largest[name])):
                largest[name] = text
    return largest or None


def _exceeds(text: str | float, other: str | float) -> bool:
    ignored: list[Problem] = []
    amounts = parse_resources({"one": text, "other": other}, "", "", ignored)
    return not ignored and amounts["one"] > amounts["other"]
