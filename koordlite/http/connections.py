"""Bounds on connections: a limited number, in all and of one address, for a limited time, with slots for probes.

Where every client has to show a certificate there are no probes: a connection gets a slot of its own kind until it has
shown one, a newcomer takes the slot of the oldest of its address, and those who have shown one never wait for others.

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
"""Maximum number of simultaneous connections, besides those for probes."""
ADDRESS_CONNECTIONS = 16
"""Maximum number of connections from one address."""
PROBES = 8
"""Slots in which only health is answered."""
REQUEST_SECONDS = 10.0
"""Time for a whole request, the TLS handshake included."""
ANSWER_SECONDS = 60.0
"""Time from then until the client has taken the answer."""
BODY_BYTES = 4096
"""No change of a setting needs more."""
PROBE_SECONDS = 2.0
"""Time for either, in a slot for probes."""
STRANGERS = 64
"""Connections that have not shown the certificate that they need."""
ADDRESS_STRANGERS = 8
"""The same from one address."""
HANDSHAKE_SECONDS = 5.0
"""Time until they have shown it."""
ALL_BODY_BYTES = 1 << 20
"""Bytes of the bodies of all requests that are read or answered at one time."""


class Limits(msgspec.Struct, frozen=True):
    """Bounds on the number of connections, and on the size and time of each."""

    connections: int = CONNECTIONS
    address_connections: int = ADDRESS_CONNECTIONS
    request_seconds: float = REQUEST_SECONDS
    """Time from a new connection, or the first line of a later request, to the last byte of the request."""
    body_bytes: int = BODY_BYTES
    idle_seconds: float | None = None
    """Time that a connection is kept between two requests; None: as long as a request may take."""
    all_body_bytes: int = ALL_BODY_BYTES
    """Bodies of all requests at one time; one that would go beyond waits for others to be answered."""
    certified: bool = False
    """Every client has to show a certificate."""


class Connection(msgspec.Struct, eq=False):
    """A connection and until when it is kept."""

    socket: socket.socket
    address: str
    only_health: bool
    deadline: float = 0.0
    stranger: bool = False
    """It has yet to show its certificate."""
    body_bytes: int = 0
    """Size of the request that is read or answered, counted in `all_body_bytes`."""

    def hang_up(self) -> None:
        """Whoever reads or writes there is woken with an error. Not by the TLS layer, which is another thread's."""
        with contextlib.suppress(OSError):  # It has ended by itself.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Connections:
    """Called from many threads. `now` is a monotonic clock in seconds."""

    def __init__(self, limits: Limits | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or Limits()
        self._now, self._lock = now, threading.Lock()
        self._open: dict[Connection, None] = {}
        self._bodies, self._body_bytes = threading.Condition(self._lock), 0

    def admit(self, accepted: socket.socket, address: str) -> Connection:
        """Keep a new connection; it awaits a request."""
        if self.limits.certified:
            return self._admit_stranger(accepted, address)
        with self._lock:
            connection = Connection(accepted, address, only_health=self._is_full(address))
            probes = [each for each in self._open if each.only_health]
            if connection.only_health and len(probes) >= PROBES:
                self._end(probes[0])
            self._open[connection] = None
        self.receives(connection)
        return connection

    def _admit_stranger(self, accepted: socket.socket, address: str) -> Connection:
        connection = Connection(accepted, address, only_health=False, stranger=True)
        connection.deadline = self._now() + min(HANDSHAKE_SECONDS, self.limits.request_seconds)
        with self._lock:
            strangers = [each for each in self._open if each.stranger]
            of_address = [each for each in strangers if each.address == address]
            if len(of_address) >= ADDRESS_STRANGERS or (of_address and len(strangers) >= STRANGERS):
                self._end(of_address[0])
            elif len(strangers) >= STRANGERS:
                self._end(strangers[0])
            self._open[connection] = None
        return connection

    def certify(self, connection: Connection) -> bool:
        """It has shown its certificate, and awaits a request; False when there are too many like it."""
        with self._lock:
            if self._is_full(connection.address):
                return False
            connection.stranger = False
        self.receives(connection)
        return True

    def _is_full(self, address: str) -> bool:
        ordinary = [each for each in self._open if not each.only_health and not each.stranger]
        of_address = sum(each.address == address for each in ordinary)
        return len(ordinary) >= self.limits.connections or of_address >= self.limits.address_connections

    def release(self, connection: Connection) -> None:
        """It has ended; nothing when it was hung up before."""
        with self._lock:
            self._open.pop(connection, None)
        self.forget_body(connection)

    def receives(self, connection: Connection) -> None:
        """The whole request has to come from now on."""
        seconds = PROBE_SECONDS if connection.only_health else self.limits.request_seconds
        connection.deadline = self._now() + seconds

    def awaits_request(self, connection: Connection) -> None:
        """The next request may come from now on."""
        if connection.only_health or self.limits.idle_seconds is None:
            self.receives(connection)
        else:
            connection.deadline = self._now() + self.limits.idle_seconds

    def count_body(self, connection: Connection, size: int) -> bool:
        """Make room for the body of a request, until `forget_body`; False when there is none in time."""
        with self._bodies:
            free = self._bodies.wait_for(
                lambda: self._body_bytes + size <= self.limits.all_body_bytes, timeout=self.limits.request_seconds / 2
            )
            if free:
                self._body_bytes += size
                connection.body_bytes += size
        return free

    def forget_body(self, connection: Connection) -> None:
        """The request with that body was answered, or is over."""
        if connection.body_bytes:
            with self._bodies:
                self._body_bytes -= connection.body_bytes
                connection.body_bytes = 0
                self._bodies.notify_all()

    def _end(self, connection: Connection) -> None:
        del self._open[connection]
        connection.hang_up()

    def answers(self, connection: Connection) -> None:
        """The request is there; the answer has to be taken from now on."""
        connection.deadline = self._now() + (PROBE_SECONDS if connection.only_health else ANSWER_SECONDS)

    def end_late(self) -> None:
        """Hang up on everybody whose time is over."""
        now = self._now()
        with self._lock:
            late = [each for each in self._open if each.deadline <= now]
        for connection in late:
            connection.hang_up()
