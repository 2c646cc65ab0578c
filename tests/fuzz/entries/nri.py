"""What a container runtime sends an NRI plugin, byte by byte, up to the agent's answers."""

from __future__ import annotations

import time
from typing import Any

import nri_runtime

from koordlite.nri import Answer, Handler, NRIError, messages
from koordlite.nri.plugin import _EVENTS, _Session
from koordlite.nri.protobuf import decode, encode
from koordlite.nri.ttrpc import PLUGIN, REQUEST, Frame, Streams, framed
from tests.fuzz.frame import Entry

LONGEST_SEED = 16_384


class Wire:
    """A connection on which everything has come already, and the answers to it."""

    def __init__(self, sent: bytes) -> None:
        self._sent, self.answers = sent, list[Frame]()

    def receive(self, _seconds: float) -> tuple[Frame, ...]:
        """All of it."""
        return tuple(Streams().feed(self._sent))

    def send(self, frame: Frame) -> None:
        """Keep it; what is no frame of containerd's size raises."""
        assert framed(frame)
        self.answers.append(frame)


def conversation(raw: bytes) -> str:
    """What the runtime says; the number of answers. No event is answered by an error, which fails a container."""

    def at_once(work: Any, _seconds: float) -> tuple[Answer, Any]:
        return work(), "answered"

    wire: Any = Wire(raw)
    session = _Session(wire, Handler(), at_once, time.monotonic)
    try:
        session.turn(0.0)
    finally:
        calls = {f.stream: _method(f) for f in Streams().feed(raw) if f.connection == PLUGIN} if wire.answers else {}
        for frame in wire.answers:
            response = decode(messages.Response, frame.body)
            assert response.status is None or calls[frame.stream] not in _EVENTS, response
    return f"{len(wire.answers)} answers"


def _method(frame: Frame) -> str:
    try:
        call = decode(messages.Request, frame.body)
        return call.method if call.service == nri_runtime.SERVICE else ""
    except ValueError:
        return ""


def _seeds() -> list[bytes]:
    names = ("02_lifecycle_dedicated_rpc", "04_create_kinds", "31_containerd_2_2_lifecycle")
    whole = [b"".join(raw for way, _, raw in nri_runtime.recorded(name) if way == "runtime->plugin") for name in names]
    piece = encode(messages.SynchronizeRequest(pods=(messages.PodSandbox(id="p"),), more=True))
    call = messages.Request(service=nri_runtime.SERVICE, method="Synchronize", payload=piece, timeout_nano=1)
    return [*(each[:LONGEST_SEED] for each in whole), framed(Frame(PLUGIN, 1, REQUEST, encode(call)))]


ENTRIES = [Entry(name="nri", seeds=_seeds(), run=conversation, refusals=(OSError, ValueError, NRIError))]
