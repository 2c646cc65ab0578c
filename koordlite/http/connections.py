"""Which connections are kept: a bounded number, in all and of one address, for a limited time, with slots for probes.

A probe is not recognised before it has sent its request. So where the bounds are reached, a connection gets
one of a few slots in which only health is answered and the time is short; a newcomer takes the slot of the oldest.
Who holds connections open without sending a request holds up nobody who sends one at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import msgspec

CONNECTIONS = 64
"""At the same time, besides those for probes."""
ADDRESS_CONNECTIONS = 16
"""Of them from one address."""
PROBES = 8
"""Slots in which only health is answered."""
REQUEST_SECONDS = 10.0
"""From the first byte that may come to the last of the request, the TLS handshake included."""
ANSWER_SECONDS = 60.0
"""From then until the client has taken the answer."""
BODY_BYTES = 4096
"""No change of a setting needs more."""
PROBE_SECONDS = 2.0
"""For either, in a slot for probes."""


class Limits(msgspec.Struct, frozen=True):
    """How many connections there may be, and how much and how long each may take."""

    connections: int = CONNECTIONS
    address_connections: int = ADDRESS_CONNECTIONS
    request_seconds: float = REQUEST_SECONDS
    """Also how long a connection without a request is kept."""
    body_bytes: int = BODY_BYTES


class Connection(msgspec.Struct, eq=False):
    """A connection and until when it is kept."""

    socket: socket.socket
    address: str
    only_health: bool
    deadline: float = 0.0

    def hang_up(self) -> None:
        """Whoever reads or writes there is woken with an error. Not by the TLS layer, which is another thread's."""
        with contextlib.suppress(OSError):  # It has ended by itself.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Connections:
    """Called from many threads. `now` is a monotonic clock in seconds."""

    def __init__(self, limits: Limits | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or Limits()
        self._now, self._lock = now, threading.Lock()
        self._kept: dict[Connection, None] = {}

    def admit(self, accepted: socket.socket, address: str) -> Connection:
        """Keep a new connection; it awaits a request."""
        with self._lock:
            others = [kept for kept in self._kept if not kept.only_health]
            of_address = sum(kept.address == address for kept in others)
            full = len(others) >= self.limits.connections or of_address >= self.limits.address_connections
            made = Connection(accepted, address, only_health=full)
            probes = [kept for kept in self._kept if kept.only_health]
            if full and len(probes) >= PROBES:
                del self._kept[probes[0]]
                probes[0].hang_up()
            self._kept[made] = None
        self.awaits_request(made)
        return made

    def release(self, connection: Connection) -> None:
        """It has ended; nothing when it was hung up before."""
        with self._lock:
            self._kept.pop(connection, None)

    def awaits_request(self, connection: Connection) -> None:
        """The whole next request has to come from now on."""
        seconds = PROBE_SECONDS if connection.only_health else self.limits.request_seconds
        connection.deadline = self._now() + seconds

    def answers(self, connection: Connection) -> None:
        """The request is there; the answer has to be taken from now on."""
        connection.deadline = self._now() + (PROBE_SECONDS if connection.only_health else ANSWER_SECONDS)

    def end_late(self) -> None:
        """Hang up on everybody whose time is over."""
        now = self._now()
        with self._lock:
            late = [kept for kept in self._kept if kept.deadline <= now]
        for connection in late:
            connection.hang_up()
