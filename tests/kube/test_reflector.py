"""List and watch without a network and without a clock: what happened goes in, the next request comes out."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.kube.client import backoff
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.watch import reflector
from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.model.wire import objects

PODS = Source(
    name="pods",
    kind="pod",
    shape=objects.PodObject,
    paths=("/api/v1/pods",),
    query=(("fieldSelector", "spec.nodeName=n1"),),
)
TOPOLOGY = Source(
    name="topology", kind="nrt", shape=objects.NRTObject, paths=("/apis/t/v2/x", "/apis/t/v1/x"), optional=True
)


def _made(source: Source[Any] = PODS) -> Reflector[Any]:
    return Reflector(source, uniform=lambda low, high: low, streams=False)


def _raw(name: str, version: str, node: str = "n1") -> msgspec.Raw:
    meta = {"name": name, "namespace": "ns", "resourceVersion": version}
    return msgspec.Raw(json.dumps({"metadata": meta, "spec": {"nodeName": node}}).encode())


def _line(kind: str, name: str, version: str, node: str = "n1") -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), bytes(_raw(name, version, node)))


def _mark(version: str) -> bytes:
    return b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"%s"}}}' % version.encode()


GONE = (
    b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,'
    b'"message":"too old resource version: 1 (9)"}}'
)


def _listed(now: float = 0.0, version: str = "5") -> Reflector[Any]:
    made = _made()
    made.ask(now)
    made.on_list(version, [_raw("a", "3")], now)
    return made


def _watching(now: float = 0.0) -> Reflector[Any]:
    made = _listed(now)
    made.ask(now)
    made.on_watch(now)
    return made


def test_the_first_list_may_come_from_the_cache_and_the_watch_goes_on_from_it() -> None:
    made = _made()
    ask = made.ask(0.0)
    assert (ask.verb, ask.at, ask.paged) == ("list", 0.0, False)
    assert dict(ask.query) == {"fieldSelector": "spec.nodeName=n1", "resourceVersion": "0"}
    made.on_list("5", [_raw("a", "3")], 0.1)
    ask = made.ask(0.1)
    assert ask.verb == "watch"
    assert dict(ask.query) == {
        "fieldSelector": "spec.nodeName=n1",
        "watch": "true",
        "resourceVersion": "5",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "240",
    }
    assert ask.silence_seconds == 255


def test_events_change_what_is_held_and_move_the_version() -> None:
    made = _watching()
    made.on_line(_line("ADDED", "b", "6"), 1.0)
    made.on_line(_line("MODIFIED", "a", "7", node="n2"), 1.0)
    made.on_line(_line("DELETED", "b", "8"), 1.0)
    view = made.view(1.0)
    assert {key: pod.spec.node_name for key, pod in view.objects.items()} == {"ns/a": "n2"}
    assert view.state.resource_version == "8"
    made.on_end(2.0)
    assert dict(made.ask(2.0).query)["resourceVersion"] == "8"


def test_a_bookmark_moves_the_version_alone() -> None:
    made = _watching()
    made.on_line(_mark("99"), 1.0)
    view = made.view(1.0)
    assert (view.state.resource_version, list(view.objects)) == ("99", ["ns/a"])


@pytest.mark.parametrize(
    "line", [b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":7}}}', b'{"type":"NEW"}']
)
def test_what_is_not_understood_does_not_stop_the_stream(line: bytes) -> None:
    made = _watching()
    made.on_line(line, 1.0)
    assert made.view(1.0).state.resource_version == "5"


def test_a_poison_object_becomes_a_problem_and_the_stream_goes_on() -> None:
    made = _watching()
    made.on_line(b'{"type":"ADDED","object":{"metadata":{"name":"p","resourceVersion":"6"},"spec":5}}', 1.0)
    made.on_line(_line("ADDED", "b", "7"), 1.0)
    view = made.view(1.0)
    assert sorted(view.objects) == ["ns/a", "ns/b"]
    assert [problem.object for problem in view.problems] == ["pod/p"]
    assert view.state.resource_version == "7"


@pytest.mark.parametrize("failures", [0, 4])
def test_a_watch_that_is_too_old_reads_the_newest_list_at_once(failures: int) -> None:
    """Also after an outage, whose back-off is over with it; and it is no error."""
    made = _listed()
    for moment in range(failures):
        made.on_error(ApiUnreachable(111, "refused", "x"), moment)
    made.on_watch(10.0)
    with pytest.raises(ApiError) as caught:
        made.on_line(GONE, 10.0)
    made.on_error(caught.value, 10.0)
    ask = made.ask(10.0)
    assert (ask.verb, ask.paged, ask.at) == ("list", True, 10.0)
    assert "resourceVersion" not in dict(ask.query)
    assert list(made.view(10.0).objects) == ["ns/a"], "the last state stays meanwhile"
    assert made.view(10.0).state.error == ""
    made.on_list("20", [], 11.0)
    assert made.view(11.0).state.relists == 1


def test_410_again_and_again_is_asked_ever_more_slowly() -> None:
    made, now, times = _listed(), 0.0, []
    for _ in range(7):
        ask = made.ask(now)
        now = ask.at
        if ask.verb == "list":
            made.on_list("5", [], now)
            now = made.ask(now).at
        made.on_watch(now)
        made.on_error(ApiError(410, "Expired", "too old"), now)
        times.append(now)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 16


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_keeps_its_version_and_gets_its_pause(status: int) -> None:
    made = _listed()
    made.ask(0.0)
    made.on_error(ApiError(status, "", "busy", retry_after_seconds=17.0), 1.0)
    ask = made.ask(1.0)
    assert (ask.verb, ask.at) == ("watch", 18.0)


def test_a_server_cannot_send_us_away_for_good() -> None:
    assert backoff.pause(1, lambda low, high: high, retry_after=1e9) == 600.0


def test_failures_double_the_pause_up_to_half_a_minute() -> None:
    pauses = [backoff.pause(count, lambda low, high: low) for count in range(1, 9)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(0, 10_000), st.floats(1.0, 1.5), st.none() | st.floats(0, 1e6))
def test_a_pause_is_never_none_and_never_for_ever(failures: int, jitter: float, asked: float | None) -> None:
    assert 1.0 <= backoff.pause(failures, lambda low, high: jitter, retry_after=asked) <= 600.0


def test_after_many_failed_watches_the_list_is_read_again() -> None:
    made, now = _listed(), 0.0
    for _ in range(reflector.FAILURES_TO_RELIST):
        ask = made.ask(now)
        assert ask.verb == "watch"
        now = ask.at
        made.on_error(ApiUnreachable(111, "refused", "x"), now)
    assert made.ask(now).verb == "list"


def test_a_watch_that_is_ended_at_once_is_not_asked_for_in_a_hot_loop() -> None:
    made, now, starts = _listed(), 0.0, []
    for _ in range(5):
        ask = made.ask(now)
        if ask.verb == "list":
            break
        now = ask.at
        starts.append(now)
        made.on_watch(now)
        made.on_end(now)
    assert starts[-1] - starts[0] >= 1 + 2 + 4


def test_a_watch_that_tells_something_and_ends_is_asked_for_once_a_second_at_most() -> None:
    made = _watching(10.0)
    made.on_line(_mark("6"), 10.0)
    made.on_end(10.0)
    assert made.ask(10.0).at == 11.0


@pytest.mark.parametrize(
    ("then", "age"),
    [
        pytest.param(60.0, 0.0, id="an-open-watch-vouches-for-what-is-held"),
        pytest.param(80.0, 80.0, id="silence-beyond-the-time-of-a-bookmark-does-not"),
    ],
)
def test_age_of_an_open_watch(then: float, age: float) -> None:
    assert _watching().view(then).state.age_seconds == age


def test_age_grows_from_the_moment_the_watch_broke() -> None:
    made = _watching()
    made.on_error(ApiUnreachable(104, "reset", "x"), 30.0)
    assert made.view(50.0).state.age_seconds == 20.0
    assert made.view(50.0).state.error


def test_nothing_was_ever_confirmed_before_the_first_list() -> None:
    view = _made().view(9.0)
    assert (view.state.age_seconds, view.listed) == (None, False)


def test_without_bookmarks_watches_become_short() -> None:
    made = _watching()
    made.on_end(240.0)
    assert dict(made.ask(240.0).query)["timeoutSeconds"] == "50"


def test_a_watch_that_is_silent_to_its_end_proves_nothing_where_bookmarks_came_before() -> None:
    """A version of the future: the server was restored from a backup, says 200, and nothing more."""
    made = _watching()
    made.on_line(_mark("9"), 60.0)
    made.on_end(240.0)
    made.on_watch(241.0)
    made.on_end(541.0)
    assert made.view(541.0).state.age_seconds == 541.0 - 241.0
    ask = made.ask(541.0)
    assert (ask.verb, dict(ask.query)["resourceVersion"]) == ("list", "9")
    made.on_error(ApiError(504, "Timeout", "Too large resource version", retry_after_seconds=1), 544.0)
    ask = made.ask(544.0)
    assert (ask.verb, ask.at) == ("list", 545.0)
    assert "resourceVersion" not in dict(ask.query)


def test_only_a_refusal_for_want_of_rights_is_called_one() -> None:
    made = _watching()
    made.on_error(ApiError(403, "Forbidden", "no"), 1.0)
    assert made.view(1.0).state.denied
    made.on_error(ApiUnreachable(111, "refused", "x"), 2.0)
    assert not made.view(2.0).state.denied


def test_a_kind_the_server_does_not_have_is_looked_for_under_its_other_version() -> None:
    made = _made(TOPOLOGY)
    assert made.ask(0.0).path == "/apis/t/v2/x"
    made.on_error(ApiError(404, "", "404 page not found"), 0.0)
    ask = made.ask(0.0)
    assert (ask.path, ask.at) == ("/apis/t/v1/x", 0.0)
    made.on_error(ApiError(404, "", "404 page not found"), 0.0)
    ask = made.ask(0.0)
    assert (ask.path, ask.at) == ("/apis/t/v2/x", 1.0)
    state = made.view(0.0).state
    assert state.absent
    made.on_list("3", [], 2.0)
    assert not made.view(2.0).state.absent


def test_a_kind_every_server_has_is_not_forgotten_for_a_404() -> None:
    made = _watching()
    made.on_error(ApiError(404, "", "404 page not found"), 1.0)
    assert list(made.view(1.0).objects) == ["ns/a"]
    assert not made.view(1.0).state.absent


def test_our_own_write_is_seen_before_the_watch_tells_of_it() -> None:
    made = _watching()
    made.on_written(bytes(_raw("a", "9", node="written")))
    made.on_line(_line("MODIFIED", "a", "7", node="old"), 1.0)
    assert made.view(1.0).objects["ns/a"].spec.node_name == "written"
    assert made.view(1.0).state.resource_version == "7", "the watch itself has only come so far"


@pytest.mark.parametrize("line", [b"{}", b'{"error":"log in first"}', b'{"kind":"Status","code":500}'])
def test_json_that_is_no_event_is_refused(line: bytes) -> None:
    made = _watching()
    with pytest.raises(ApiError, match="no event") as caught:
        made.on_line(line, 1.0)
    made.on_error(caught.value, 1.0)
    ask = made.ask(1.0)
    assert (ask.verb, ask.at) == ("list", 2.0)
    assert list(made.view(1.0).objects) == ["ns/a"]


def test_a_list_without_a_version_is_refused_and_not_asked_for_in_a_hot_loop() -> None:
    made = _watching()
    with pytest.raises(ApiError, match="no resource version") as caught:
        made.on_list("", [], 1.0)
    made.on_error(caught.value, 1.0)
    assert made.ask(1.0).at > 1.0
    assert list(made.view(1.0).objects) == ["ns/a"], "the last state stays"


def test_a_line_that_is_no_json_is_refused_and_the_list_read_again() -> None:
    made = _watching()
    with pytest.raises(ApiError) as caught:
        made.on_line(b'{"type":"ADDED","object":{', 1.0)
    made.on_error(caught.value, 1.0)
    assert made.ask(1.0).verb == "list"


@given(st.lists(st.binary(max_size=60) | st.sampled_from([GONE, _mark("8"), _line("ADDED", "b", "9")]), max_size=10))
def test_any_line_is_taken_or_refused(lines: list[bytes]) -> None:
    made, now = _watching(), 0.0
    for line in lines:
        now += 1
        try:
            made.on_line(line, now)
        except ApiError as error:
            made.on_error(error, now)
            made.on_list("5", [], made.ask(now).at)
            made.on_watch(now)
    assert made.view(now).state.age_seconds == 0


STEP = st.sampled_from(["list", "watch", "line", "end", "410", "503", "cut", "403"])


@given(st.lists(STEP, max_size=80))
def test_whatever_happens_there_is_no_hot_loop(steps: list[str]) -> None:
    """Requests in 60 s stay below two a second, whatever the server does; time passes only by our own waiting."""
    made, now, asked = _made(), 0.0, 0
    errors: dict[str, ApiError | OSError] = {
        "410": ApiError(410, "Expired", "old"),
        "503": ApiError(503, "", "busy"),
        "403": ApiError(403, "Forbidden", "no"),
        "cut": ApiUnreachable(104, "reset", "x"),
    }
    for step in steps:
        ask = made.ask(now)
        now, asked = max(now, ask.at), asked + 1
        if step in errors:
            if ask.verb == "watch" and step != "403":
                made.on_watch(now)
            made.on_error(errors[step], now)
        elif ask.verb == "list":
            made.on_list("5", [], now)
        else:
            made.on_watch(now)
            if step == "line":
                made.on_line(_mark("6"), now)
            made.on_end(now)
    assert asked <= 2 * now + 3


def _end(version: str) -> bytes:
    notes = b'"annotations":{"k8s.io/initial-events-end":"true"}'
    return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s",%s}}}' % (version.encode(), notes)


def _streaming(now: float = 0.0) -> Reflector[Any]:
    made = Reflector(PODS, uniform=lambda low, high: low)
    made.ask(now)
    made.on_watch(now)
    return made


def test_a_list_comes_as_a_stream_and_the_watch_goes_on_in_it() -> None:
    made = Reflector(PODS, uniform=lambda low, high: low)
    ask = made.ask(0.0)
    assert (ask.verb, ask.streams, ask.at) == ("watch", True, 0.0)
    assert dict(ask.query) == {
        "fieldSelector": "spec.nodeName=n1",
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "resourceVersion": "0",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "240",
    }
    made.on_watch(0.0)
    made.on_line(_line("ADDED", "a", "3"), 0.1)
    assert (made.is_listing, made.view(0.1).listed, made.view(0.1).state.age_seconds) == (True, False, None)
    made.on_line(_end("5"), 0.2)
    view = made.view(0.2)
    assert (made.is_listing, view.listed, list(view.objects)) == (False, True, ["ns/a"])
    assert view.state.resource_version == "5"
    made.on_line(_line("MODIFIED", "a", "6", node="n2"), 1.0)
    made.on_end(20.0)
    assert made.view(20.0).state.relists == 0
    assert dict(made.ask(20.0).query)["resourceVersion"] == "6"


def test_what_a_streamed_list_does_not_name_is_gone_when_it_is_whole() -> None:
    made = _streaming()
    for line in (_line("ADDED", "a", "3"), _line("ADDED", "b", "4"), _end("5")):
        made.on_line(line, 0.1)
    with pytest.raises(ApiError) as caught:
        made.on_line(GONE, 1.0)
    made.on_error(caught.value, 1.0)
    ask = made.ask(1.0)
    assert (ask.streams, "resourceVersion" in dict(ask.query)) == (True, False)
    made.on_watch(1.0)
    before = made.view(1.0).objects["ns/b"]
    made.on_line(_line("ADDED", "b", "4"), 1.0)
    assert sorted(made.view(1.0).objects) == ["ns/a", "ns/b"], "until the list is whole the last state stays"
    made.on_line(_line("ADDED", "c", "7"), 1.0)
    made.on_line(_end("8"), 1.0)
    view = made.view(1.0)
    assert (sorted(view.objects), view.objects["ns/b"] is before) == (["ns/b", "ns/c"], True)
    assert view.state.relists == 1


def test_what_changes_while_a_list_streams_counts() -> None:
    made = _streaming()
    lines = (_line("ADDED", "a", "3"), _line("MODIFIED", "a", "6", node="n2"), _line("DELETED", "b", "7"), _end("8"))
    for line in lines:
        made.on_line(line, 0.1)
    assert {key: pod.spec.node_name for key, pod in made.view(0.1).objects.items()} == {"ns/a": "n2"}


def test_a_poison_object_in_a_streamed_list_costs_itself_until_it_is_right_or_gone() -> None:
    made = _streaming()
    made.on_line(b'{"type":"ADDED","object":{"metadata":{"name":"p","resourceVersion":"6"},"spec":5}}', 0.1)
    made.on_line(_line("ADDED", "a", "3"), 0.1)
    made.on_line(_end("7"), 0.1)
    assert [problem.object for problem in made.view(0.1).problems] == ["pod/p"]
    assert list(made.view(0.1).objects) == ["ns/a"]
    made.on_line(b'{"type":"DELETED","object":{"metadata":{"name":"p","resourceVersion":"8"}}}', 0.2)
    assert made.view(0.2).problems == ()


@pytest.mark.parametrize("status", [400, 403, 405, 422])
def test_a_server_that_refuses_streams_is_asked_for_lists_at_once_and_for_good(status: int) -> None:
    made = Reflector(PODS, uniform=lambda low, high: low)
    made.ask(0.0)
    made.on_error(ApiError(status, "Invalid", "sendInitialEvents is forbidden"), 0.0)
    ask = made.ask(0.0)
    assert (ask.verb, ask.at, made.view(0.0).state.error) == ("list", 0.0, "")
    made.on_list("5", [], 0.1)
    made.on_watch(0.2)
    with pytest.raises(ApiError) as caught:
        made.on_line(GONE, 10.0)
    made.on_error(caught.value, 10.0)
    assert made.ask(10.0).verb == "list"


def _cut(made: Reflector[Any], now: float) -> None:
    made.on_error(ApiUnreachable(110, "timed out", "x"), now)


@pytest.mark.parametrize("ending", [Reflector.on_end, _cut])
def test_a_streamed_list_without_an_end_is_tried_twice_and_then_a_list_is_asked_for(ending: Any) -> None:
    made, now, verbs = _streaming(), 0.0, []
    for _ in range(3):
        made.on_line(_line("ADDED", "a", "3"), now)
        ending(made, now)
        assert not made.view(now).listed
        ask = made.ask(now)
        assert ask.at > now, "after a pause"
        verbs.append((ask.verb, ask.streams))
        now = ask.at
        if ask.streams:
            made.on_watch(now)
        else:
            break
    assert verbs == [("watch", True), ("list", False)]


def test_a_server_that_cannot_be_reached_says_nothing_about_streams() -> None:
    made, now = Reflector(PODS, uniform=lambda low, high: low), 0.0
    for _ in range(5):
        ask = made.ask(now)
        assert ask.streams
        made.on_error(ApiUnreachable(111, "refused", "x"), ask.at)
        now = ask.at


def test_a_mark_without_a_version_ends_no_list() -> None:
    made = _streaming()
    with pytest.raises(ApiError, match="no resource version"):
        made.on_line(_end(""), 0.1)


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True)


@given(st.lists(NAMES, min_size=1, max_size=2))
def test_a_streamed_list_leaves_what_a_list_leaves(lists: list[list[str]]) -> None:
    whole, streamed = _made(), Reflector(PODS, uniform=lambda low, high: low)
    for number, names in enumerate(lists):
        items = {name: _raw(name, f"{number + 1}0") for name in names}
        whole.on_list(f"{number + 1}00", items.values(), 0.0)
        if number:
            with pytest.raises(ApiError) as caught:
                streamed.on_line(GONE, 0.0)
            streamed.on_error(caught.value, 0.0)
        streamed.ask(0.0)
        streamed.on_watch(0.0)
        for item in items.values():
            streamed.on_line(b'{"type":"ADDED","object":%s}' % bytes(item), 0.0)
        streamed.on_line(_end(f"{number + 1}00"), 0.0)
    assert streamed.view(0.0).objects == whole.view(0.0).objects
