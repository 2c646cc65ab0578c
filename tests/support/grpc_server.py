"""Servers that gRPC calls of ours are made of: grpcio's on a unix socket, and one whose HTTP/2 is written by hand."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

Handler = Callable[[bytes, Any], bytes]
"""Answers a request, given grpcio's context."""
HEADERS = ((":status", "200"), ("content-type", "application/grpc"))
DONE = (("grpc-status", "0"),)
STREAM = 1


@contextlib.contextmanager
def serving(address: str, service: str, handlers: Mapping[str, Handler]) -> Iterator[None]:
    """Answer calls of `service` at a unix socket by grpcio, by method, while the block runs."""
    grpc = pytest.importorskip("grpc")
    methods = {name: grpc.unary_unary_rpc_method_handler(handler) for name, handler in handlers.items()}
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, options=(("grpc.max_send_message_length", -1),))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        server.add_insecure_port(f"unix://{address}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()


def connection() -> H2Connection:
    """The other side of a client's connection, which says what the test wants: also what no server should."""
    free = {"validate_outbound_headers": False, "normalize_outbound_headers": False}
    return H2Connection(H2Configuration(client_side=False, **free))


def message(content: bytes, *, compressed: bool = False, length: int | None = None) -> bytes:
    """A message as gRPC frames it; `length` lies about it."""
    return struct.pack(">?I", compressed, len(content) if length is None else length) + content


def answer(server: H2Connection, content: bytes) -> None:
    """Headers, one message and the status of a call that succeeded."""
    server.send_headers(STREAM, HEADERS)
    server.send_data(STREAM, message(content))
    server.send_headers(STREAM, DONE, end_stream=True)
