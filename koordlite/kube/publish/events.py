"""Events of what was decided, written in the background: nothing waits for them, and they may be lost."""

from __future__ import annotations

import logging
import os
import queue
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec import structs

from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.client.answers import ApiUnreachable
from koordlite.model import printable, times
from koordlite.model.wire.reservation import ObjectReference
from koordlite.threads import Worker

SERIES_SECONDS = 600.0
"""The same event within this time after the last is counted on the first one."""
COUNT_SECONDS = 60.0
"""A count is written this often at most, however often the thing happens."""
BURST = 25
REFILL_SECONDS = 12.0
"""Events of all subjects: `BURST` at once, then one every `REFILL_SECONDS`."""
TEXTS = 8
"""Texts of one thing that become events of their own within SERIES_SECONDS. Further ones are counted on the newest:
a text whose numbers change each time must not fill the cluster."""
KEPT = 1024
"""Things kept in mind; the longest silent are forgotten."""

EventType = Literal["Normal", "Warning"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something people should be able to read with `kubectl describe`."""

    regarding: ObjectReference
    """Object that the event is about: without a namespace a cluster-scoped one, without an apiVersion one of v1."""
    reason: str
    """The CamelCase word of the decision."""
    note: str
    action: str
    """Action that was or was to be done: `Evict`, `ReadConfiguration`."""
    type: EventType = "Normal"

    @property
    def same(self) -> Event:
        """Identity of an event: all but the note."""
        return structs.replace(self, note="")


class Series(msgspec.Struct):
    """An event that was sent, and how often it has happened since."""

    event: Event
    name: str
    last_at: float
    written_at: float
    count: int = 1
    written_count: int = 1


class Aggregator:
    """Decides what becomes of each event. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._things: dict[Event, dict[str, Series]] = {}
        """Series by what they are about, then by their note; the newest note last."""
        self._tokens, self._refilled_at = float(BURST), float("-inf")
        self.dropped = 0
        """Events dropped because there were too many."""

    def add(self, event: Event, name: str, now: float) -> Series | None:
        """The series that this event asks to be written at once, if any; `name` is used when it is the first of one."""
        texts = {n: s for n, s in self._things.get(event.same, {}).items() if now - s.last_at < SERIES_SECONDS}
        series = texts.get(event.note)
        if series is None and len(texts) >= TEXTS:
            series = list(texts.values())[-1]
        if series is not None:
            series.count, series.last_at = series.count + 1, now
            return self._counted(series, now)
        if not self._may(now):
            self.dropped += 1
            return None
        fresh = Series(event, name, now, now)
        self._things[event.same] = {**texts, event.note: fresh}
        while len(self._things) > KEPT:
            oldest = min(
                self._things, key=lambda same: max((s.last_at for s in self._things[same].values()), default=0.0)
            )
            del self._things[oldest]
        return fresh

    def due(self, now: float) -> list[Series]:
        """Counts that were held back and may be written by now."""
        every = (series for texts in self._things.values() for series in texts.values())
        waiting = [series for series in every if series.count > series.written_count]
        return [series for series in waiting if self._counted(series, now)]

    def lost(self, series: Series) -> None:
        """The event is not there any more, or was never accepted: the next one begins again."""
        self._things.get(series.event.same, {}).pop(series.event.note, None)

    def _counted(self, series: Series, now: float) -> Series | None:
        if now - series.written_at < COUNT_SECONDS or not self._may(now):
            return None
        series.written_at, series.written_count = now, series.count
        return series

    def _may(self, now: float) -> bool:
        if self._refilled_at > float("-inf"):
            self._tokens = min(BURST, self._tokens + (now - self._refilled_at) / REFILL_SECONDS)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


LOG = logging.getLogger(__name__)
WAITING = 256
"""Events that may wait to be written; more are dropped and counted."""
NOTE_CHARACTERS = 1024
"""The server refuses longer notes."""
NAME_CHARACTERS = 230
"""Characters of a subject's name that become part of the Event's, which may have 253."""
DUE_SECONDS = 10.0
CLUSTER_NAMESPACE = "default"
"""Namespace of events about objects without one; the server accepts no other."""


class Events:
    """Writer of Events. `tell` returns at once; a thread does the writing from `start` to `stop`."""

    def __init__(
        self,
        api: Api,
        *,
        controller: str,
        instance: str,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """`controller` is the program (`koordlite.io/agent`), `instance` which of them (node or pod name)."""
        self._api, self._controller, self._instance = api, controller, instance
        self._monotonic, self._wall = monotonic, wall
        self._aggregator = Aggregator()
        self._waiting: queue.Queue[Event | None] = queue.Queue(WAITING)
        self._thread = Worker("events", self._run)
        self._error = ""
        self._written = 0
        self._overflow = 0

    @classmethod
    def of_process(cls, api: Api, controller: str) -> Events:
        """Events of this process, told apart by its pod, or its host."""
        instance = os.environ.get("POD_NAME") or socket.gethostname()
        return cls(api, controller=controller, instance=instance, monotonic=time.monotonic, wall=time.time)

    def tell(self, event: Event) -> None:
        """Have it written, or counted on an earlier one."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._overflow += 1

    @property
    def dropped(self) -> int:
        """Events nobody will read: there were too many, or the server refused them."""
        return self._aggregator.dropped + self._overflow

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """Write what waits, for at most so long."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=seconds)
            except queue.Full:
                return
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._thread.beat()
            try:
                event = self._waiting.get(timeout=DUE_SECONDS)
            except queue.Empty:
                self.write_due()
                continue
            if event is None:
                return
            self.write(event)

    def write(self, event: Event) -> None:
        """Write one event now, in this thread."""
        self._written += 1
        about = event.regarding.name[:NAME_CHARACTERS].rstrip("-.")
        name = f"{about}.{int(self._wall() * 1e6):x}{self._written & 0xFFF:03x}"
        series = self._aggregator.add(event, name, self._monotonic())
        if series:
            self._send(series)
        self.write_due()

    def write_due(self) -> None:
        """Write the counts that were held back and are due."""
        for series in self._aggregator.due(self._monotonic()):
            self._send(series)

    def _send(self, series: Series) -> None:
        self._thread.beat()
        try:
            self._ask(series)
        except (ApiError, ApiUnreachable) as error:
            self._aggregator.lost(series)
            self._aggregator.dropped += 1
            if str(error) != self._error:
                LOG.warning("event %s was not written: %s", series.event.reason, error)
            self._error = str(error)
        else:
            self._error = ""

    def _ask(self, series: Series) -> None:
        namespace = series.event.regarding.namespace or CLUSTER_NAMESPACE
        folder = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        if series.count > 1:
            last = {"count": series.count, "lastObservedTime": times.micro(self._wall())}
            try:
                self._api.request("PATCH", f"{folder}/{series.name}", body={"series": last})
                return
            except ApiError as error:
                # Events live for an hour; where this one is over, the matter is reported again.
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        self._api.request("POST", folder, body=self._document(series))

    def _document(self, series: Series) -> dict[str, object]:
        event = series.event
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": event.regarding.namespace or CLUSTER_NAMESPACE},
            "eventTime": times.micro(self._wall()),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "regarding": {"apiVersion": "v1", **msgspec.to_builtins(event.regarding)},
            "reason": event.reason,
            "action": event.action,
            "type": event.type,
            "note": printable.one_line(event.note).encode()[:NOTE_CHARACTERS].decode(errors="ignore"),
        }
