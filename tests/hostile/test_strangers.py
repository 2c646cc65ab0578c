"""Clients that nobody has let in: what they may take of a server before it is known who they are."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from handclock import HandClock
from self_signed import certificate

from koordlite.http.answers import Answer, plain
from koordlite.http.certificate import Certificate
from koordlite.http.connections import ADDRESS_STRANGERS, STRANGERS, Connections, Limits
from koordlite.http.guard import Guard
from koordlite.http.server import Server
from koordlite.kube.client import access
from koordlite.kube.client.reviews import ASKED_PER_SECOND, NO_SECONDS, YES_SECONDS, Reviewer

MIB = 1 << 20


def ask(_path: str, _query: Mapping[str, str], _accept: str) -> Answer:
    return plain(200, "ok")


class Certified:
    """The extender's listener as a Service has it: whoever asks has to show a certificate."""

    def __init__(self, folder: pathlib.Path, **limits: Any) -> None:
        own = certificate(folder, "server")
        self.client, self.taken = certificate(folder, "kube-scheduler"), list[int]()
        made = Certificate(*own, client_ca_file=self.client[0])
        self.server = Server(
            "127.0.0.1",
            0,
            ask,
            post=self._post,
            guard=Guard(exposed=True, clients=frozenset({"kube-scheduler"})),
            certificate=made,
            limits=Limits(128, 128, body_bytes=10 * MIB, all_body_bytes=30 * MIB, certified=True, **limits),
        )
        self.context = ssl.create_default_context(cafile=own[0])

    def _post(self, _path: str, body: bytes) -> Answer:
        self.taken.append(len(body))
        return plain(200, "judged")

    def ask(self) -> int:
        """A question of the scheduler."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(*self.client)
        connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=5)
        with contextlib.closing(connection):
            connection.request("POST", "/filter", b"{}")
            return connection.getresponse().status

    def stranger(self, source: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=5, source_address=(source, 0))


@pytest.fixture
def certified(tmp_path: pathlib.Path) -> Iterator[Certified]:
    made = Certified(tmp_path)
    made.server.start()
    yield made
    made.server.close()


@pytest.mark.parametrize("sources", [1, 40], ids=["of one address", "of many addresses"])
def test_two_hundred_idle_connections_without_a_certificate_do_not_keep_the_scheduler_out(
    certified: Certified, sources: int
) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            stack.enter_context(certified.stranger(f"127.0.1.{1 + number % sources}"))
        began = time.monotonic()
        assert certified.ask() == 200
        assert time.monotonic() - began < 2.0
        assert len(certified.server.connections._open) <= STRANGERS + 1


def test_a_body_without_a_certificate_is_never_read(certified: Certified) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        certified.stranger("127.0.1.1") as plain,
        contextlib.suppress(ssl.SSLError, ConnectionError),
        context.wrap_socket(plain) as secure,
    ):
        secure.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\n\r\n")
        secure.sendall(bytes(MIB))
        assert not secure.recv(1), "the handshake failed, and nothing is answered"
    assert certified.taken == []
    assert certified.ask() == 200


def test_whoever_may_not_ask_is_told_so_before_the_body_is_read() -> None:
    server = Server("127.0.0.1", 0, ask, post=lambda path, body: plain(200, ""), guard=Guard(exposed=True))
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as made:
            made.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n")
            assert made.recv(100).startswith(b"HTTP/1.1 401 ")
            assert b"" in iter(lambda: made.recv(4096), None), "and the connection is closed"
    finally:
        server.close()


def test_a_client_that_waits_to_be_told_is_told_once_it_may(certified: Certified) -> None:
    server = Server("127.0.0.1", 0, ask, post=lambda path, body: plain(200, body.decode()), guard=Guard(exposed=False))
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as made:
            made.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert made.recv(100).startswith(b"HTTP/1.1 100 ")
            made.sendall(b"hi")
            assert b"200 OK" in made.recv(1000)
    finally:
        server.close()


def test_bodies_of_all_requests_together_are_bounded() -> None:
    clients = [socket.socketpair() for _ in range(4)]
    kept = Connections(Limits(body_bytes=10, all_body_bytes=30, request_seconds=0.02))
    made = [kept.admit(one, "a") for one, _ in clients]
    assert [kept.count_body(each, 10) for each in made] == [True, True, True, False]
    kept.release(made[0])
    assert kept.count_body(made[3], 10)
    for each in made:
        kept.forget_body(each)
    assert kept._body_bytes == 0
    for one, other in clients:
        one.close()
        other.close()


def test_a_request_waits_for_room_that_another_leaves() -> None:
    one, other = socket.socketpair()
    with one, other:
        kept = Connections(Limits(body_bytes=10, all_body_bytes=10, request_seconds=10))
        first, second = kept.admit(one, "a"), kept.admit(other, "b")
        assert kept.count_body(first, 10)
        freed = threading.Timer(0.05, kept.forget_body, (first,))
        freed.start()
        assert kept.count_body(second, 10)
        freed.join()


def test_a_newcomer_takes_the_place_of_the_oldest_stranger_of_its_address() -> None:
    pairs = [socket.socketpair() for _ in range(ADDRESS_STRANGERS + 2)]
    kept = Connections(Limits(certified=True))
    friend = kept.admit(pairs[-1][0], "b")
    made = [kept.admit(one, "a") for one, _ in pairs[:-1]]
    assert list(kept._open) == [friend, *made[1:]]
    assert kept.certify(friend)
    for one, other in pairs:
        one.close()
        other.close()


class Cluster:
    """An API server that knows one token."""

    def __init__(self) -> None:
        self.asked = 0

    def request(self, _verb: str, path: str, *, body: Any, **_: object) -> access.Answer:
        self.asked += path.endswith("tokenreviews")
        good = body["spec"].get("token", "good").startswith("good")
        status = {"authenticated": good, "user": {"username": "prometheus"}, "allowed": True}
        return access.Answer(200, {}, json.dumps({"status": status}).encode())


@pytest.fixture
def reviewer() -> tuple[Cluster, HandClock, Callable[[str, str], str]]:
    cluster, clock = Cluster(), HandClock()
    made = Reviewer(cluster, monotonic=clock)  # type: ignore[arg-type]
    return cluster, clock, lambda token, address: made.verdict(token, "get", "/metrics", address).permission


def test_invented_tokens_of_one_address_lead_to_few_reviews_and_leave_others_theirs(reviewer: Any) -> None:
    cluster, clock, ask = reviewer
    for second in range(60):
        clock.now += 1.0
        for number in range(50):
            ask(f"invented-{second}-{number}", "10.0.0.66")
        assert ask(f"good-{second}", "10.0.0.1") == "allowed", "a token that Prometheus mounts anew is asked about"
    assert cluster.asked - 60 < 20


def test_a_good_token_does_not_wait_for_strangers_of_many_addresses(reviewer: Any) -> None:
    cluster, clock, ask = reviewer
    assert ask("good", "10.0.0.1") == "allowed"
    clock.now += YES_SECONDS
    for number in range(1000):
        ask(f"invented-{number}", f"10.1.{number // 250}.{number % 250}")
    assert cluster.asked <= 1 + ASKED_PER_SECOND
    assert ask("good", "10.0.0.1") == "allowed"


def test_who_mistyped_a_token_is_heard_again_soon(reviewer: Any) -> None:
    _, clock, ask = reviewer
    assert ask("mistyped", "10.0.0.1") == "unknown"
    assert ask("good", "10.0.0.1") == "allowed"
    clock.now += NO_SECONDS
    assert ask("mistyped", "10.0.0.1") == "unknown"
