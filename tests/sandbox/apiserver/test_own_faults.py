"""When a handler breaks: the client is told, the operator is told, and the server goes on."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading

import pytest

from koordlite.sandbox.apiserver import ApiServer, ManualClock
from koordlite.sandbox.apiserver.api import Answer, Api, Settings, Stream
from koordlite.sandbox.apiserver.cluster import NODES, Cluster
from koordlite.sandbox.apiserver.requests import Request
from koordlite.sandbox.apiserver.store import Store

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
# Validation refuses such a share; loaded from a file, it breaks the controller that counts.
SENSELESS = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
SENSELESS["spec"] = {"minAvailable": "half", "selector": {}}  # type: ignore[assignment]


@pytest.fixture
def hollow() -> Api:
    """A server that keeps a node without status, which no request could have made."""
    store = Store()
    store.write(NODES, ("", "n"), {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}})
    return Api(Cluster(store, ManualClock(), seed=1), Settings(), threading.Event())


def test_a_broken_handler_answers_500_with_a_status_and_logs_what_broke(hollow, caplog):
    answer = hollow.answer(Request.of("GET", "/api/v1/nodes/n", TABLE))
    assert isinstance(answer, Answer)
    body = json.loads(answer.body)
    assert (answer.status, body["kind"], body["code"]) == (500, "Status", 500)
    assert (body["reason"], body["message"]) == ("InternalError", "Internal error occurred: KeyError: 'status'")
    assert "/api/v1/nodes/n broke its handler" in caplog.text
    assert "Traceback" in caplog.text


def test_a_watch_that_breaks_ends_with_an_error_event(hollow, caplog):
    stream = hollow.answer(Request.of("GET", "/api/v1/nodes?watch=true&timeoutSeconds=1", TABLE))
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


def test_the_command_says_on_stderr_what_broke(tmp_path):
    (tmp_path / "budget.json").write_text(json.dumps(SENSELESS))
    command = [sys.executable, "-m", "koordlite", "sandbox", "apiserver", "--port", "0", "--objects", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        where = serving.stdout.readline().split("http://")[1].partition(";")[0]
        connection = http.client.HTTPConnection(where, timeout=20)
        connection.request("GET", "/api/v1/nodes")
        assert connection.getresponse().status == 500
        connection.close()
        serving.send_signal(signal.SIGTERM)
        _, told = serving.communicate(timeout=20)
    assert serving.returncode == 0
    assert "GET /api/v1/nodes broke its handler" in told
    assert "ValueError" in told
