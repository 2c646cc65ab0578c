"""Requests as they come over the wire: credentials, lengths, and the fields an Event needs."""

from __future__ import annotations

import socket

import pytest
from apiserver import ApiServer

JSON = b"Content-Type: application/json\r\n"
MAP = b'{"metadata":{"name":"a"}}'


def _answer(server: ApiServer, request: bytes) -> bytes:
    """The first bytes of the answer to a request as it stands."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        return connection.recv(4096)


@pytest.mark.parametrize("length", [b"abc", b"-5", b"1e3", "٣".encode()])
def test_a_length_that_is_no_number_is_a_bad_request(server, length):
    answer = _answer(server, b"GET /version HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(b"a\r\n" + MAP[:10] + b"\r\nF;x=y\r\n" + MAP[10:] + b"\r\n0\r\n\r\n", 201, id="two chunks"),
        pytest.param(b"zz\r\n", 400, id="no size"),
    ],
)
def test_a_body_may_come_in_chunks(server, body, code):
    head = b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    assert _answer(server, head + JSON + b"\r\n" + body).startswith(f"HTTP/1.1 {code} ".encode())
