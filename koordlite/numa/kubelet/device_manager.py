"""Kubelet's device manager: hints and allocation of devices that plugins have registered.

Which of several equal devices a plugin prefers is not known here: the lowest ids are taken. Source: kubelet 1.36,
`cm/devicemanager/topology_hints.go` and `manager.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.numa.kubelet.merge import Hint, Hints, hints_by_nodes, unexpected
from koordlite.numa.kubelet.requests import ContainerRequest, PodRequest
from koordlite.numa.machine import nodes_of

Devices = Mapping[str, frozenset[int]]
"""Device id → the NUMA nodes it belongs to; none for a device without topology."""

DeviceIds = Mapping[str, frozenset[str]]
"""Resource → device ids."""

NONE: DeviceIds = {}


class DeviceState(msgspec.Struct, frozen=True):
    """Healthy devices by resource, and who has which."""

    devices: Mapping[str, Devices] = msgspec.field(default_factory=dict)
    assigned: Mapping[str, Mapping[str, DeviceIds]] = msgspec.field(default_factory=dict)
    """Pod uid → container → devices."""

    def of(self, uid: str, container: str) -> DeviceIds:
        """Devices a container has already."""
        return self.assigned.get(uid, {}).get(container, NONE)

    def free(self, resource: str) -> frozenset[str]:
        """Devices that nobody has."""
        used = (ids.get(resource, frozenset()) for own in self.assigned.values() for ids in own.values())
        return frozenset(self.devices.get(resource, ())).difference(*used)

    def without(self, uid: str) -> DeviceState:
        """The state after a pod has gone."""
        return DeviceState(self.devices, {pod: own for pod, own in self.assigned.items() if pod != uid})


NO_DEVICES = DeviceState()


def hints(state: DeviceState, nodes: tuple[int, ...], pod: PodRequest, reusable: DeviceIds = NONE) -> Hints:
    """Hints of the manager for the pod as a whole, by resource, about the requests that some plugin serves."""
    by_resource: dict[str, list[Hint] | None] = {}
    for resource, count in pod.devices.items():
        devices = state.devices.get(resource)
        if devices is None:
            continue
        own = frozenset[str]().union(*(state.of(pod.uid, c.name).get(resource, ()) for c in pod.containers))
        reuse = frozenset() if own else reusable.get(resource, frozenset())
        free = own or state.free(resource)
        has_enough = len(own) == count if own else len(free | reuse) >= count
        if any(devices.values()):
            by_resource[resource] = _hints(devices, nodes, free, reuse, count) if has_enough else []
        else:
            by_resource[resource] = None
    return by_resource


def allocate(
    state: DeviceState, uid: str, container: ContainerRequest, *, affinity: int | None, reusable: DeviceIds
) -> DeviceState:
    """The state after the container got its devices, those on the affinity's nodes first; `Refused` when it cannot."""
    ids = dict(state.of(uid, container.name))
    for resource, count in container.devices.items():
        if resource not in state.devices:
            continue
        if resource in ids:
            if len(ids[resource]) != count:
                change = f"changed request for resource {resource!r} from {len(ids[resource])} to {count}"
                raise unexpected(f"pod {uid!r} container {container.name!r} {change}")
            continue
        ids[resource] = _pick(state, resource, count, affinity, reusable.get(resource, frozenset()))
    if not ids:
        return state
    assigned = {**state.assigned, uid: {**state.assigned.get(uid, {}), container.name: ids}}
    return DeviceState(state.devices, assigned)


def reusable_after(reusable: DeviceIds, ids: DeviceIds, container: ContainerRequest) -> DeviceIds:
    """Devices that later containers of the pod can use again: those of ended init containers that nobody has taken
    over. `ids` are the container's."""
    after = dict(reusable)
    for resource, own in ids.items():
        reuse = after.get(resource, frozenset())
        after[resource] = reuse | own if container.kind == "init" else reuse - own
    return after


def _hints(
    devices: Devices, nodes: tuple[int, ...], available: frozenset[str], reusable: frozenset[str], count: int
) -> list[Hint]:
    """The sets of NUMA nodes with devices that have enough of them, and all that can be used again."""
    aligned = [devices[d] for d in reusable if devices.get(d)]
    return hints_by_nodes(
        frozenset[int]().union(*devices.values()) & set(nodes) or nodes,
        lambda members: sum(not on.isdisjoint(members) for on in devices.values()) >= count,
        lambda members, _: (
            not any(on.isdisjoint(members) for on in aligned)
            and len(aligned) + sum(not devices[d].isdisjoint(members) for d in available) >= count
        ),
    )


def _pick(
    state: DeviceState, resource: str, count: int, affinity: int | None, reusable: frozenset[str]
) -> frozenset[str]:
    devices, free, first = state.devices[resource], state.free(resource), sorted(reusable)[:count]
    missing = count - len(first)
    if len(free) < missing:
        numbers = f"Requested: {missing}, Available: {len(free)}"
        raise unexpected(f"requested number of devices unavailable for {resource}. {numbers}")
    inside = set(nodes_of(affinity)) if affinity is not None else set()

    def order(device: str) -> tuple[int, str]:
        on = devices[device]
        return (0 if on & inside else 1 if on else 2, device)

    return frozenset([*first, *sorted(free, key=order)[:missing]])
