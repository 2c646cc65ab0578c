"""Requests of a pod to kubelet's managers: exclusive CPUs, memory and devices, container by container.

Source: kubelet 1.36, `guaranteedCPUs`, `podGuaranteedCPUs`, `getPodRequestedResources` and `getPodDeviceRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from koordlite.model.errors import Problem
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.quantity import NANO
from koordlite.model.wire import objects

Kind = Literal["app", "init", "sidecar"]
"""`init` containers have ended before the next container starts; sidecars stay."""

Counts = Mapping[str, int]
"""Whole units by resource name: bytes of memory and huge pages, pieces of devices."""


class ContainerRequest(msgspec.Struct, frozen=True):
    """Request of a container. `cpus` are those it gets to itself, 0 for one in the shared pool."""

    name: str
    cpus: int = 0
    memory: Counts = msgspec.field(default_factory=dict)
    """Memory and huge pages that kubelet reserves for it; empty unless its pod is Guaranteed."""
    devices: Counts = msgspec.field(default_factory=dict)
    """Extended resources; kubelet aligns those that a device plugin has registered."""
    kind: Kind = "app"


class PodRequest(msgspec.Struct, frozen=True):
    """The containers of one pod, init containers and sidecars first, in the order in which they start."""

    uid: str
    containers: tuple[ContainerRequest, ...]

    def only(self, container: ContainerRequest) -> PodRequest:
        """The pod with this container alone, as scope `container` aligns it."""
        return PodRequest(self.uid, (msgspec.structs.replace(container, kind="app"),))

    @property
    def cpus(self) -> int:
        """Exclusive CPUs of the pod as a whole, at the time when it has most."""
        return peak((c.cpus, c.kind == "init") for c in self.containers)

    @property
    def memory(self) -> dict[str, int]:
        """Memory and huge pages of the pod as a whole; only what some app container asks for is counted."""
        names = dict.fromkeys(name for c in self.containers if c.kind == "app" for name in c.memory)
        return {name: peak((c.memory.get(name, 0), c.kind == "init") for c in self.containers) for name in names}

    @property
    def devices(self) -> dict[str, int]:
        """Devices of the pod as a whole."""
        names = dict.fromkeys(name for c in self.containers for name in c.devices)
        return {name: peak((c.devices.get(name, 0), c.kind == "init") for c in self.containers) for name in names}


def started(spec: objects.PodSpec) -> Iterator[tuple[Kind, objects.Container]]:
    """The containers of a pod in the order in which they start."""
    for one in spec.init_containers or ():
        yield "sidecar" if one.restart_policy == "Always" else "init", one
    for one in spec.containers or ():
        yield "app", one


def in_nano(spec: objects.PodSpec) -> list[tuple[Kind, str, dict[str, int]]]:
    """Kind, name and requests in nano-units of each container, in the order in which they start."""
    rows = ((kind, one.name, pod_reader.amounts(one.resources)[0]) for kind, one in started(spec))
    return [(kind, name, {resource: amount.nano for resource, amount in own.items()}) for kind, name, own in rows]


def of_pod(pod: objects.PodObject, problems: list[Problem] | None = None) -> PodRequest:
    """Read the requests of a pod's object; amounts that cannot be read count as none and are added to `problems`.

    CPUs and memory of a pod with pod-level resources are not aligned, unless kubelet's gate PodLevelResourceManagers is
    on, which is off by default.
    """
    spec, noted = pod_reader.counted(pod).spec, [] if problems is None else problems
    guaranteed = pod_reader.kube_qos(pod) is KubeQoS.GUARANTEED
    reserved = guaranteed and not (spec.resources and (spec.resources.requests or spec.resources.limits))
    owner = f"pod/{pod.metadata.namespace}/{pod.metadata.name}"
    parts = (_container(one, kind, owner, noted, reserved) for kind, one in started(spec))
    return PodRequest(pod.metadata.uid, tuple(parts))


def is_memory(resource: str) -> bool:
    """The memory manager reserves it."""
    return resource == "memory" or resource.startswith("hugepages-")


def is_device(resource: str) -> bool:
    """A device plugin may have registered it: a name with a domain that is not Kubernetes' own."""
    domain, _, name = resource.rpartition("/")
    return bool(domain and name) and not domain.endswith("kubernetes.io")


def _container(
    container: objects.Container, kind: Kind, owner: str, problems: list[Problem], reserved: bool
) -> ContainerRequest:
    requests, limits = pod_reader.amounts(container.resources, owner, container.name, problems)
    cpu = requests["cpu"].nano if "cpu" in requests else 0
    return ContainerRequest(
        container.name,
        cpus=cpu // NANO if reserved and cpu > 0 and cpu % NANO == 0 else 0,
        memory={name: amount.value for name, amount in requests.items() if is_memory(name)} if reserved else {},
        devices={name: amount.value for name, amount in limits.items() if is_device(name) and amount.value > 0},
        kind=kind,
    )


def peak(amounts: Iterable[tuple[int, bool]]) -> int:
    """The most that a pod needs at one time, of the amounts of its containers in the order in which they start, each
    with whether it ends before the next one starts."""
    staying = largest = 0
    for amount, ends in amounts:
        if ends:
            largest = max(largest, staying + amount)
        else:
            staying += amount
    return max(staying, largest)
