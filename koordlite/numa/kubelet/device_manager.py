"""Kubelet's device manager: hints and allocation of devices that plugins have registered.

Which of several equal devices a plugin prefers is not known here: the lowest ids are taken. Source: kubelet 1.36,
`cm/devicemanager/topology_hints.go` and `manager.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from koordlite.numa.kubelet.merge import Hint, Hints, hints_by_nodes, unexpected
from koordlite.numa.kubelet.requests import ContainerAsk, PodAsk
from koordlite.numa.machine import nodes_of

Devices = Mapping[str, frozenset[int]]
"""Device id → the NUMA nodes it belongs to; none for a device without topology."""

HeldDevices = Mapping[str, frozenset[str]]
"""Resource → device ids."""

NONE: HeldDevices = {}


class DeviceState(msgspec.Struct, frozen=True):
    """Devices by resource, and who has which."""

    devices: Mapping[str, Devices] = msgspec.field(default_factory=dict)
    assigned: Mapping[str, Mapping[str, HeldDevices]] = msgspec.field(default_factory=dict)
    """Pod uid → container → devices."""
    unhealthy: frozenset[tuple[str, str]] = frozenset()
    """(resource, id) of devices that are registered and cannot be given away."""

    def of(self, uid: str, container: str, resource: str) -> frozenset[str]:
        """Devices a container has already."""
        return self.assigned.get(uid, {}).get(container, NONE).get(resource, frozenset())

    def free(self, resource: str) -> frozenset[str]:
        """Healthy devices that nobody has."""
        used = frozenset[str]().union(
            *(held.get(resource, frozenset()) for own in self.assigned.values() for held in own.values())
        )
        return frozenset(d for d in self.devices.get(resource, {}) if (resource, d) not in self.unhealthy) - used

    def with_devices(self, uid: str, container: str, resource: str, ids: Set[str]) -> DeviceState:
        """The state after a container got these devices."""
        own = self.assigned.get(uid, {})
        held = {**own.get(container, NONE), resource: frozenset(ids)}
        return msgspec.structs.replace(self, assigned={**self.assigned, uid: {**own, container: held}})

    def without(self, uid: str) -> DeviceState:
        """The state after a pod has gone."""
        others = {pod: own for pod, own in self.assigned.items() if pod != uid}
        return msgspec.structs.replace(self, assigned=others)

    def wanted(self, asked: Mapping[str, int]) -> dict[str, int]:
        """The part of a request that some plugin serves."""
        return {resource: count for resource, count in asked.items() if resource in self.devices}


NO_DEVICES = DeviceState()


def hints(state: DeviceState, nodes: tuple[int, ...], pod: PodAsk, reusable: HeldDevices = NONE) -> Hints:
    """Hints of the manager for the pod as a whole, by resource."""
    found: dict[str, list[Hint] | None] = {}
    for resource, count in state.wanted(pod.devices).items():
        devices, again = state.devices[resource], reusable.get(resource, frozenset())
        own = frozenset[str]().union(*(state.of(pod.uid, c.name, resource) for c in pod.containers))
        if not any(devices.values()):
            found[resource] = None
        elif own:
            found[resource] = _hints(devices, nodes, own, frozenset(), count) if len(own) == count else []
        else:
            free = state.free(resource)
            found[resource] = _hints(devices, nodes, free, again, count) if len(free | again) >= count else []
    return found


def allocate(
    state: DeviceState, uid: str, container: ContainerAsk, *, affinity: int | None, reusable: HeldDevices
) -> DeviceState:
    """The state after the container got its devices, those on the affinity's nodes first; `Refused` when it cannot."""
    for resource, count in state.wanted(container.devices).items():
        own = state.of(uid, container.name, resource)
        if own:
            if len(own) != count:
                changed = f"changed request for resource {resource!r} from {len(own)} to {count}"
                raise unexpected(f"pod {uid!r} container {container.name!r} {changed}")
            continue
        ids = _chosen(state, resource, count, affinity, reusable.get(resource, frozenset()))
        state = state.with_devices(uid, container.name, resource, ids)
    return state


def reusable_after(reusable: HeldDevices, state: DeviceState, uid: str, container: ContainerAsk) -> HeldDevices:
    """Devices that later containers of the pod can use again: those of ended init containers that nobody has taken
    over."""
    found = dict(reusable)
    for resource, ids in state.assigned.get(uid, {}).get(container.name, NONE).items():
        held = found.get(resource, frozenset())
        found[resource] = held | ids if container.kind == "init" else held - ids
    return found


def _hints(
    devices: Devices, nodes: tuple[int, ...], available: frozenset[str], reusable: frozenset[str], count: int
) -> list[Hint]:
    """The sets of NUMA nodes with devices that have enough of them, and all that can be used again."""
    aligned = [devices[d] for d in reusable if devices.get(d)]
    return hints_by_nodes(
        frozenset[int]().union(*devices.values()) & set(nodes) or nodes,
        lambda chosen: sum(not on.isdisjoint(chosen) for on in devices.values()) >= count,
        lambda chosen, _: (
            not any(on.isdisjoint(chosen) for on in aligned)
            and len(aligned) + sum(not devices[d].isdisjoint(chosen) for d in available) >= count
        ),
    )


def _chosen(
    state: DeviceState, resource: str, count: int, affinity: int | None, reusable: frozenset[str]
) -> frozenset[str]:
    devices, free = state.devices[resource], state.free(resource)
    again = sorted(reusable)[:count]
    needed = count - len(again)
    if not any((resource, d) not in state.unhealthy for d in devices):
        raise unexpected(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if len(free) < needed:
        numbers = f"Requested: {needed}, Available: {len(free)}"
        raise unexpected(f"requested number of devices unavailable for {resource}. {numbers}")
    inside = set(nodes_of(affinity)) if affinity is not None else set()

    def order(device: str) -> tuple[int, str]:
        on = devices[device]
        return (0 if on & inside else 1 if on else 2, device)

    return frozenset([*again, *sorted(free, key=order)[:needed]])
