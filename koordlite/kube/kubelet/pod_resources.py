"""Kubelet's pod-resources socket: CPUs, memory and devices of each container, and what may be given out at all.

Source of the messages: Kubernetes, `podresources/v1` `api.proto`. Pods that have ended are among the answers; CPU ids
are reported for exclusive CPUs only; NUMA node 0 arrives as an empty message.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

import msgspec

from koordlite.kube.kubelet import cdi, protobuf
from koordlite.kube.kubelet.protobuf import Value
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.kubelet import Devices, Given, MemoryBlock, PodGiven

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
TIMEOUT_SECONDS = 5.0
_ANSWER_BYTES = 16 << 20


def parse_list(raw: bytes) -> tuple[PodGiven, ...]:
    """The answer to List; ValueError when it is none."""
    return tuple(_pod(protobuf.message(value)) for number, value in protobuf.fields(raw) if number == 1)


def parse_allocatable(raw: bytes) -> Given:
    """The answer to GetAllocatableResources; ValueError when it is none. Without the static policy it has no CPUs."""
    return _given(raw, cpus=2, devices=1, memory=3)


class PodResources:
    """Asks over the socket; grpcio is imported when it is first needed."""

    def __init__(self, socket: str = SOCKET, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._socket, self._timeout_seconds = socket, timeout_seconds

    def list(self) -> tuple[PodGiven, ...]:
        """Pods with what their containers have.

        OSError when kubelet does not answer (ENOENT: no socket, ENOSYS: it does not know the call), ValueError when
        the answer makes no sense.
        """
        return parse_list(self._call("List"))

    def allocatable(self) -> Given:
        """Resources that kubelet may give out. Errors as of `list`."""
        return parse_allocatable(self._call("GetAllocatableResources"))

    def _call(self, method: str) -> bytes:
        if not os.path.exists(self._socket):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._socket)
        import grpc  # type: ignore[import-untyped]

        options = (("grpc.max_receive_message_length", _ANSWER_BYTES), ("grpc.enable_http_proxy", 0))
        with contextlib.closing(grpc.insecure_channel(f"unix://{self._socket}", options=options)) as channel:
            ask = channel.unary_unary(f"/v1.PodResourcesLister/{method}")
            try:
                answer = ask(b"", timeout=self._timeout_seconds)
            except grpc.RpcError as error:
                # A call that failed is its own error object; its words are kubelet's.
                number = _ERRNO.get(error.code().name, errno.ECONNREFUSED)
                raise OSError(number, f"{method}: {error.code().name}: {error.details()}", self._socket) from error
        return bytes(answer)


_ERRNO = {"DEADLINE_EXCEEDED": errno.ETIMEDOUT, "UNIMPLEMENTED": errno.ENOSYS}
"""gRPC status → errno; any other is a refusal."""


def _pod(raw: bytes) -> PodGiven:
    names = {1: "", 2: ""}
    containers: dict[str, Given] = {}
    for number, value in protobuf.fields(raw):
        if number in names:
            names[number] = protobuf.text(value)
        elif number == 3:
            inner = protobuf.message(value)
            given = _given(inner, cpus=3, devices=2, memory=4)
            claims = tuple(name for name in _cdi_names(inner) if name.startswith(cdi.CPU_KIND))
            containers[_first_text(inner, 1)] = msgspec.structs.replace(given, claims=claims) if claims else given
    return PodGiven(names[2], names[1], containers)


def _given(raw: bytes, *, cpus: int, devices: int, memory: int) -> Given:
    """A message with CPU ids, devices and memory under these field numbers."""
    found: dict[int, list[Value]] = {cpus: [], devices: [], memory: []}
    for number, value in protobuf.fields(raw):
        if number in found:
            found[number].append(value)
    ids = [cpu for value in found[cpus] for cpu in protobuf.numbers(value)]
    return Given(
        CPUSet(ids),
        tuple(_devices(protobuf.message(value)) for value in found[devices]),
        tuple(_memory(protobuf.message(value)) for value in found[memory]),
    )


def _devices(raw: bytes) -> Devices:
    ids = tuple(protobuf.text(value) for number, value in protobuf.fields(raw) if number == 2)
    return Devices(_first_text(raw, 1), ids, tuple(_nodes(raw)))


def _memory(raw: bytes) -> MemoryBlock:
    size = next((value for number, value in protobuf.fields(raw) if number == 2), 0)
    return MemoryBlock(_first_text(raw, 1), protobuf.signed(size), tuple(_nodes(raw)))


def _nodes(raw: bytes) -> Iterator[int]:
    """NUMA nodes of the topology in field 3; a node without an id is node 0."""
    for number, value in protobuf.fields(raw):
        if number == 3:
            for inner, node in protobuf.fields(protobuf.message(value)):
                if inner == 1:
                    ids = [each for kind, each in protobuf.fields(protobuf.message(node)) if kind == 1]
                    yield protobuf.signed(ids[-1]) if ids else 0


def _cdi_names(container: bytes) -> Iterator[str]:
    """Names of the devices that DRA drivers prepared: `dynamic_resources` (5) → `claim_resources` (4) → `cdi_devices`
    (1) → `name` (1)."""
    parts = [container]
    for wanted in (5, 4, 1):
        parts = [
            protobuf.message(value) for part in parts for number, value in protobuf.fields(part) if number == wanted
        ]
    yield from dict.fromkeys(_first_text(part, 1) for part in parts)


def _first_text(raw: bytes, wanted: int) -> str:
    return next((protobuf.text(value) for number, value in protobuf.fields(raw) if number == wanted), "")
