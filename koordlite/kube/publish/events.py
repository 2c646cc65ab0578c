"""Events of what was decided, written in the background: nothing waits for them, and they may be lost."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from http import HTTPStatus

from koordlite.kube.client import micro_time
from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.client.answers import ApiUnreachable
from koordlite.kube.publish.event_series import Aggregator, Event, Regarding, Series, Write
from koordlite.model import printable
from koordlite.threads import Worker

__all__ = ["Event", "Events", "Regarding"]

LOG = logging.getLogger(__name__)
WAITING = 256
"""Events that may wait to be written; more are dropped and counted."""
NOTE_CHARACTERS = 1024
"""The server refuses longer notes."""
NAME_CHARACTERS = 230
"""So much of a subject's name becomes part of the Event's, which may have 253."""
DUE_SECONDS = 10.0
CLUSTER_NAMESPACE = "default"
"""Where events about objects without a namespace go; the server accepts no other."""


class Events:
    """Tells the cluster. `tell` returns at once; a thread does the writing from `start` to `stop`."""

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
        write = self._aggregator.add(event, name, self._monotonic())
        if write:
            self._send(write)
        self.write_due()

    def write_due(self) -> None:
        """Write the counts that were held back and are due."""
        for write in self._aggregator.due(self._monotonic()):
            self._send(write)

    def _send(self, write: Write) -> None:
        self._thread.beat()
        try:
            self._ask(write)
        except (ApiError, ApiUnreachable) as error:
            self._aggregator.lost(write.series)
            self._aggregator.dropped += 1
            if str(error) != self._error:
                LOG.warning("event %s was not written: %s", write.series.event.reason, error)
            self._error = str(error)
        else:
            self._error = ""

    def _ask(self, write: Write) -> None:
        series = write.series
        folder = f"/apis/events.k8s.io/v1/namespaces/{_namespace(series.event.regarding)}/events"
        if write.first:
            self._api.request("POST", folder, body=self._document(series))
            return
        last = {"count": series.count, "lastObservedTime": micro_time.micro(self._wall())}
        try:
            path, body = f"{folder}/{series.name}", {"series": last}
            self._api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            # Events live for an hour; this one is over, so the matter is reported again.
            self._api.request("POST", folder, body=self._document(series))

    def _document(self, series: Series) -> dict[str, object]:
        event = series.event
        namespace = _namespace(event.regarding)
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace},
            "eventTime": micro_time.micro(self._wall()),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "regarding": _reference(event.regarding),
            "reason": event.reason,
            "action": event.action,
            "type": event.type,
            "note": _note(event),
        }


def _reference(about: Regarding) -> dict[str, str]:
    named = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    return {key: text for key, text in {**named, "namespace": about.namespace}.items() if text}


def _namespace(about: Regarding) -> str:
    return about.namespace or CLUSTER_NAMESPACE


def _note(event: Event) -> str:
    """Cut by bytes as the server counts them."""
    return printable.one_line(event.note).encode()[:NOTE_CHARACTERS].decode(errors="ignore")
