"""Questions to a Prometheus server over its HTTP API, and its answers."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from koordlite.model.errors import UNREADABLE

T = TypeVar("T")
SHOWN_CHARACTERS = 200
_TOKEN = re.compile(r"[!-~]*\Z")
_UNREADABLE = re.compile(r"[\s\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})")


def check_url(text: str) -> None:
    """ValueError for what cannot be asked. Source: the upstream descheduler, which refuses what Go's `url.Parse`
    does."""
    if not text.startswith(("http://", "https://")):
        raise ValueError("not a URL that starts with http:// or https://")
    try:
        parts = urllib.parse.urlsplit(text)
        host, _port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from error
    if not host or "%" in host:
        raise ValueError("not a URL: it has no readable host")
    if _UNREADABLE.search(text):
        raise ValueError("not a URL: it has a space, or a % without two hexadecimal digits behind it")


class Reply(NamedTuple):
    """An answer as the server gave it, also one that refuses."""

    status: int
    reason: str
    body: bytes


class Prometheus(msgspec.Struct, frozen=True):
    """One server. May be asked from many threads."""

    url: str
    token: Callable[[], str] = str
    """The bearer token, asked for each query because files and Secrets change; empty: none is sent. OSError says why
    there is none."""
    ca_file: str = ""
    """Certificates it is verified by; empty: the system's."""
    timeout_seconds: float = 5.0
    largest_answer_bytes: int = 8 << 20

    def ask(self, verb: str, parameters: Mapping[str, str]) -> Reply:
        """Ask `query` or `query_range`; OSError without an answer. A redirection is not followed: the token is for this
        server only."""
        import http.client  # These take as long to import as a small cluster to judge, and most programs never ask.
        import ssl
        from urllib import error as urllib_error
        from urllib import request as urllib_request

        class Refuse(urllib_request.HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                return None

        token = self.token()
        if not _TOKEN.match(token):  # The words of http.client would show it.
            raise OSError("the bearer token has a space or another character that no token has")
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        address = f"{self.url.rstrip('/')}/api/v1/{verb}?{urllib.parse.urlencode(parameters)}"
        request = urllib_request.Request(address, headers=headers)
        secure = address.startswith("https:")
        context = ssl.create_default_context(cafile=self.ca_file or None) if secure else None
        opener = urllib_request.build_opener(Refuse, urllib_request.HTTPSHandler(context=context))
        try:
            try:
                answer = opener.open(request, timeout=self.timeout_seconds)
            except urllib_error.HTTPError as error:
                answer = error
            with answer:
                body: bytes = answer.read(self.largest_answer_bytes + 1)
        except http.client.HTTPException as error:
            raise OSError(f"not an answer of HTTP: {error!r}") from error
        if len(body) > self.largest_answer_bytes:
            raise OSError(
                f"its answer is longer than {self.largest_answer_bytes} bytes; ask for fewer series or moments"
            )
        return Reply(answer.status, answer.reason, body)


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw()


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


def results(body: bytes, kind: str, shape: type[T]) -> list[T]:
    """Results of kind `vector` or `matrix` out of an answer; ValueError says what it is instead."""
    reply = _decoded(body, body, _Document)
    if reply.status != "success" or reply.data is None:
        raise ValueError(f"Prometheus refuses the query: {reply.error_type} {reply.error}".rstrip())
    if reply.data.result_type != kind:
        raise ValueError(f"the query gives a {reply.data.result_type}, not a {kind}")
    return _decoded(reply.data.result, body, list[shape])  # type: ignore[valid-type]


def _decoded(part: bytes | msgspec.Raw, body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(part, type=shape)
    except UNREADABLE as error:
        raise ValueError(f"not an answer of Prometheus: {error}; it begins {shown(body)!r}") from error


def shown(body: bytes) -> str:
    """The beginning of a body, in one line."""
    return " ".join(body[:SHOWN_CHARACTERS].decode(errors="replace").split())
