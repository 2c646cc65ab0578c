"""Lists: pages, selectors, the past; and watches."""

from __future__ import annotations

import itertools
import json
import threading
import urllib.parse

import pytest
from apiserver.api import Api, Settings
from apiserver.cluster import Cluster
from apiserver.objects import Objects
from apiserver.requests import Request
from apiserver.store import Store

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def _names(reply):
    return [item["metadata"]["name"] for item in reply.body["items"]]


def test_an_exact_list_is_the_past(ask, config_map):
    config_map("a")
    version = config_map("b")["metadata"]["resourceVersion"]
    ask("DELETE", f"{MAPS}/a")
    ask.patch(f"{MAPS}/b", {"data": {"k": "later"}})
    past = ask("GET", f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert _names(past) == ["a", "b"]
    assert past.body["items"][1]["data"] == {"k": "v"}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=a", ["p1"]),
        ("app!=a", ["p2", "p3"]),
        ("app in (a,b)", ["p1", "p2"]),
        ("app notin (b)", ["p1", "p3"]),
        ("!app", ["p3"]),
        ("size>5", ["p1"]),
        ("size<5", ["p2"]),
        ("app,size>1", ["p1", "p2"]),
        (" app = b ", ["p2"]),
        ("app in ()", []),
        ("app in (,b)", ["p2"]),
    ],
)
def test_label_selectors(ask, pod, selector, names):
    pod("p1", labels={"app": "a", "size": "9"})
    pod("p2", labels={"app": "b", "size": "3"})
    pod("p3")
    from urllib.parse import quote

    assert _names(ask("GET", f"{PODS}?labelSelector={quote(selector)}")) == names


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("(a)", "found '(', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a in (b)", "found 'in', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a==(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("a<b", "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value"),
        ("-a", 'unable to parse requirement: key: Invalid value: "-a": name part must consist'),
        ("a=-b", 'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be'),
        ("a notin (c,-b)", 'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be'),
    ],
)
def test_a_label_selector_that_cannot_be_read_is_told_as_go_tells_it(ask, selector, message):
    reply = ask("GET", f"{PODS}?labelSelector={urllib.parse.quote(selector)}")
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert reply.body["message"].startswith(message)


def test_a_watch_begins_with_the_state_at_its_request(clock):
    cluster = Cluster(Store(), clock, seed=1)
    objects = Objects(cluster)
    objects.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    stream = Api(cluster, Settings(), threading.Event()).answer(Request.of("GET", f"{MAPS}?watch=true", {}))
    objects.remove("ConfigMap", "a", "default")
    events = itertools.islice(filter(None, stream.lines), 2)
    assert [json.loads(line)["type"] for line in events] == ["ADDED", "DELETED"]


def _watched(ask, clock, path, do, seconds=3):
    """Events of a watch during which `do` runs."""
    events = []
    thread = threading.Thread(target=lambda: events.extend(ask.watch(f"{path}&watch=true&timeoutSeconds={seconds}")))
    thread.start()
    while not ask.server.requests or ask.server.requests[-1].verb != "watch":
        threading.Event().wait(0.005)
    do()
    while thread.is_alive():
        thread.join(0.05)
        clock.advance(1)
    return [(event["type"], event["object"]) for event in events]


def test_a_watch_from_the_forgotten_past_is_one_error_line(ask, server, config_map):
    version = config_map("a")["metadata"]["resourceVersion"]
    config_map("b")
    server.forget_events()
    [event] = ask.watch(f"{MAPS}?watch=1&resourceVersion={version}")
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_history_is_bounded():
    from apiserver.store import Compacted, Store

    store = Store(history=10)
    for number in range(100):
        item = {"metadata": {"name": "a", "n": number}}
        store.write(("", "things"), ("", "a"), item)
    assert len(store.changes(("", "things"), 0)) <= 20
    with pytest.raises(Compacted):
        store.at(("", "things"), 101)
    assert store.at(("", "things"), 199)[0]["metadata"]["n"] == 98


def test_a_watch_that_is_too_slow_is_ended_rather_than_left_out_of_step():
    from apiserver.clocks import ManualClock
    from apiserver.cluster import Cluster
    from apiserver.resources import BUILT_IN
    from apiserver.store import Store
    from apiserver.watches import Watch, events

    store = Store(history=5)
    maps = next(each for each in BUILT_IN if each.plural == "configmaps")
    watch = Watch(maps, "v1", lambda _: True, store.revision, 60.0, bookmarks=False)
    stream = events(Cluster(store, ManualClock()), watch, lambda: False)
    item = {"kind": "ConfigMap", "metadata": {"name": "a"}}
    store.write(maps.key, ("", "a"), item)
    assert next(stream)[0] == "ADDED"
    for _ in range(100):
        store.write(maps.key, ("", "a"), item)
    assert list(stream) == []
