"""Questions to a Prometheus server over its HTTP API, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from koordlite.model.errors import UNREADABLE

T = TypeVar("T")
SHOWN_CHARACTERS = 200


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
        """Ask `query` or `query_range`; OSError without an answer."""
        import http.client  # These take as long to import as a small cluster to judge, and most programs never ask.
        import ssl
        from urllib import error as urllib_error
        from urllib import request as urllib_request

        token = self.token()
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        address = f"{self.url.rstrip('/')}/api/v1/{verb}?{urlencode(parameters)}"
        request = urllib_request.Request(address, headers=headers)
        secure = address.startswith("https:")
        context = ssl.create_default_context(cafile=self.ca_file or None) if secure else None
        try:
            try:
                answer = urllib_request.urlopen(request, timeout=self.timeout_seconds, context=context)
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
