"""Kubelet's checkpoints of memory and devices, `memory_manager_state` and `kubelet_internal_checkpoint`; and notices
that it wrote one.

Their checksums are not verified: they depend on Go's printing of structs. Shapes: Kubernetes memory manager and
device manager checkpoints.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from koordlite import inotify
from koordlite.inotify import Inotify
from koordlite.kube.kubelet.configz import understood
from koordlite.model.picture.kubelet import Devices, MemoryBlock

T = TypeVar("T")
ByContainer = Mapping[tuple[str, str], tuple[T, ...]]
"""Values by pod uid and container name."""


class MemoryManagerState(msgspec.Struct, frozen=True):
    """Promises of kubelet's memory manager; `policy` is None (the word) when it promises nothing."""

    policy: str = ""
    blocks: ByContainer[MemoryBlock] = msgspec.field(default_factory=dict)
    allocatable: tuple[MemoryBlock, ...] = ()
    """Memory that it may promise: one block for each kind of memory and NUMA node that has it."""


class _Block(msgspec.Struct, rename="camel"):
    numa_affinity: list[int] | None = None
    type: str = ""
    size: int = 0


class _Amounts(msgspec.Struct):
    allocatable: int = 0


class _Machine(msgspec.Struct, rename="camel"):
    memory_map: dict[str, _Amounts] | None = None


class _MemoryText(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    machine_state: dict[str, _Machine] | None = None
    entries: dict[str, dict[str, list[_Block]]] | None = None


class _Entry(msgspec.Struct):
    pod: str = msgspec.field(default="", name="PodUID")
    container: str = msgspec.field(default="", name="ContainerName")
    resource: str = msgspec.field(default="", name="ResourceName")
    ids: dict[str, list[str]] | None = msgspec.field(default=None, name="DeviceIDs")


class _Data(msgspec.Struct):
    entries: list[_Entry] | None = msgspec.field(default=None, name="PodDeviceEntries")


class _DeviceText(msgspec.Struct):
    data: _Data = msgspec.field(default_factory=_Data, name="Data")


def parse_memory(raw: bytes) -> MemoryManagerState:
    """The state in `memory_manager_state`; an empty file is no state, InputError when it cannot be read."""
    if not raw.strip():
        return MemoryManagerState()
    with understood("memory_manager_state", raw, "what was read before holds"):
        text = msgspec.json.decode(raw, type=_MemoryText)
        machine = {int(node): (state.memory_map or {}) for node, state in (text.machine_state or {}).items()}
    blocks = {
        (pod, container): tuple(MemoryBlock(b.type, b.size, tuple(b.numa_affinity or ())) for b in listed)
        for pod, containers in (text.entries or {}).items()
        for container, listed in containers.items()
    }
    allocatable = tuple(
        MemoryBlock(kind, amounts.allocatable, (node,))
        for node, amounts_of in sorted(machine.items())
        for kind, amounts in sorted(amounts_of.items())
        if amounts.allocatable
    )
    return MemoryManagerState(text.policy_name, blocks, allocatable)


def parse_devices(raw: bytes) -> ByContainer[Devices]:
    """The devices in `kubelet_internal_checkpoint`, by NUMA node; InputError when it cannot be read."""
    devices: dict[tuple[str, str], tuple[Devices, ...]] = {}
    if not raw.strip():
        return devices
    with understood("kubelet_internal_checkpoint", raw, "what was read before holds"):
        for entry in msgspec.json.decode(raw, type=_DeviceText).data.entries or ():
            for node, ids in (entry.ids or {}).items():
                # Node -1 stands for devices whose place is not known.
                nodes = (int(node),) if int(node) >= 0 else ()
                key = entry.pod, entry.container
                devices[key] = (*devices.get(key, ()), Devices(entry.resource, tuple(ids), nodes))
    return devices


LOG = logging.getLogger(__name__)
_MASK = inotify.MOVED_TO | inotify.CLOSE_WRITE | inotify.ONLYDIR


class CheckpointNotices:
    """Waits for some files of kubelet. `wait` belongs to one thread; `end` may be called from any."""

    def __init__(self, paths: Collection[str]) -> None:
        """The files are absolute paths, and need not be there yet."""
        self._files: dict[str, set[str]] = {}
        for path in paths:
            self._files.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
        self._folders: dict[int, str] = {}
        self._ended = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
        except OSError as error:
            LOG.info("checkpoints of kubelet are read once a second: %s", error)

    def wait(self, seconds: float) -> bool:
        """Pass `seconds` at most; True at once when one of the files was written."""
        descriptors: list[int] = [self._ended]
        if self._inotify:
            descriptors.append(self._inotify.fileno())
            # Folders that came since the last time are watched as well.
            for folder in self._files.keys() - self._folders.values():
                with contextlib.suppress(OSError):  # Not there yet, or not readable: reading the file says so.
                    self._folders[self._inotify.add(folder, _MASK)] = folder
        ready, _, _ = select.select(descriptors, [], [], max(0.0, seconds))
        return self._inotify is not None and self._inotify.fileno() in ready and self._take(self._inotify)

    def end(self) -> None:
        """End the wait, and every later one."""
        os.eventfd_write(self._ended, 1)

    def close(self) -> None:
        """Give the descriptors back; nobody may wait any more."""
        os.close(self._ended)
        if self._inotify:
            self._inotify.close()

    def _take(self, watched: Inotify) -> bool:
        written = False
        for watch, mask, name in watched.events():
            if mask & inotify.IGNORED:
                self._folders.pop(watch, None)
            written |= bool(mask & inotify.OVERFLOW) or name in self._files.get(self._folders.get(watch, ""), ())
        return written
