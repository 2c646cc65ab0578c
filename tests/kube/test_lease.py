"""One leader at a time, also when requests hang, get lost or arrive late."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handclock import HandClock
from hypothesis import given
from hypothesis import strategies as st
from tinyapi import Reply, Request, client, serving, status

from koordlite.kube.client.answers import Answer, ApiError, ApiUnreachable
from koordlite.kube.client.lease import Candidate, Election, LeaseSettings

MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/one"


class Leases:
    """The lease as a server keeps it: conflicts by resource version, MicroTime with six digits, no zero duration."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.before: Callable[[str], None] = lambda method: None
        self.after: Callable[[str], None] = lambda method: None

    def request(self, method: str, path: str, *, body: Any = None, timeout: tuple[float, float] = (3, 10)) -> Answer:
        """As `Api.request`."""
        self.timeout = timeout
        self.before(method)
        answer = self._answer(method, body)
        self.after(method)
        return answer

    def _answer(self, method: str, body: Any) -> Answer:
        if method == "GET":
            if self.lease is None:
                raise ApiError(404, "NotFound", "no lease", named="one")
            return self._shown()
        if (method == "POST") == (self.lease is not None):
            raise ApiError(409, "AlreadyExists", "it is there")
        if method == "PUT" and body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        spec = body["spec"]
        if not MICRO_TIME.fullmatch(spec["renewTime"]) or spec["leaseDurationSeconds"] < 1:
            raise ApiError(422, "Invalid", "bad spec")
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**body, "metadata": metadata}
        return self._shown()

    def _shown(self) -> Answer:
        return Answer(200, {}, json.dumps(self.lease).encode())

    @property
    def spec(self) -> dict[str, Any]:
        """spec of the lease."""
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


def _candidate(leases: Leases, now: Callable[[], float], identity: str = "me", **more: Any) -> Candidate:
    settings = LeaseSettings(namespace="ns", name="one", identity=identity, **more)
    return Candidate(leases, settings, monotonic=now, wall=lambda: 1e9, uniform=lambda low, high: low)  # type: ignore[arg-type]


def test_a_lease_nobody_made_is_taken() -> None:
    leases, clock = Leases(), HandClock()
    me = _candidate(leases, clock)
    assert not me.is_leader()
    assert me.step() == 2.0
    assert me.is_leader()
    assert leases.spec["holderIdentity"] == "me"
    assert leases.spec["leaseTransitions"] == 0
    assert leases.spec["renewTime"] == leases.spec["acquireTime"] == "2001-09-09T01:46:40.000000Z"


def test_leadership_ends_by_itself_when_nothing_is_renewed() -> None:
    clock = HandClock()
    me = _candidate(Leases(), clock)
    me.step()
    clock.now += 9.9
    assert me.is_leader()
    clock.now += 0.1
    assert not me.is_leader()


def test_another_waits_for_the_whole_duration_since_it_saw_the_last_renewal() -> None:
    leases, clock = Leases(), HandClock()
    me, other = _candidate(leases, clock), _candidate(leases, clock, "other")
    me.step()
    other.step()
    clock.now += 15.0
    other.step()
    assert not other.is_leader()
    clock.now += 0.1
    other.step()
    assert other.is_leader()
    assert leases.spec["leaseTransitions"] == 1


def test_times_written_by_another_clock_do_not_matter() -> None:
    leases, clock = Leases(), HandClock()
    me, other = _candidate(leases, clock), _candidate(leases, clock, "other")
    me.step()
    leases.spec["renewTime"] = "1970-01-01T00:00:00.000000Z"
    other.step()
    assert not other.is_leader()


def test_a_hung_renewal_never_makes_two_leaders() -> None:
    """The PUT hangs beyond every deadline and is then answered with success: that success is from long ago."""
    leases, clock = Leases(), HandClock()
    me, other = _candidate(leases, clock), _candidate(leases, clock, "other")
    me.step()
    other.step()
    both: list[float] = []

    def hang(method: str) -> None:
        if method != "PUT":
            return
        leases.after = lambda method: None
        for _ in range(300):
            clock.now += 0.1
            if round(clock.now * 10) % 20 == 0:
                other.step()
            if me.is_leader() and other.is_leader():
                both.append(clock.now)

    clock.now += 2.0
    leases.after = hang
    me.step()
    assert both == []
    assert not me.is_leader()
    assert other.is_leader()


def test_a_renewal_that_hangs_before_the_server_sees_it_meets_a_conflict() -> None:
    leases, clock = Leases(), HandClock()
    me, other = _candidate(leases, clock), _candidate(leases, clock, "other")
    me.step()
    other.step()

    def hang(method: str) -> None:
        leases.before = lambda method: None
        for _ in range(10):
            clock.now += 2.0
            other.step()

    clock.now += 2.0
    leases.before = hang
    me.step()
    assert (me.is_leader(), other.is_leader()) == (False, True)
    assert "Conflict" in me.standing.error


def test_a_request_gets_less_time_than_is_left_of_leadership() -> None:
    leases, clock = Leases(), HandClock()
    me = _candidate(leases, clock)
    me.step()
    clock.now += 8.0
    me.step()
    assert sum(leases.timeout) <= 2.0


def test_an_answer_that_got_lost_is_looked_up_before_the_next_write() -> None:
    leases, clock = Leases(), HandClock()
    me = _candidate(leases, clock)
    me.step()

    def lose(method: str) -> None:
        if method == "PUT":
            leases.after = lambda method: None
            raise ApiUnreachable(104, "reset", PATH)

    leases.after = lose
    clock.now += 2.0
    me.step()
    assert me.standing.error
    clock.now += 2.0
    me.step()
    assert me.is_leader()
    assert me.remaining_seconds() == 10.0
    assert leases.spec["leaseTransitions"] == 0


def test_a_lease_taken_from_us_ends_leadership_at_the_next_look() -> None:
    leases, clock = Leases(), HandClock()
    me = _candidate(leases, clock)
    me.step()
    leases.version += 1
    leases.lease = {
        "metadata": {"resourceVersion": str(leases.version)},
        "spec": {**leases.spec, "holderIdentity": "thief"},
    }
    me.step()
    me.step()
    assert not me.is_leader()
    assert me.standing.holder == "thief"


def test_release_lets_another_in_at_once_and_says_so_in_the_lease() -> None:
    leases, clock = Leases(), HandClock()
    me, other = _candidate(leases, clock), _candidate(leases, clock, "other")
    me.step()
    other.step()
    me.release()
    assert not me.is_leader()
    assert (leases.spec["holderIdentity"], leases.spec["leaseDurationSeconds"]) == ("", 1)
    other.step()
    assert other.is_leader()
    me.step()
    assert not me.is_leader(), "who released does not come back"


def test_release_of_a_lease_that_is_another_s_writes_nothing() -> None:
    leases, clock = Leases(), HandClock()
    me, other = _candidate(leases, clock), _candidate(leases, clock, "other")
    other.step()
    me.step()
    me.release()
    assert leases.spec["holderIdentity"] == "other"


def test_of_two_who_come_at_once_one_gets_it() -> None:
    leases, clock = Leases(), HandClock()
    me, other = _candidate(leases, clock), _candidate(leases, clock, "other")

    def both_look(method: str) -> None:
        leases.before = lambda method: None
        other.step()

    leases.before = both_look
    me.step()
    assert [me.is_leader(), other.is_leader()].count(True) == 1


def test_what_others_wrote_into_the_lease_stays() -> None:
    leases, clock = Leases(), HandClock()
    me = _candidate(leases, clock)
    leases.lease = {
        "metadata": {"name": "one", "resourceVersion": "0", "labels": {"a": "b"}},
        "spec": {"preferredHolder": "me"},
    }
    me.step()
    assert leases.lease["metadata"]["labels"] == {"a": "b"}
    assert leases.spec["preferredHolder"] == "me"


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"", "cannot be read"), (b"[]", "cannot be read"), (b"{", "cannot be read"), (b'{"metadata": 3}', "no Lease")],
)
def test_an_answer_that_is_no_lease_is_an_error_and_no_leadership(answer: bytes, error: str) -> None:
    leases, clock = Leases(), HandClock()
    me = _candidate(leases, clock)
    leases.request = lambda *_, **__: Answer(200, {}, answer)  # type: ignore[method-assign]
    me.step()
    assert not me.is_leader()
    assert error in me.standing.error


def test_unsafe_times_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_seconds < duration_seconds"):
        LeaseSettings(namespace="ns", name="one", identity="me", renew_seconds=15.0)


MOVE = st.tuples(
    st.sampled_from(["wait", "a", "b"]),
    st.sampled_from(["fine", "refused", "lost", "slow", "late"]),
    st.floats(0.1, 8.0),
)


@given(st.lists(MOVE, max_size=60))
def test_never_two_leaders(moves: list[tuple[str, str, float]]) -> None:
    leases, clock = Leases(), HandClock()
    candidates = {name: _candidate(leases, clock, name) for name in "ab"}

    def meddle(how: str, seconds: float) -> tuple[Callable[[str], None], Callable[[str], None]]:
        def before(method: str) -> None:
            if how == "refused":
                raise ApiError(503, "", "busy")
            if how == "slow":
                clock.now += 3 * seconds

        def after(method: str) -> None:
            if how == "lost":
                raise ApiUnreachable(104, "reset", PATH)
            if how == "late":
                clock.now += 3 * seconds

        return before, after

    for who, how, seconds in moves:
        if who == "wait":
            clock.now += seconds
        else:
            leases.before, leases.after = meddle(how, seconds)
            candidates[who].step()
        assert sum(candidate.is_leader() for candidate in candidates.values()) <= 1


def test_over_http_a_hung_put_ends_leadership_on_time_and_work_is_told(tmp_path: Path) -> None:
    leases, hang, told = Leases(), threading.Event(), list[tuple[str, float]]()
    release = threading.Event()

    def answer(request: Request) -> Reply:
        if request.method == "PUT" and hang.is_set():
            release.wait(10)
        try:
            return Reply(body=leases.request(request.method, request.path, body=request.body).body)
        except ApiError as error:
            return status(error.status, error.reason, error.message, **({"name": error.named} if error.named else {}))

    settings = LeaseSettings(
        namespace="ns", name="one", identity="me", duration_seconds=2, renew_seconds=0.6, retry_seconds=0.1
    )
    with serving(answer) as server:
        me = Candidate(client(tmp_path / "k", server.url), settings, monotonic=time.monotonic, wall=time.time)
        gained = threading.Event()
        lost = threading.Event()

        def on_lost() -> None:
            told.append(("lost", time.monotonic()))
            lost.set()

        election = Election(me, gained=gained.set, lost=on_lost)
        election.start()
        assert gained.wait(5)
        hang.set()
        hung_at = time.monotonic()
        assert lost.wait(5)
        assert not me.is_leader()
        assert told[0][1] - hung_at < 1.5
        release.set()
        election.stop()
    assert len(told) == 1


def test_stop_tells_work_before_the_lease_is_given_back(tmp_path: Path) -> None:
    leases, order = Leases(), list[str]()

    def answer(request: Request) -> Reply:
        if request.method == "PUT" and request.body["spec"]["holderIdentity"] == "":
            order.append("released")
        try:
            return Reply(body=leases.request(request.method, request.path, body=request.body).body)
        except ApiError as error:
            return status(error.status, error.reason, error.message, **({"name": error.named} if error.named else {}))

    with serving(answer) as server:
        settings = LeaseSettings(namespace="ns", name="one", identity="me")
        me = Candidate(client(tmp_path / "k", server.url), settings, monotonic=time.monotonic, wall=time.time)
        gained = threading.Event()
        election = Election(me, gained=gained.set, lost=lambda: order.append("lost"))
        election.start()
        assert gained.wait(5)
        election.stop()
    assert order == ["lost", "released"]
    assert leases.spec["holderIdentity"] == ""
