"""A container runtime with NRI, as far as a plugin can tell: a socket, the order of calls, and the rules of framing.

It is held to recorded conversations with containerd (tests/nri/recorded): it drops a plugin that breaks framing and one
that answers too late, whose container it creates as if there were no plugin, and refuses names in containerd's words.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import re
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from koordlite.nri import messages
from koordlite.nri.plugin import _EVENTS
from koordlite.nri.protobuf import decode, encode
from koordlite.nri.ttrpc import PLUGIN, REQUEST, RESPONSE, RUNTIME, Frame, Streams, framed

RECORDED = pathlib.Path(__file__).parents[1] / "nri" / "recorded"
SERVICE = "nri.pkg.api.v1alpha1.Plugin"
METHODS = frozenset(_EVENTS)
"""Calls of the plugin that are answered without an error."""
LONG_SECONDS = 30.0
"""Longer than anything here takes on any machine."""


def recorded(name: str) -> list[tuple[str, int, bytes]]:
    """Direction, connection and the bytes of each mux frame of a recorded conversation."""
    frames = json.loads((RECORDED / f"{name}.raw.json").read_text())["frames"]
    return [(f["dir"], f["conn"], base64.b64decode(f["mux_frame_b64"])) for f in frames]


def exchange(name: str) -> list[dict[str, Any]]:
    """The decoded messages of a recorded conversation."""
    records: list[dict[str, Any]] = json.loads((RECORDED / f"{name}.json").read_text())["exchange"]
    return records


def refusal(asked: messages.RegisterPluginRequest) -> messages.Status | None:
    """containerd's words for a registration that it does not take (recording 16)."""
    index, name = asked.plugin_idx, asked.plugin_name
    if len(index) != 2:
        return messages.Status(
            code=2, message=f'invalid plugin index: invalid plugin index "{index}", must be 2 digits'
        )
    if not re.fullmatch("[0-9]{2}", index):
        return messages.Status(code=2, message=f'invalid plugin index: invalid plugin index "{index}" (not [0-9][0-9])')
    if not name:
        return messages.Status(code=2, message="invalid plugin name: invalid plugin name: name is empty")
    if "/" in name:
        why = f"invalid plugin name: invalid plugin name \"{name}\": contains invalid character '/'"
        return messages.Status(code=2, message=why)
    return None


class Runtime:
    """Listens, and speaks with one plugin at a time."""

    def __init__(self, folder: pathlib.Path, *, timeout_ms: int = 60_000) -> None:
        """`timeout_ms` is what it tells the plugin: long, unless the test is about lateness."""
        self.path = str(folder / "nri.sock")
        self.timeout_ms = timeout_ms
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            pathlib.Path(self.path).unlink()
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(LONG_SECONDS)
        self.mask = 0
        self.registered: messages.RegisterPluginRequest | None = None
        self._connected: socket.socket | None = None

    def accept(self) -> None:
        """Take the next connection, without a word yet."""
        self.drop()
        self._connected, _ = self._listener.accept()
        self._connected.settimeout(LONG_SECONDS)
        self._streams, self._stream = Streams(), -1

    def welcome(
        self, pods: tuple[messages.PodSandbox, ...] = (), containers: tuple[messages.Container, ...] = ()
    ) -> None:
        """Register, configure and synchronize the next plugin that connects."""
        self.accept()
        frame = self.receive()
        asked = decode(messages.Request, frame.body)
        assert (frame.connection, frame.type, frame.stream, asked.method) == (RUNTIME, REQUEST, 1, "RegisterPlugin")
        self.registered = decode(messages.RegisterPluginRequest, asked.payload)
        refused = refusal(self.registered)
        if refused:
            # The socket stays open, with nothing more to come.
            self.send(Frame(RUNTIME, 1, RESPONSE, encode(messages.Response(status=refused))))
            return
        # Configure may come first: seen in one of ten connections.
        self.send_call(
            "Configure",
            messages.ConfigureRequest(
                runtime_name="containerd",
                runtime_version="v2.3.4",
                request_timeout=self.timeout_ms,
                nri_version="v0.12.0",
            ),
        )
        self.send(Frame(RUNTIME, 1, RESPONSE, b""))
        self.mask = decode(messages.ConfigureResponse, self.answer()).events
        assert self.mask and not self.mask & ~0x7FF
        self.call("Synchronize", messages.SynchronizeRequest(pods=pods, containers=containers))

    def send_call(self, method: str, payload: Any) -> None:
        """Call without waiting; `payload` is a message, or bytes that are sent as they are."""
        self._stream += 2
        raw = payload if isinstance(payload, bytes) else encode(payload)
        nanoseconds = self.timeout_ms * 1_000_000
        call = messages.Request(service=SERVICE, method=method, payload=raw, timeout_nano=nanoseconds)
        self.send(Frame(PLUGIN, self._stream, REQUEST, encode(call)))

    def answer(self) -> bytes:
        """The payload of the answer to the last call."""
        frame = self.receive()
        assert (frame.connection, frame.type, frame.stream) == (PLUGIN, RESPONSE, self._stream)
        response = decode(messages.Response, frame.body)
        assert response.status is None, f"an error makes the runtime fail the container: {response.status}"
        return response.payload

    def call(self, method: str, payload: Any) -> tuple[bytes, float]:
        """Call, and the answer with the seconds it took. A plugin that answers too late is dropped (TimeoutError)."""
        assert self._connected is not None
        began = time.monotonic()
        self.send_call(method, payload)
        self._connected.settimeout(self.timeout_ms / 1000)
        try:
            return self.answer(), time.monotonic() - began
        except TimeoutError:
            self.drop()
            raise
        finally:
            if self._connected:
                self._connected.settimeout(LONG_SECONDS)

    def create(
        self, pod: messages.PodSandbox, container: messages.Container
    ) -> messages.LinuxContainerAdjustment | None:
        """The adjustment of a container that is about to be created; none by a plugin that is dropped meanwhile."""
        try:
            payload, _ = self.call("CreateContainer", messages.ContainerEvent(pod=pod, container=container))
        except TimeoutError:
            return None
        adjust = decode(messages.CreateContainerResponse, payload).adjust
        return adjust.linux if adjust else None

    def update(
        self, pod: messages.PodSandbox, container: messages.Container, asked: messages.LinuxResources
    ) -> messages.LinuxResources | None:
        """What differs of an update of kubelet's."""
        event = messages.ContainerEvent(pod=pod, container=container, linux_resources=asked)
        payload, _ = self.call("UpdateContainer", event)
        updates = decode(messages.UpdateContainerResponse, payload).update
        assert all(each.container_id == container.id for each in updates)
        return updates[0].linux.resources if updates and updates[0].linux else None

    def send(self, frame: Frame) -> None:
        """Send one message."""
        assert self._connected is not None
        self._connected.sendall(framed(frame))

    def send_bytes(self, raw: bytes) -> None:
        """Send what may be no message at all."""
        assert self._connected is not None
        self._connected.sendall(raw)

    def receive(self) -> Frame:
        """The next whole message. AssertionError for a frame that containerd would not take."""
        assert self._connected is not None
        while True:
            head = self._exactly(8)
            _connection, length = struct.unpack(">II", head)
            body = self._exactly(length)
            starts = not any(self._streams._parts.values())
            assert not starts or length <= 4096, f"containerd drops the link at a first frame of {length} bytes"
            frames = list(self._streams.feed(head + body))
            if frames:
                return frames[0]

    def gone(self) -> bool:
        """Whether the plugin closes the connection."""
        assert self._connected is not None
        with contextlib.suppress(ConnectionError):
            while self._connected.recv(65536):
                pass
        return True

    def drop(self) -> None:
        """Close the connection, as a runtime does that ends."""
        if self._connected:
            self._connected.close()
            self._connected = None

    def close(self) -> None:
        """Stop listening; the socket's file stays, as containerd leaves it."""
        self.drop()
        self._listener.close()

    def _exactly(self, count: int) -> bytes:
        assert self._connected is not None
        raw = b""
        while len(raw) < count:
            piece = self._connected.recv(count - len(raw))
            if not piece:
                raise ConnectionResetError("the plugin has closed the connection")
            raw += piece
        return raw


@contextlib.contextmanager
def running(folder: pathlib.Path, **options: Any) -> Iterator[Runtime]:
    """A runtime that ends with the block."""
    runtime = Runtime(folder, **options)
    try:
        yield runtime
    finally:
        runtime.close()
