"""When a handler breaks: the client is told, the operator is told, and the server goes on."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest
from apiserver import ApiServer, ManualClock, conversion
from apiserver.api import Answer, Api, Settings, Stream
from apiserver.cluster import NODES, Cluster
from apiserver.requests import Request
from apiserver.store import Store

# Validation refuses such a share; loaded from a file, it breaks the controller that counts.
SENSELESS = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
SENSELESS["spec"] = {"minAvailable": "half", "selector": {}}  # type: ignore[assignment]


@pytest.fixture
def hollow(monkeypatch: pytest.MonkeyPatch) -> Api:
    """A server that cannot show its only node."""
    store = Store()
    store.write(NODES, ("", "n"), {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}})

    def broken(*_: Any) -> None:
        raise KeyError("status")

    monkeypatch.setattr(conversion, "shown", broken)
    return Api(Cluster(store, ManualClock(), seed=1), Settings(), threading.Event())


def test_a_broken_handler_answers_500_with_a_status_and_logs_what_broke(hollow, caplog):
    answer = hollow.answer(Request.of("GET", "/api/v1/nodes/n", {}))
    assert isinstance(answer, Answer)
    body = json.loads(answer.body)
    assert (answer.status, body["kind"], body["code"]) == (500, "Status", 500)
    assert (body["reason"], body["message"]) == ("InternalError", "Internal error occurred: KeyError: 'status'")
    assert "/api/v1/nodes/n broke its handler" in caplog.text
    assert "Traceback" in caplog.text


def test_a_watch_that_breaks_ends_with_an_error_event(hollow, caplog):
    stream = hollow.answer(Request.of("GET", "/api/v1/nodes?watch=true&timeoutSeconds=1", {}))
    assert isinstance(stream, Stream)
    (line,) = stream.lines
    event = json.loads(line or b"")
    assert (event["type"], event["object"]["reason"]) == ("ERROR", "InternalError")
    assert "watch of /api/v1/nodes broke" in caplog.text


def test_the_connection_outlives_a_broken_handler():
    with ApiServer(controllers=True) as server:
        server.objects.load(SENSELESS)
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
        for broken in (True, True, False):
            if not broken:
                server.objects.remove("PodDisruptionBudget", "b", "default")
            connection.request("GET", "/api/v1/nodes")
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["kind"]) == (
                (500, "Status") if broken else (200, "NodeList")
            )
        connection.close()
