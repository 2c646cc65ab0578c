"""Asking a server over HTTP, and everything it may say instead of an answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from descheduler.metrics_sources.gather import read, usage
from koordlite.kube.client.prometheus import Prometheus


class _Answers(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str]]] = []
    status, body = 200, b""

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        self.send_response(type(self).status)
        self.end_headers()
        self.wfile.write(type(self).body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def answers() -> Iterator[Any]:
    """The class whose `status` and `body` the server answers, with its `url`."""
    kind: Any = type("Answers", (_Answers,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    kind.url = f"http://127.0.0.1:{server.server_port}"
    yield kind
    server.socket.shutdown(socket.SHUT_RDWR)  # Wakes the loop.
    server.shutdown()
    server.server_close()
    thread.join()


def vector(**nodes: str) -> bytes:
    result = [{"metric": {"instance": name}, "value": [1767225600.1, value]} for name, value in nodes.items()]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_a_query_is_sent_with_the_token_of_the_moment(answers: Any) -> None:
    answers.body = vector(n1="0.567", n2="1")
    tokens = iter(["first", "second"])
    server = Prometheus(answers.url + "/", lambda: next(tokens))
    assert usage(server, "sum(a) by (b)").nodes == {"n1": {"MetricResource": 56}, "n2": {"MetricResource": 100}}
    usage(server, "x")
    assert answers.asked == [
        ("/api/v1/query?query=sum%28a%29+by+%28b%29", "Bearer first"),
        ("/api/v1/query?query=x", "Bearer second"),
    ]


def test_without_a_token_none_is_sent(answers: Any) -> None:
    answers.body = vector()
    usage(Prometheus(answers.url, lambda: ""), "x")
    assert answers.asked[0][1] == ""


def test_a_refusal_is_told_in_the_servers_words(answers: Any) -> None:
    answers.status, answers.body = 403, b"no, you may not"
    absent = usage(Prometheus(answers.url, lambda: ""), "x").absent
    assert "403" in absent
    assert "no, you may not" in absent


def test_nobody_there_and_no_token_are_told() -> None:
    assert "cannot be asked" in usage(Prometheus("http://127.0.0.1:1", lambda: ""), "x").absent

    def gone() -> str:
        raise FileNotFoundError("no token here")

    assert "no token here" in usage(Prometheus("http://127.0.0.1:1", gone), "x").absent


@pytest.mark.parametrize(
    ("body", "word"),
    [
        pytest.param(b"<html>", "not an answer of Prometheus", id="a web page"),
        pytest.param(b'{"status":"error","errorType":"bad_data","error":"parse"}', "bad_data parse", id="bad query"),
        pytest.param(
            b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "scalar", id="not a vector"
        ),
        pytest.param(vector(n1="1.2"), "not a part between 0 and 1", id="more than all"),
        pytest.param(vector(n1="NaN"), "not a part between 0 and 1", id="no number"),
        pytest.param(vector(**{"": "0.1"}), "no label instance", id="of no node"),
        pytest.param(vector(), "no sample", id="empty"),
    ],
)
def test_an_answer_that_compares_nothing(body: bytes, word: str) -> None:
    found = read(body)
    assert word in found.absent
    assert not found.nodes


def test_a_port_behind_the_name_is_dropped() -> None:
    assert read(vector(**{"n1:9100": "0.5"})).nodes == {"n1": {"MetricResource": 50}}
