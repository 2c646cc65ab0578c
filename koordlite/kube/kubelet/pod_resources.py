"""Kubelet's pod-resources socket: CPUs, memory and devices of each container, and what may be given out at all; and
the CPUs of ResourceClaims, by the files that the DRA driver for CPUs leaves for the container runtime.

Source of the messages: Kubernetes, `podresources/v1` `api.proto`. Pods that have ended are among the answers; CPU ids
are reported for exclusive CPUs only; NUMA node 0 arrives as an empty message. Each claim is in a specification of the
Container Device Interface: a device of kind `dra.k8s.io/cpu` with the environment variable `DRA_CPUSET_UID=CPUS`
(kubernetes-sigs/dra-driver-cpu).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.picture.kubelet import Devices, MemoryBlock, PodResources, ResourceSet
from koordlite.nri.protobuf import INT, INTS, STRING, STRINGS, declared, decode, message, wire
from koordlite.resctrl.files import LocalFiles

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
TIMEOUT_SECONDS = 5.0


CDI_FOLDER = "/var/run/cdi"
CPU_KIND = "dra.k8s.io/cpu="
"""Beginning of the names of such devices."""
_FILES = ("dra.k8s.io-cpu_", "dra.cpu.")
"""Beginning of the names: a file for each claim, and before the driver's 0.2 one for all."""
_VARIABLE = "DRA_CPUSET_"


class _Edits(msgspec.Struct, frozen=True):
    env: tuple[str, ...] = ()


class _ClaimDevice(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: _Edits = _Edits()


class _Specification(msgspec.Struct, frozen=True):
    kind: str
    devices: tuple[_ClaimDevice, ...] = ()


def parse_claims(raw: bytes) -> dict[str, CPUSet]:
    """CPUs by the full name of each device; ValueError where it is no such specification."""
    try:
        spec = msgspec.json.decode(raw, type=_Specification)
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from error
    return {f"{spec.kind}={device.name}": _cpus(device.container_edits.env) for device in spec.devices}


def _cpus(env: Collection[str]) -> CPUSet:
    pairs = (each.partition("=") for each in env)
    return union(CPUSet.parse(value) for name, _, value in pairs if name.startswith(_VARIABLE)) or EMPTY


def read_claims(folder: str, names: Collection[str]) -> tuple[Mapping[str, CPUSet], str]:
    """CPUs of those of the devices `names` that the specifications in `folder` have, and what is wrong with them."""
    cpus: dict[str, CPUSet] = {}
    wrong, files = "", LocalFiles()
    try:
        listed = [name for name in files.list(folder) if name.startswith(_FILES) and name.endswith(".json")]
    except OSError as error:
        return cpus, f"{folder}: {error.strerror}"
    for name in listed:
        try:
            cpus.update(parse_claims(files.read(f"{folder}/{name}")))
        except FileNotFoundError:
            continue  # The claim was given back in between.
        except (OSError, ValueError) as error:
            wrong = f"{folder}/{name}: {error}"
    return {name: cpus[name] for name in names if cpus.get(name)}, wrong


@declared
class _Node:
    id: int = wire(1, INT)


@declared
class _Topology:
    nodes: tuple[_Node, ...] = wire(1, message(lambda: _Node, repeated=True))


@declared
class _Device:
    resource: str = wire(1, STRING)
    ids: tuple[str, ...] = wire(2, STRINGS)
    topology: _Topology | None = wire(3, message(lambda: _Topology))


@declared
class _Memory:
    type: str = wire(1, STRING)
    size: int = wire(2, INT)
    topology: _Topology | None = wire(3, message(lambda: _Topology))


@declared
class _CDIDevice:
    name: str = wire(1, STRING)


@declared
class _ClaimResource:
    devices: tuple[_CDIDevice, ...] = wire(1, message(lambda: _CDIDevice, repeated=True))


@declared
class _DynamicResource:
    claims: tuple[_ClaimResource, ...] = wire(4, message(lambda: _ClaimResource, repeated=True))


@declared
class _Container:
    name: str = wire(1, STRING)
    devices: tuple[_Device, ...] = wire(2, message(lambda: _Device, repeated=True))
    cpus: tuple[int, ...] = wire(3, INTS)
    memory: tuple[_Memory, ...] = wire(4, message(lambda: _Memory, repeated=True))
    dynamic: tuple[_DynamicResource, ...] = wire(5, message(lambda: _DynamicResource, repeated=True))


@declared
class _Pod:
    name: str = wire(1, STRING)
    namespace: str = wire(2, STRING)
    containers: tuple[_Container, ...] = wire(3, message(lambda: _Container, repeated=True))


@declared
class _List:
    pods: tuple[_Pod, ...] = wire(1, message(lambda: _Pod, repeated=True))


@declared
class _Allocatable:
    devices: tuple[_Device, ...] = wire(1, message(lambda: _Device, repeated=True))
    cpus: tuple[int, ...] = wire(2, INTS)
    memory: tuple[_Memory, ...] = wire(3, message(lambda: _Memory, repeated=True))


def parse_list(raw: bytes) -> tuple[PodResources, ...]:
    """The answer to List; ValueError when it is none."""
    return tuple(
        PodResources(
            pod.namespace,
            pod.name,
            {
                each.name: _given(
                    each.cpus,
                    each.devices,
                    each.memory,
                    (device.name for part in each.dynamic for claim in part.claims for device in claim.devices),
                )
                for each in pod.containers
            },
        )
        for pod in decode(_List, raw).pods
    )


def parse_allocatable(raw: bytes) -> ResourceSet:
    """The answer to GetAllocatableResources; ValueError when it is none. Without the static policy it has no CPUs."""
    answer = decode(_Allocatable, raw)
    return _given(answer.cpus, answer.devices, answer.memory)


class PodResourcesClient:
    """Asks over the socket; h2 is imported when it is first there."""

    def __init__(self, socket: str = SOCKET, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._socket, self._timeout_seconds = socket, timeout_seconds

    def list(self) -> tuple[PodResources, ...]:
        """Pods with what their containers have. OSError when kubelet does not answer (ENOENT: no socket, ENOSYS: it
        does not know the call), ValueError when the answer makes no sense."""
        return parse_list(self._call("List"))

    def allocatable(self) -> ResourceSet:
        """Resources that kubelet may give out. Errors as of `list`."""
        return parse_allocatable(self._call("GetAllocatableResources"))

    def _call(self, method: str) -> bytes:
        if not os.path.exists(self._socket):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._socket)
        from koordlite.kube.kubelet import grpc_call

        return grpc_call.call(self._socket, f"/v1.PodResourcesLister/{method}", seconds=self._timeout_seconds)


def _given(
    cpus: Iterable[int], devices: Iterable[_Device], memory: Iterable[_Memory], claims: Iterable[str] = ()
) -> ResourceSet:
    return ResourceSet(
        CPUSet(cpus),
        tuple(Devices(each.resource, each.ids, _nodes(each.topology)) for each in devices),
        tuple(MemoryBlock(each.type, each.size, _nodes(each.topology)) for each in memory),
        claims=tuple(dict.fromkeys(name for name in claims if name.startswith(CPU_KIND))),
    )


def _nodes(topology: _Topology | None) -> tuple[int, ...]:
    return tuple(node.id for node in topology.nodes) if topology else ()
