"""Recordings of an API server as cases: they pass when the server answers so, and differ when it does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import runner
from tests.conformance.adapters import recordings as _adapter  # noqa: F401 - registers itself
from tests.conformance.apiserver_player import Player

MAPS = "/api/v1/namespaces/demo/configmaps"


def _interaction(number: int, title: str, request: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/json"}
    full = {"headers": {}, "body": None, **request}
    return {"n": number, "title": title, "note": "", "request": full, "response": {"headers": headers, **response}}


def _map(version: str, value: str) -> dict[str, Any]:
    meta = {"name": "a", "namespace": "demo", "uid": "$uid1", "resourceVersion": version, "creationTimestamp": "$time"}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"k": value}}


@pytest.fixture
def recording() -> list[dict[str, Any]]:
    """An object nobody created, a change of it under a watch, a conflict."""
    merge = {"content-type": "application/merge-patch+json"}
    change = {"method": "PATCH", "path": f"{MAPS}/a", "headers": merge, "body": {"data": {"k": "w"}}}
    stale = {"metadata": {"name": "a", "resourceVersion": "$rv01"}, "data": {}}
    conflict = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict"}
    why = "the object has been modified; please apply your changes to the latest version and try again"
    conflict |= {"message": f'Operation cannot be fulfilled on configmaps "a": {why}', "code": 409}
    conflict |= {"details": {"name": "a", "kind": "configmaps"}}
    query = "watch=true&resourceVersion=$rv01&timeoutSeconds=2"
    return [
        _interaction(1, "get", {"method": "GET", "path": f"{MAPS}/a"}, {"status": 200, "body": _map("$rv01", "v")}),
        _interaction(
            2,
            "watch",
            {"method": "GET", "path": f"{MAPS}?{query}"},
            {"status": 200, "stream": [{"type": "MODIFIED", "object": _map("$rv03", "w")}]},
        ),
        _interaction(3, "during: change", change, {"status": 200, "body": _map("$rv03", "w")}),
        _interaction(
            4, "stale", {"method": "PUT", "path": f"{MAPS}/a", "body": stale}, {"status": 409, "body": conflict}
        ),
    ]


def _play(recording: list[dict[str, Any]]) -> dict[int, list[str]]:
    return {interaction["n"]: differences for interaction, differences in Player(recording).play()}


def test_a_session_as_a_server_holds_it_has_no_differences(recording):
    assert _play(recording) == {1: [], 2: [], 3: [], 4: []}


@pytest.mark.parametrize(
    ("number", "path", "value"),
    [
        (4, ("status",), 200),
        (4, ("body", "reason"), "Invalid"),
        (4, ("body", "message"), "other words"),
        (3, ("body", "data"), {"k": "x"}),
        (3, ("body", "more"), 1),
        (2, ("stream",), []),
        (2, ("stream", 0, "type"), "ADDED"),
    ],
)
def test_what_a_server_would_not_answer_is_seen(recording, number, path, value):
    broken = copy.deepcopy(recording)
    place: Any = broken[number - 1]["response"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert _play(broken)[number]


def test_revisions_keep_the_order_of_the_recording(recording):
    recording[2]["response"]["body"]["metadata"]["resourceVersion"] = "$rv00"
    assert _play(recording)[3]


def test_the_runner_takes_a_session_as_one_file(recording, tmp_path: Path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(recording))
    assert runner.summary(runner.run(path)) == "4 passed, 0 failed, 0 deviating, 0 without adapter"
