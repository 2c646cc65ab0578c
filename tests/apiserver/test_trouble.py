"""Faults on the wire, other programs, and the command."""

from __future__ import annotations

import http.client

import pytest
from apiserver import Fault

MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_fault_hits_as_often_as_it_says_and_only_what_it_says(ask, server):
    server.faults.add(Fault(verb="list", resource="configmaps", status=429, retry_after_seconds=7, times=2, skip=1))
    assert [ask("GET", MAPS).status for _ in range(4)] == [200, 429, 429, 200]
    server.faults.add(Fault(verb="create", resource="pods/eviction", status=503))
    assert ask("GET", MAPS).status == 200
    assert server.faults.waiting


def test_a_refusal_on_purpose_says_when_to_come_again(ask, server):
    server.faults.add(Fault(status=429, retry_after_seconds=7))
    reply = ask("GET", MAPS)
    assert (reply.headers["retry-after"], reply.body["details"]) == ("7", {"retryAfterSeconds": 7})


def test_a_dropped_answer_was_carried_out_all_the_same(ask, server):
    server.faults.add(Fault(verb="create", drop=True))
    with pytest.raises(http.client.RemoteDisconnected):
        ask("POST", MAPS, {"metadata": {"name": "a"}})
    assert ask("GET", f"{MAPS}/a").status == 200


@pytest.mark.parametrize(("half", "whole_lines"), [(False, 1), (True, 1)])
def test_a_cut_watch_ends_in_the_middle(ask, server, config_map, half, whole_lines):
    for name in "abc":
        config_map(name)
    server.faults.add(Fault(verb="watch", cut_after_lines=1, half_line=half))
    connection = ask.open("GET", f"{MAPS}?watch=1&timeoutSeconds=5")
    answer = connection.getresponse()
    with pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    answer.close()
    connection.close()
    lines = broken.value.partial.split(b"\n")
    assert sum(1 for line in lines if line.endswith(b"}}")) == whole_lines
    assert bool(lines[-1]) is half


def test_poison_is_an_object_that_has_the_wrong_types(ask, server, config_map):
    config_map("a")
    server.faults.add(Fault(verb="list", poison=True))
    items = ask("GET", MAPS).body["items"]
    assert [item["metadata"]["name"] for item in items] == ["a", "poison"]
    assert items[1]["spec"] == 7


def test_a_watch_may_be_told_that_it_is_too_old(ask, server):
    server.faults.add(Fault(verb="watch", gone=True))
    [event] = ask.watch(f"{MAPS}?watch=1")
    assert event["object"]["code"] == 410


def test_a_stop_ends_hanging_requests(ask, server):
    server.faults.add(Fault(hang=True))
    connection = ask.open("GET", MAPS)
    server.stop()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        connection.getresponse()
