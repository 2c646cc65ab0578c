"""Lists: pages, selectors, the past; and watches."""

from __future__ import annotations

import itertools
import json
import threading

import pytest
from apiserver.api import Api, Settings
from apiserver.cluster import Cluster
from apiserver.objects import Objects
from apiserver.requests import Request
from apiserver.store import Store

MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_watch_begins_with_the_state_at_its_request(clock):
    cluster = Cluster(Store(), clock, seed=1)
    objects = Objects(cluster)
    objects.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    stream = Api(cluster, Settings(), threading.Event()).answer(Request.of("GET", f"{MAPS}?watch=true", {}))
    objects.remove("ConfigMap", "a", "default")
    events = itertools.islice(filter(None, stream.lines), 2)
    assert [json.loads(line)["type"] for line in events] == ["ADDED", "DELETED"]


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
