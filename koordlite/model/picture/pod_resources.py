"""CPUs, devices and memory: what kubelet may give out, and what it has given to the containers of which pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet


class Devices(msgspec.Struct, frozen=True):
    """Devices of one resource; `nodes` are the NUMA nodes they are attached to, empty where that is not known."""

    resource: str
    ids: tuple[str, ...]
    nodes: tuple[int, ...] = ()


class MemoryBlock(msgspec.Struct, frozen=True):
    """Bytes of one kind (`memory`, `hugepages-2Mi`) from these NUMA nodes together."""

    kind: str
    size: int
    nodes: tuple[int, ...] = ()


class Given(msgspec.Struct, frozen=True):
    """What a container has, or what kubelet may give out."""

    cpus: CPUSet = EMPTY
    devices: tuple[Devices, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()

    @property
    def has_locality(self) -> bool:
        """Whether it has CPUs of its own, or memory or devices of a NUMA node that is known."""
        return bool(self.cpus or self.nodes)

    @property
    def nodes(self) -> frozenset[int]:
        """NUMA nodes of its memory and devices."""
        memory = (node for block in self.memory for node in block.nodes)
        return frozenset(memory) | {node for devices in self.devices for node in devices.nodes}


class PodGiven(msgspec.Struct, frozen=True):
    """What the containers of one pod have, by container name. Kubelet's socket names pods, its checkpoints uids."""

    namespace: str
    name: str
    containers: Mapping[str, Given]
    uid: str = ""


class KubeletResources(msgspec.Struct, frozen=True):
    """What kubelet may give out, and has given.

    CPUs, or a kind of memory, that are not in `allocatable` at all are not managed by kubelet: every pod may use all.
    """

    source: Literal["pod-resources", "checkpoints"]
    allocatable: Given
    pods: tuple[PodGiven, ...] = ()
    """As kubelet lists them; pods that have ended may be among them."""
