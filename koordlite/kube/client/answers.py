"""Answers of an API server as values: a good answer, a refusal in its own words, or no answer at all."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TypeVar

import msgspec

from koordlite.model.errors import UNREADABLE, KoordliteError
from koordlite.model.status import RequestHistogram, RequestKind

T = TypeVar("T")
NO_ANSWER = "none"
"""Stand-in for a status code."""


class RequestTimes:
    """Measures; read from other threads."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._lock = now, threading.Lock()
        self._histograms: dict[RequestKind, RequestHistogram] = {}

    @contextlib.contextmanager
    def measured(self, verb: str, path: str) -> Iterator[None]:
        """Around one request that raises as `Api.request` does; every success counts as 200."""
        began, code = self._now(), "200"
        try:
            yield
        except ApiError as error:
            code = str(error.status)
            raise
        except ApiUnreachable:
            code = NO_ANSWER
            raise
        finally:
            with self._lock:
                histogram = self._histograms.get((verb, path, code), RequestHistogram())
                self._histograms[verb, path, code] = histogram.plus(self._now() - began)

    def all(self) -> Mapping[RequestKind, RequestHistogram]:
        """Counted so far."""
        with self._lock:
            return dict(self._histograms)


MESSAGE_CHARACTERS = 500
"""A refusal longer than this is cut: some servers send whole pages."""


class Answer(msgspec.Struct, frozen=True):
    """A 2xx answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    path: str = ""
    """Path of the request."""

    def read(self, shape: type[T]) -> T:
        """The body as a value of this type; ApiError when it is none."""
        return read(self.body, shape, self.path)


def read(raw: bytes | msgspec.Raw, shape: type[T], path: str = "") -> T:
    """An answer to the request of `path`, or an object of a list, as a value of this type; ApiError when it is none."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except UNREADABLE as error:
        whose = f"the answer of {path}" if path else "the answer"
        raise ApiError(0, "Unreadable", f"{whose} cannot be read: {error}") from error


class Cause(msgspec.Struct, frozen=True):
    """One detail of a refusal: `DisruptionBudget`, `FieldValueInvalid` … with the field it is about, if any."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(KoordliteError):
    """The API server answered, and the answer is no.

    `status` is the HTTP code, 0 for what came with a good one and is not what was asked for. `reason` is the server's
    word (`Conflict`, `Expired`; empty where it gave none), `causes` its details, `retry_after_seconds` the pause it
    asks for. `named` is the object it speaks of: a 404 that names none means that the server does not know the
    resource itself, as when a CRD is not installed.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        causes: tuple[Cause, ...] = (),
        named: str = "",
    ) -> None:
        self.status, self.reason, self.message = status, reason, message
        self.retry_after_seconds, self.causes, self.named = retry_after_seconds, causes, named
        super().__init__(f"{status} {reason or _phrase(status)}: {message}" if status else message)

    @property
    def unknown_resource(self) -> bool:
        """True if the server does not serve this kind of object at all."""
        return self.status == HTTPStatus.NOT_FOUND and not self.named

    @property
    def other_uid(self) -> bool:
        """True if a patch was refused because the object has another uid: it was made again under the name.
        For a patch a uid is a field that may not change, hence 422; as a precondition of other requests it is 409."""
        fields = (cause.field for cause in self.causes)
        return self.status == HTTPStatus.UNPROCESSABLE_ENTITY and "metadata.uid" in fields


class ApiUnreachable(OSError):
    """No usable answer: refused, cut, timed out, or not what an API server says. Arguments: errno, words, URL."""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct):
    kind: str = ""
    reason: str | None = None
    message: str | None = None
    code: int | None = None
    details: _Details | None = None


def refusal(answer: Answer) -> ApiError:
    """The error that a non-2xx answer means, whatever its body is: Status, plain text, or nothing."""
    try:
        status = msgspec.json.decode(answer.body, type=_Status)
    except UNREADABLE:
        status = _Status()
    text = answer.body.decode(errors="replace") if status.kind != "Status" else status.message or ""
    return _error(status, answer.status, text, retry_after(answer.headers))


def refusal_in_stream(raw: bytes) -> ApiError:
    """The error that the object of an ERROR event in a watch means; such an event comes with HTTP 200."""
    try:
        status = msgspec.json.decode(raw, type=_Status)
    except UNREADABLE:
        status = _Status(message=raw.decode(errors="replace"))
    return _error(status, status.code or HTTPStatus.INTERNAL_SERVER_ERROR, status.message or "", None)


class WatchEvent(msgspec.Struct):
    """One line of a watch."""

    type: str = ""
    object: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class _Mark(msgspec.Struct):
    metadata: dict[str, object] = msgspec.field(default_factory=dict)


_decode_event = msgspec.json.Decoder(WatchEvent).decode
STREAM_QUERY = (("watch", "true"), ("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
"""Asks for a list as a stream: ADDED for each object, a bookmark that ends it, and what changes from then on."""
_STREAM_END = "k8s.io/initial-events-end"
NO_STREAMS = frozenset({400, 403, 405, 422})
"""Answers of a server that does not stream lists (without the feature gate WatchList), or not to us."""


def watch_event(line: bytes) -> WatchEvent:
    """The event in a line of a watch; ApiError for what is none, and for the server's refusal."""
    try:
        event = _decode_event(line)
    except UNREADABLE as error:
        raise ApiError(0, "", f"a line of the watch cannot be read: {error}") from error
    if not event.type:
        raise ApiError(0, "", "a line of the watch is no event: it has no type")
    if event.type == "ERROR":
        raise refusal_in_stream(bytes(event.object))
    return event


def bookmark(mark: msgspec.Raw) -> tuple[str, bool]:
    """The resource version in the object of a bookmark, empty without one; and whether it ends a streamed list."""
    try:
        metadata = msgspec.json.decode(mark, type=_Mark).metadata
    except UNREADABLE:
        return "", False
    version, notes = metadata.get("resourceVersion"), metadata.get("annotations")
    ends = isinstance(notes, dict) and notes.get(_STREAM_END) == "true"
    return (version if isinstance(version, str) else ""), ends


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the header Retry-After asks for; None without it, or where it is a date."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _error(status: _Status, code: int, text: str, retry_seconds: float | None) -> ApiError:
    details = status.details or _Details()
    return ApiError(
        code,
        status.reason or "",
        " ".join(text.split())[:MESSAGE_CHARACTERS] or _phrase(code),
        retry_after_seconds=details.retry_after_seconds if retry_seconds is None else retry_seconds,
        causes=details.causes or (),
        named=details.name,
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"
