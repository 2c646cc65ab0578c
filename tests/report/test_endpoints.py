"""The agent's HTTP server on a real loopback socket, with the real answers."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from handclock import HandClock
from prometheus_client.openmetrics import parser as openmetrics
from realnode.waiting import until
from reported import tick_of

from koordlite.http.answers import Answer
from koordlite.http.server import Server
from koordlite.model.errors import ConfigError
from koordlite.report.history import NOTHING, History, Remembered
from koordlite.report.metrics.collector import Metrics
from koordlite.report.tick import Tick
from koordlite.report.web.endpoints import Endpoints


class Agent:
    """What an agent wires together, without the loop."""

    def __init__(self) -> None:
        self.watch, self.metrics = HandClock(0.0), Metrics()
        self.endpoints = Endpoints(period_seconds=1.0, registry=self.metrics.registry, now=self.watch)
        self.server = Server("127.0.0.1", 0, self.endpoints.answer)

    def tell(self, tick: Tick, history: History | None = None) -> None:
        self.metrics.observe_tick(tick)
        self.endpoints.publish(tick, Remembered(tuple(history.decisions)) if history else NOTHING)

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
        finally:
            connection.close()


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    made.server.start()
    yield made
    made.server.close()


def test_healthy_while_ticks_come_and_not_when_three_are_missing(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    assert agent.ask("/healthz")[::2] == (503, "no tick has ended yet\n")
    agent.tell(ticks[0])
    agent.watch.now = 3.0
    assert agent.ask("/healthz")[::2] == (200, "ok\n")
    agent.watch.now = 3.5
    status, _, why = agent.ask("/healthz")
    assert (status, why) == (503, "the last tick ended 3.5 s ago; one is due every 1 s\n")
    assert agent.ask("/readyz")[0] == 503
    agent.tell(ticks[1])
    assert agent.ask("/healthz")[0] == 200


def test_ready_once_the_node_is_known(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(tick_of(time=0.0))
    assert agent.ask("/readyz")[::2] == (503, "the Node object has not been seen yet\n")
    agent.tell(ticks[0])
    assert agent.ask("/readyz")[0] == 200


def test_metrics_in_both_formats(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(ticks[0])
    status, kind, text = agent.ask("/metrics")
    assert status == 200
    assert kind.startswith("text/plain")
    assert 'koordlet_be_suppress_cpu_cores{node="node-a",type="cpuset"} 13.0' in text
    _, kind, text = agent.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics.text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    assert {"koordlet_node_used_cpu_cores", "koordlite_decisions"} <= names


def test_the_two_halves_of_the_metrics_are_the_whole(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(ticks[0])
    whole, external, internal = (
        {line.split()[2] for line in agent.ask(path)[2].splitlines() if line.startswith("# TYPE ")}
        for path in ("/metrics", "/external-metrics", "/internal-metrics")
    )
    assert external | internal == whole
    assert not external & internal
    assert "koordlet_node_resource_allocatable" in external
    assert {"koordlet_start_time", "koordlite_decisions_total"} <= internal


def test_state_status_and_explain_are_the_last_tick(agent: Agent, ticks: tuple[Tick, ...], history: History) -> None:
    assert [agent.ask(path)[0] for path in ("/state", "/status", "/explain?subject=besteffort")] == [503] * 3
    agent.tell(ticks[0])
    agent.tell(ticks[-1], history)
    status, kind, body = agent.ask("/state")
    assert (status, kind, json.loads(body)["time"]) == (200, "application/json", 240.0)
    assert agent.ask("/status")[2].startswith("node-a: enforcing")
    found = agent.ask("/explain?subject=besteffort")[2]
    assert "BE may use 16.1 cores" in found
    assert "last change at 2026-09-21 14:17:16 UTC" in found


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        pytest.param("/explain", 400, "say what about", id="explain needs a subject"),
        pytest.param("/explain?subject=%3Cx%3E", 404, "nothing was decided about '<x>'", id="an unknown subject"),
        pytest.param("/explain?subject=", 400, "say what about", id="an empty subject"),
        pytest.param("/etc/passwd", 404, "nothing is here; there is /", id="other paths list the right ones"),
        pytest.param("/../state", 404, "nothing is here", id="paths are not resolved"),
    ],
)
def test_bad_requests(agent: Agent, ticks: tuple[Tick, ...], path: str, status: int, part: str) -> None:
    agent.tell(ticks[0])
    found, kind, body = agent.ask(path)
    assert (found, kind) == (status, "text/plain; charset=utf-8"), "text/plain, so that nothing in it is obeyed"
    assert part in body


def test_a_browser_gets_an_explanation_as_a_page(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(ticks[-1])
    status, kind, body = agent.ask("/explain/besteffort", Accept="text/html,*/*")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert '<a href="../">node-a</a>' in body and "BE may use" in body
    assert agent.ask("/explain/besteffort")[1].startswith("text/plain"), "a command gets it as text"


def test_front_page_links_what_there_is(agent: Agent) -> None:
    status, kind, body = agent.ask("/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert 'href="./metrics"' in body


def test_head_gives_headers_only_and_nothing_else_is_allowed(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(ticks[0])
    assert agent.ask("/state", "HEAD")[::2] == (200, "")
    assert [agent.ask("/state", method)[0] for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")] == [405] * 5


def test_a_silent_client_does_not_hold_up_others(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(ticks[0])
    with socket.create_connection(("127.0.0.1", agent.server.port)):
        assert agent.ask("/healthz")[0] == 200


def test_scrapes_while_ticks_are_published_are_all_whole(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(ticks[0])
    found: list[tuple[int, str]] = []

    def scrape() -> None:
        for _ in range(5):
            status, _, body = agent.ask("/state")
            found.append((status, json.loads(body)["node"]))

    readers = [threading.Thread(target=scrape) for _ in range(4)]
    for reader in readers:
        reader.start()
    for tick in ticks[1:60]:
        agent.tell(tick)
    for reader in readers:
        reader.join()
    assert found == [(200, "node-a")] * 20


def test_an_answer_that_fails_says_so_is_logged_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    def fail(path: str, query: object, accept: str) -> Answer:
        if path == "/boom":
            raise ZeroDivisionError("boom")
        return Answer(200, "text/plain", b"fine")

    server = Server("127.0.0.1", 0, fail)
    server.start()
    try:
        assert get(server, "/boom") == "a fault of the program itself: ZeroDivisionError; its log says more\n"
        assert get(server, "/") == "fine"
    finally:
        server.close()
    until(lambda: any(record.exc_info for record in caplog.records if record.levelname == "ERROR"), "it is logged")


def get(server: Server, path: str) -> str:
    connection = http.client.HTTPConnection(server.address, server.port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_a_taken_port_is_a_clear_error(agent: Agent) -> None:
    said = r"--listen = '127\.0\.0\.1:\d+': another process listens there; choose another"
    with pytest.raises(ConfigError, match=said):
        Server("127.0.0.1", agent.server.port, agent.endpoints.answer)


@pytest.mark.parametrize(("address", "port"), [("203.0.113.1", 0), ("127.0.0.1", 70000), ("no such host", 0)])
def test_an_address_that_cannot_be_had_is_a_clear_error(agent: Agent, address: str, port: int) -> None:
    with pytest.raises(ConfigError, match="choose another port"):
        Server(address, port, agent.endpoints.answer)


def test_a_closed_server_frees_its_port_and_close_before_start_is_fine(agent: Agent) -> None:
    first = Server("127.0.0.1", 0, agent.endpoints.answer)
    first.close()
    second = Server("127.0.0.1", first.port, agent.endpoints.answer)
    second.start()
    assert second.url == f"http://127.0.0.1:{first.port}"
    second.close()


def test_a_screen_is_as_large_as_it_was_asked_for(agent: Agent, ticks: tuple[Tick, ...]) -> None:
    agent.tell(ticks[0])
    wide, narrow = (agent.ask(f"/status?view=live&width={width}&height=30")[2] for width in (140, 60))
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines())) <= 140
    assert "\x1b[" not in wide
    assert "\x1b[" in agent.ask("/status?view=live&color=256")[2]
    found = json.loads(agent.ask("/status?output=json")[2])
    assert (found["status"], found["text"]) == ("enforcing", agent.ask("/status")[2])


@pytest.mark.parametrize("query", ["width=9", "width=1001", "width=-5", "width=a", "view=live&color=pink"])
def test_a_screen_of_no_terminal_is_refused_in_words(agent: Agent, ticks: tuple[Tick, ...], query: str) -> None:
    agent.tell(ticks[0])
    status, _, words = agent.ask(f"/status?{query}")
    assert (status, words.split()[0]) == (400, query.rpartition("&")[2].partition("=")[0])
