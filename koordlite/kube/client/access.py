"""Requests to an API server: credentials and TLS by the official client, answers as they come off the wire.

Nothing is retried here: whoever asks knows what a second try costs.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from koordlite.kube.client import paging
from koordlite.kube.client.answers import NO_STREAMS, STREAM_QUERY, Answer, ApiError, ApiUnreachable, refusal
from koordlite.kube.client.backoff import Outage
from koordlite.kube.client.credentials import Transport, load
from koordlite.kube.client.paging import Page

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

__all__ = ["Answer", "Api", "ApiError", "ApiUnreachable", "Page", "Stream", "connect"]

Query = Sequence[tuple[str, str]]
Timeout = tuple[float, float]

TIMEOUT: Timeout = (3.0, 10.0)
"""Seconds to connect, and between two parts of an answer."""
WHOLE_ANSWER_SECONDS = 60.0
"""A server that drips its answer is cut off after this, or after the read timeout if that is longer."""
STREAM_TIMEOUT: Timeout = (3.0, 30.0)
STREAM_SECONDS = 600
"""Time for a list that comes as a stream."""
CHUNK_BYTES = 1 << 18
LINE_BYTES = 16 << 20
"""No object is that large; a line that is comes from something that is no API server."""
ANSWER_BYTES = 1 << 30
"""No answer is larger, with all pods of a large cluster in it."""
NODE_ANSWER_BYTES = 32 << 20
"""The same about one node: thousands of pods fit in, and the memory of an agent holds it."""


def connect(kubeconfig: str | None, context: str | None, *, user_agent: str, answer_bytes: int = ANSWER_BYTES) -> Api:
    """The API server that a kubeconfig names, or the one of the cluster this process runs in.
    Without `kubeconfig` and `context`: the service account of this pod, else the file named by KUBECONFIG. No request
    is made yet. ConfigError says what was tried. An answer of more than `answer_bytes` is refused. The client library
    is imported here, so that a run without a cluster does not pay for it."""
    return Api(load(kubeconfig, context, user_agent=user_agent), answer_bytes=answer_bytes)


class Api:
    """One API server. Safe to use from several threads."""

    def __init__(self, client: Transport, *, answer_bytes: int = ANSWER_BYTES) -> None:
        self._client, self._answer_bytes = client, answer_bytes
        self._streams = True
        """True until the server refuses to stream lists."""
        self.outage = Outage()
        """State that the watches of this server share while it cannot be reached."""

    @property
    def url(self) -> str:
        """Address of the server, for messages."""
        return str(self._client.configuration.host)

    @property
    def client(self) -> Transport:
        """Configuration it was made of, for other servers that take the same credentials."""
        return self._client

    @property
    def ca_file(self) -> str:
        """File with the certificates the server is verified by; empty when it is the system's."""
        return str(self._client.configuration.ssl_ca_cert or "")

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: object = None,
        content_type: str = "",
        timeout: Timeout = TIMEOUT,
    ) -> Answer:
        """Ask once. ApiError when the answer is not 2xx, ApiUnreachable when there is none.
        `body` is JSON as Python values, of PATCH a merge patch unless `content_type` says otherwise. `timeout` is
        seconds to connect and seconds between parts of the answer."""
        usual = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {} if body is None else {"Content-Type": content_type or usual}
        with self._open(method, path, query=query, body=body, headers=headers, timeout=timeout) as response:
            answer = self._read(response, path, max(WHOLE_ANSWER_SECONDS, timeout[1]))
        if not 200 <= answer.status < 300:
            raise refusal(answer)
        _refuse_html(answer.headers, f"{self.url}{path}")
        return answer

    @contextlib.contextmanager
    def stream(self, path: str, *, query: Query = (), timeout: Timeout = TIMEOUT) -> Iterator[Stream]:
        """A watch: lines as they come. `timeout[1]` is the longest silence. Errors as of `request`, also while
        reading."""
        with self._open("GET", path, query=query, timeout=timeout) as response:
            if not 200 <= response.status < 300:
                raise refusal(self._read(response, path, WHOLE_ANSWER_SECONDS))
            _refuse_html(response.headers, f"{self.url}{path}")
            _refuse_encoded(response.headers, f"{self.url}{path}")
            try:
                yield Stream(response, f"{self.url}{path}")
            finally:
                # What was not read is not worth reading: the connection does not go back to the pool.
                response.close()

    def pages(self, path: str, query: Query = (), limit: int = paging.LIMIT) -> Iterator[Page]:
        """A list in parts of `limit` objects, each `(resource_version, items)` with items still in JSON. One that is
        `restarted` means that the server had forgotten the first state: forget what came so far, as `collect` does."""
        return paging.pages(self.request, path, query, limit, most_bytes=4 * self._answer_bytes)

    def listed(self, path: str) -> Iterator[Page]:
        """A whole list in parts, as a stream from a server that streams lists, else page by page: see `pages`.
        A stream takes the server as much memory as one object, a list as much as all of it."""
        started = False
        if self._streams:
            query = (*STREAM_QUERY, ("allowWatchBookmarks", "true"), ("timeoutSeconds", str(STREAM_SECONDS)))
            try:
                with self.stream(path, query=query, timeout=STREAM_TIMEOUT) as lines:
                    for page in paging.streamed(lines, path, most_bytes=4 * self._answer_bytes):
                        started = True
                        yield page
                return
            except paging.NotStreamed:
                self._streams = False
            except ApiError as error:
                if error.status not in NO_STREAMS:
                    raise
                # Where only this list may not be watched, the others still come as streams.
                self._streams = error.status == HTTPStatus.FORBIDDEN
        for page in self.pages(path):
            yield Page(page.resource_version, page.items, restarted=page.restarted or started)
            started = False

    def collect(self, path: str, query: Query = (), limit: int = paging.LIMIT) -> Page:
        """A whole list at one resource version."""
        return paging.collected(self.pages(path, query, limit))

    @contextlib.contextmanager
    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Query,
        timeout: Timeout,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Iterator[BaseHTTPResponse]:
        """The answer with its content still unread; its connection is kept only when it was read without fault."""
        # What nobody asked to be compressed is not unpacked either: a small answer could become any size.
        accepting = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        with _transport_errors(f"{self.url}{path}"):
            response = self._client.send(method, path, query=query, headers=accepting, body=body, timeout=timeout)
        try:
            yield response
        except BaseException:
            response.close()
            raise
        response.release_conn()

    def _read(self, response: BaseHTTPResponse, path: str, seconds: float) -> Answer:
        headers = {name.lower(): text for name, text in response.headers.items()}
        where = f"{self.url}{path}"
        _refuse_encoded(headers, where)
        with _transport_errors(where):
            parts, size, until = list[bytes](), 0, time.monotonic() + seconds
            for part in response.stream(CHUNK_BYTES, decode_content=False):
                parts.append(part)
                size += len(part)
                if size > self._answer_bytes:
                    raise ApiUnreachable(errno.EMSGSIZE, f"the answer has more than {self._answer_bytes} bytes", "")
                if time.monotonic() > until:
                    raise ApiUnreachable(errno.ETIMEDOUT, "the answer does not end", "")
            return Answer(response.status, headers, b"".join(parts), path)


class Stream(msgspec.Struct, eq=False):
    """Lines of an answer that goes on."""

    _response: BaseHTTPResponse
    _where: str

    def __iter__(self) -> Iterator[bytes]:
        """Lines without their end, as soon as each is complete; ends when the server ends the answer.
        A piece of a line that was cut off by the end is left out. ApiUnreachable when the answer is cut or silent."""
        lines = self._lines()
        while True:
            with _transport_errors(self._where):
                line = next(lines, None)
            if line is None:
                return
            yield line

    def _lines(self) -> Iterator[bytes]:
        tail = b""
        if getattr(self._response, "chunked", False):
            chunks = self._response.stream(CHUNK_BYTES, decode_content=False)
        else:
            # Without chunks, `stream` would wait until so many bytes are there.
            chunks = iter(lambda: self._response.read1(CHUNK_BYTES, decode_content=False), b"")
        for chunk in chunks:
            *lines, tail = (tail + chunk).split(b"\n") if b"\n" in chunk else (tail + chunk,)
            yield from filter(None, lines)
            if len(tail) > LINE_BYTES:
                raise ApiUnreachable(errno.EMSGSIZE, f"a line of more than {LINE_BYTES} bytes", "")

    def extend(self, seconds: float) -> bool:
        """Let a silence be that long from now on; False when the connection no longer allows it."""
        socket = getattr(getattr(self._response, "connection", None), "sock", None)
        if socket is None:
            return False
        socket.settimeout(seconds)
        return True

    def cancel(self) -> None:
        """End it from another thread: whoever waits for a line gets the end of the answer, or ApiUnreachable."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()


def _refuse_html(headers: Mapping[str, str], where: str) -> None:
    """A page for people is no success: the request never reached an API server, whatever the status says."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html":
        raise ApiUnreachable(errno.EPROTO, "a web page came in place of an answer of the API: is it a proxy's?", where)


def _refuse_encoded(headers: Mapping[str, str], where: str) -> None:
    """An answer that is compressed although nobody asked for it."""
    coding = headers.get("content-encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise ApiUnreachable(errno.EPROTO, f"the answer is compressed ({coding[:40]}), which nobody asked for", where)


@contextlib.contextmanager
def _transport_errors(where: str) -> Iterator[None]:
    """Whatever keeps an answer from arriving, as ApiUnreachable with the errno found below it."""
    import urllib3
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config.config_exception import ConfigException

    try:
        yield
    except ApiUnreachable as error:
        raise ApiUnreachable(error.errno, error.strerror, where) from error
    except (urllib3.exceptions.HTTPError, ApiException, ConfigException, OSError) as error:
        raise ApiUnreachable(_errno(error), " ".join(str(error).split()), where) from error


def _errno(error: BaseException) -> int:
    """The number the kernel gave, looked for below what the libraries made of it."""
    import ssl

    import urllib3

    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.errno and not isinstance(below, ssl.SSLError):
            return below.errno  # The number of an SSLError is the TLS library's, not the kernel's.
        below = below.__cause__ or below.__context__
    if isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError):
        return errno.ETIMEDOUT
    return errno.ECONNRESET if isinstance(error, urllib3.exceptions.ProtocolError) else errno.EPROTO
