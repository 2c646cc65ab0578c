"""One leader at a time, by a Lease, and a leader that stops by itself.

A leader trusts its own monotonic clock only: leadership ends at a fixed moment after the last renewal was *asked for*,
whatever a hanging request does. Others wait longer than that before they take over, so there are never two.
"""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.client.answers import Answer, ApiUnreachable
from koordlite.model import times
from koordlite.threads import WITHIN_SECONDS, Worker

RELEASED_SECONDS = 1
"""leaseDurationSeconds of a lease given back: the server refuses 0."""
UNREADABLE_SECONDS = 15.0
"""Time for which a lease counts as held that does not say."""


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Lease, holder and times. Needed is retry < renew < duration; what lies between renew and duration is the margin
    for clocks of different rates."""

    namespace: str
    name: str
    identity: str
    """Never the same in two processes, also not after a restart: host name and something random."""
    duration_seconds: int = 15
    """Time for which others wait after the last renewal they saw."""
    renew_seconds: float = 10.0
    """Time after the request for a granted renewal in which this process counts itself as leader."""
    retry_seconds: float = 2.0
    """Time between two attempts."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_seconds < self.duration_seconds:
            raise ValueError("retry_seconds < renew_seconds < duration_seconds is needed for a safe lease")


class LeaseState(msgspec.Struct, frozen=True):
    """State of the lease, for reports."""

    leader: bool
    holder: str = ""
    """Identity of whoever has it; empty when nobody has, or it was not read yet."""
    transitions: int = 0
    error: str = ""
    """Reason why the last attempt failed; empty when it did not."""


class Candidate:
    """One attempt after another to get the lease and to keep it. `step` belongs to one thread, the rest to any."""

    def __init__(
        self,
        api: Api,
        settings: LeaseSettings,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        uniform: backoff.Uniform = backoff.uniform,
    ) -> None:
        self.settings = settings
        self._api, self._monotonic, self._wall, self._uniform = api, monotonic, wall, uniform
        self._lease: dict[str, Any] | None = None
        self._fresh = False
        self._last_write: tuple[object, ...] = ()
        self._written_at = 0.0
        self._until = float("-inf")
        self._released = False
        self._state = LeaseState(leader=False)

    def is_leader(self) -> bool:
        """True while work may be done; ask again before each piece of it."""
        return self.remaining_seconds() > 0

    def remaining_seconds(self) -> float:
        """Rest of the leadership if nothing is renewed; a piece of work must be over by then. 0 without it."""
        return max(0.0, self._until - self._monotonic())

    @property
    def standing(self) -> LeaseState:
        """Result of the last attempt."""
        return msgspec.structs.replace(self._state, leader=self.is_leader())

    def step(self) -> float:
        """Try once to renew or to take the lease; returns the seconds until the next try."""
        try:
            if not self._released:
                self._attempt()
            self._note("")
        except (ApiError, ApiUnreachable) as error:
            # Whether it was written is not known, or another client wrote: read before the next write.
            self._fresh = False
            self._note(str(error))
        retry = self.settings.retry_seconds
        # A leader is on time; the others come at different moments.
        return retry if self.is_leader() else self._uniform(retry, 1.5 * retry)

    def release(self) -> None:
        """Give it back so that another may take it at once. Work must have ended: leadership is over from here on."""
        was_leader = self.is_leader()
        self._until, self._released = float("-inf"), True
        if not was_leader or self._lease is None:
            return
        given_back = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "renewTime": self._now}
        try:
            self._write({**_spec(self._lease), **given_back})
        except (ApiError, ApiUnreachable) as error:
            self._note(f"not released, it runs out by itself: {error}")

    def _attempt(self) -> None:
        if not self._fresh:
            self._look()
        if self._lease is None:
            self._claim({"leaseTransitions": 0, "acquireTime": self._now})
            return
        spec = _spec(self._lease)
        holder = spec.get("holderIdentity") or ""
        if holder == self.settings.identity:
            self._claim(spec)
        elif not holder or self._ran_out(spec):
            transitions = _whole_number(spec.get("leaseTransitions"), 0) + 1
            self._claim({**spec, "leaseTransitions": transitions, "acquireTime": self._now})
        else:
            # Another holder has it: whatever we thought, we have not.
            self._until, self._fresh = float("-inf"), False

    def _claim(self, spec: dict[str, Any]) -> None:
        now = self._monotonic()
        ours = {
            "holderIdentity": self.settings.identity,
            "leaseDurationSeconds": self.settings.duration_seconds,
            "renewTime": self._now,
        }
        self._write({**spec, **ours})
        # From the moment of asking: when the server wrote it, is not known, but not before.
        self._until = now + self.settings.renew_seconds

    def _ran_out(self, spec: dict[str, Any]) -> bool:
        """Tell if the holder let its time pass, by our clock since we saw it renew: clocks of hosts differ."""
        seconds = _whole_number(spec.get("leaseDurationSeconds"), 0) or UNREADABLE_SECONDS
        return self._monotonic() - self._written_at > seconds

    def _look(self) -> None:
        try:
            self._hold(self._ask("GET", self._path))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND or error.unknown_resource:
                raise
            self._lease, self._fresh = None, True

    def _write(self, spec: dict[str, Any]) -> None:
        head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        if self._lease is None:
            metadata = {"name": self.settings.name, "namespace": self.settings.namespace}
            method, path = "POST", self._path.rpartition("/")[0]
        else:
            # With the resourceVersion we saw: of two who want it, one gets a conflict.
            metadata, method, path = self._lease["metadata"], "PUT", self._path
        self._hold(self._ask(method, path, {**head, "metadata": metadata, "spec": spec}))

    def _hold(self, answer: Answer) -> None:
        lease = answer.read(dict)
        if not isinstance(lease.get("metadata"), dict):
            raise ApiUnreachable(errno.EPROTO, "the answer is no Lease", self._path)
        spec = _spec(lease)
        # Any write counts as a sign of life: by renewTime alone a holder with a wall clock that stands would seem dead.
        version = lease["metadata"].get("resourceVersion")
        write = (version, spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if write != self._last_write:
            self._last_write, self._written_at = write, self._monotonic()
        self._lease, self._fresh = lease, True

    def _ask(self, method: str, path: str, body: object = None) -> Answer:
        # Shorter than what is left of leadership, so that a hanging request is over before it.
        half = (self.remaining_seconds() or self.settings.renew_seconds) / 2
        return self._api.request(method, path, body=body, timeout=(min(3.0, half), max(0.05, min(5.0, half))))

    def _note(self, error: str) -> None:
        spec = _spec(self._lease or {})
        holder, transitions = str(spec.get("holderIdentity") or ""), _whole_number(spec.get("leaseTransitions"), 0)
        self._state = LeaseState(False, holder, transitions, error)

    @property
    def _now(self) -> str:
        return times.micro(self._wall())

    @property
    def _path(self) -> str:
        settings = self.settings
        return f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases/{settings.name}"


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _whole_number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


_JOIN_SECONDS = 10.0


class Election:
    """Runs a `Candidate`. `gained` and `lost` are called one after the other, never both at once.
    A second thread watches the deadline, since the first may hang in a request: `lost` comes on time all the same."""

    def __init__(
        self,
        candidate: Candidate,
        *,
        gained: Callable[[], None] = lambda: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.candidate = candidate
        self._gained, self._lost = gained, lost
        self._stop, self._stepped = threading.Event(), threading.Event()
        self._asks = Worker("lease", self._ask)
        self._tells = Worker("lease-deadline", self._tell)

    def start(self) -> None:
        """Begin to ask for the lease."""
        self._asks.start()
        self._tells.start()

    def stop(self) -> None:
        """End: `lost` is called if it was held, and then the lease is given back."""
        self._stop.set()
        self._stepped.set()
        for thread in (self._tells, self._asks):
            thread.join(_JOIN_SECONDS)
        if not self._asks.is_alive():
            self.candidate.release()

    def _ask(self) -> None:
        while not self._stop.is_set():
            pause = self.candidate.step()
            self._stepped.set()
            self._asks.beat(pause + WITHIN_SECONDS)
            self._stop.wait(pause)

    def _tell(self) -> None:
        leading = False
        while not self._stop.is_set():
            # Woken by each attempt, and by the deadline of the last one that was granted.
            pause = self.candidate.remaining_seconds() if leading else math.inf
            self._tells.beat(pause + WITHIN_SECONDS)
            self._stepped.wait(pause if leading else None)
            self._stepped.clear()
            self._tells.beat()
            if self.candidate.is_leader() != leading and not self._stop.is_set():
                leading = not leading
                (self._gained if leading else self._lost)()
        if leading:
            self._lost()
