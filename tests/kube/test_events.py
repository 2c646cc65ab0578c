"""Events: the same again is counted, floods are dropped, and the server's rules are kept."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from apibench import Bench
from hypothesis import given
from hypothesis import strategies as st
from tinyapi import Reply, Request, status

from koordlite.kube.publish.events import (
    BURST,
    COUNT_SECONDS,
    KEPT,
    SERIES_SECONDS,
    TEXTS,
    Aggregator,
    Event,
    Events,
)
from koordlite.model.wire.reservation import ObjectReference

POD = ObjectReference(kind="Pod", namespace="default", name="p", uid="u")


def _event(name: str = "p", note: str = "note") -> Event:
    about = ObjectReference(kind="Pod", namespace="ns", name=name, uid="u")
    return Event(regarding=about, reason="Evicted", note=note, action="Evict")


def test_the_first_is_told_at_once_and_the_same_again_is_counted() -> None:
    made = Aggregator()
    first = made.add(_event(), "n", 0.0)
    assert first is not None
    assert first.count == 1
    assert made.add(_event(), "n2", 1.0) is None
    (write,) = made.due(COUNT_SECONDS)
    assert (write.name, write.count) == ("n", 2)
    assert made.due(COUNT_SECONDS + 1) == []


def test_another_text_is_an_event_of_its_own() -> None:
    """The server refuses a change of the note."""
    made = Aggregator()
    writes = (made.add(_event(note=note), note, 1.0) for note in ("a", "b", "a"))
    assert [write and (write.count, write.event.note) for write in writes] == [(1, "a"), (1, "b"), None]
    (write,) = made.due(COUNT_SECONDS + 1)
    assert (write.event.note, write.count) == ("a", 2)


def test_a_text_that_is_never_the_same_is_counted_on_the_newest_at_last() -> None:
    made = Aggregator()
    writes = [made.add(_event(note=str(number)), str(number), 1.0) for number in range(TEXTS + 3)]
    assert [write is not None for write in writes] == [True] * TEXTS + [False] * 3
    (write,) = made.due(COUNT_SECONDS + 1)
    assert (write.name, write.count) == (str(TEXTS - 1), 4)
    later = made.add(_event(note="news"), "n", 2 + SERIES_SECONDS)
    assert later is not None
    assert later.count == 1


def test_after_a_long_silence_it_is_news_again() -> None:
    made = Aggregator()
    made.add(_event(), "n", 0.0)
    again = made.add(_event(), "n2", SERIES_SECONDS)
    assert again is not None
    assert again.count == 1


def test_a_flood_is_dropped_and_counted() -> None:
    made = Aggregator()
    told = [made.add(_event(f"p{number}"), "n", 0.0) for number in range(BURST + 5)]
    assert sum(write is not None for write in told) == BURST
    assert made.dropped == 5


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 30)), max_size=300))
def test_writes_never_come_faster_than_the_bucket_fills(arrivals: list[tuple[int, float]]) -> None:
    made, now, writes = Aggregator(), 0.0, 0
    for subject, pause in arrivals:
        now += pause
        writes += made.add(_event(f"p{subject}"), "n", now) is not None
        writes += len(made.due(now))
    assert writes <= BURST + now / 12 + 1


def test_memory_is_bounded() -> None:
    made = Aggregator()
    for number in range(KEPT + 50):
        made.add(_event(f"p{number}"), "n", number * 15.0)
    assert len(made._things) <= KEPT


def _events(api: Any) -> Events:
    return Events(api, controller="koordlite.io/agent", instance="n1", monotonic=lambda: 0.0, wall=lambda: 1e9)


def test_an_event_is_what_the_server_accepts(bench: Bench) -> None:
    api = bench.api()
    events = _events(api)
    events.write(Event(regarding=POD, reason="Evicted", note="ü" * 2000, action="Evict", type="Warning"))
    events.write(Event(regarding=ObjectReference(kind="Node", name="n1"), reason="R", note="x", action="A"))
    assert events.dropped == 0
    assert bench.asked("create", "events") == 2


def test_what_happens_again_is_accepted_whatever_its_text(bench: Bench) -> None:
    """A real server accepts a patch of the series and refuses one of the note."""
    moments = itertools.count(0, 100)
    events = Events(
        bench.api(), controller="koordlite.io/agent", instance="n1", monotonic=lambda: next(moments), wall=lambda: 1e9
    )
    for note in ("1 healthy pod", "2 healthy pods", "2 healthy pods"):
        events.write(Event(regarding=POD, reason="EvictionRefused", note=note, action="Evict", type="Warning"))
    assert events.dropped == 0
    assert (bench.asked("create", "events"), bench.asked("patch", "events")) == (2, 1)


def test_a_long_name_is_cut_to_what_an_event_may_be_called(serve: Any) -> None:
    server, api = serve(lambda request: Reply(201))
    _events(api).write(_event("p" * 253))
    name = server.requests[0].body["metadata"]["name"]
    assert len(name) <= 253
    assert name.startswith("ppp")


def test_notes_times_and_places_keep_the_rules(serve: Any) -> None:
    server, api = serve(lambda request: Reply())
    _events(api).write(
        Event(regarding=ObjectReference(kind="Node", name="n1"), reason="R", note="ü" * 2000, action="A")
    )
    (request,) = server.requests
    assert request.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert len(request.body["note"].encode()) == 1024
    assert re.fullmatch(r".*\.\d{6}Z", request.body["eventTime"])


def test_a_count_whose_event_is_over_is_told_anew(serve: Any) -> None:
    def answer(request: Request) -> Reply:
        return status(404, "NotFound", "x", name="x") if request.method == "PATCH" else Reply(201)

    server, api = serve(answer)
    now = 0.0
    events = Events(api, controller="c", instance="i", monotonic=lambda: now, wall=lambda: 1e9)
    events.write(_event())
    now = 100.0
    events.write(_event())
    assert [request.method for request in server.requests] == ["POST", "PATCH", "POST"]


@pytest.mark.parametrize("code", [403, 404, 409, 422, 500])
def test_a_refused_event_harms_nobody_and_is_counted(serve: Any, code: int) -> None:
    _, api = serve(lambda request: status(code, "", "no"))
    events = _events(api)
    events.write(_event())
    assert events.dropped == 1


def test_events_that_wait_are_written_before_the_end(serve: Any) -> None:
    server, api = serve(lambda request: Reply(201))
    events = _events(api)
    for number in range(3):
        events.tell(_event(f"p{number}"))
    events.start()
    events.stop(5.0)
    assert len(server.requests) == 3
