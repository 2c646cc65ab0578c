"""A server on a port, and a client that hides nothing."""

from __future__ import annotations

import dataclasses
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apiserver import ApiServer, ManualClock


@dataclasses.dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    headers: dict[str, str]


@dataclasses.dataclass
class Client:
    """Requests over HTTP, one connection each."""

    server: ApiServer

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        connection = self.open(method, path, body, **headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        media = answer.getheader("content-type", "")
        parsed = json.loads(text) if media == "application/json" and text else text.decode()
        return Reply(answer.status, parsed, {name.lower(): value for name, value in answer.getheaders()})

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.server.url.removeprefix("http://"), timeout=20)
        content = body if isinstance(body, str) or body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, content, named)
        return connection

    def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> Reply:
        return self("PATCH", path, body, content_type=f"application/{kind}")

    def watch(self, path: str) -> list[Any]:
        """Every event until the server ends the stream."""
        connection = self.open("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        events = [json.loads(line) for line in answer]
        connection.close()
        return events


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[ApiServer]:
    with ApiServer(clock=clock, seed=1) as running:
        yield running


@pytest.fixture
def ask(server: ApiServer) -> Client:
    return Client(server)


MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def config_map(ask: Client) -> Callable[..., Any]:
    """Create a ConfigMap and give it back as stored."""

    def create(name: str, data: dict[str, str] | None = None, **meta: Any) -> Any:
        reply = ask("POST", MAPS, {"metadata": {"name": name, **meta}, "data": data or {"k": "v"}})
        assert reply.status == 201, reply.body
        return reply.body

    return create


@pytest.fixture
def pod(server: ApiServer) -> Callable[..., Any]:
    """Put a pod there, running and ready unless said otherwise."""

    def load(name: str, *, node: str = "n1", phase: str = "Running", ready: bool = True, **meta: Any) -> Any:
        conditions = [{"type": "Ready", "status": str(ready)}]
        item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **meta}}
        item["spec"] = {"nodeName": node, "containers": [{"name": "main", "image": "x"}]}  # type: ignore[assignment]
        item["status"] = {"phase": phase, "conditions": conditions}  # type: ignore[assignment]
        return server.objects.load(item)[0]

    return load
