"""The policies numadistance and podaffinity over REST: one document of the agents' ConfigMap, and who goes by it."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from apibench import until
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.slo import config
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.scheduler.numa_api import switches
from koordlite.scheduler.numa_api.switches import NUMA_DISTANCE, POD_AFFINITY
from koordlite.scheduler.watches import KEY, Watches
from tests.scheduler import numa_world
from tests.scheduler.numa_world import World

PATHS = {"numadistance": (NUMA_DISTANCE, "distance", False), "podaffinity": (POD_AFFINITY, "podAffinity", True)}
"""Policy, member of the document, and what holds without it."""
BOTH = pytest.mark.parametrize("path", PATHS)
STATUS = {True: "open", False: "close"}
TEXTS = st.text() | st.dictionaries(
    st.sampled_from(["distance", "Distance", "podAffinity", "other", "nodeConfigs"]),
    st.booleans() | st.none() | st.text(max_size=3) | st.lists(st.booleans(), max_size=2),
).map(json.dumps)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    with numa_world.world(tmp_path) as opened:
        yield opened


@BOTH
def test_it_is_switched_there_and_back_and_a_second_time_writes_nothing(world: World, path: str):
    policy, member, usual = PATHS[path]
    world.create(policy, None)
    assert world.ask("GET", path) == (200, {"code": 200, "msg": "success", "data": {"status": STATUS[usual]}})
    other = {"status": STATUS[not usual]}
    assert world.ask("PUT", path, other, "may")[1]["data"] == {**other, "changed": True}
    version, data = world.version(policy), world.data(policy)
    assert json.loads(data[KEY]) == {member: not usual} and data["other"] == "kept"
    assert world.ask("PUT", path, other, "may")[1]["data"] == {**other, "changed": False}
    assert world.version(policy) == version
    assert world.ask("PUT", path, {"status": STATUS[usual]}, "may")[1]["data"]["changed"] is True
    assert world.ask("GET", path)[1]["data"] == {"status": STATUS[usual]}


@BOTH
def test_only_who_shows_a_token_that_may_put_switches(world: World, path: str):
    policy = PATHS[path][0]
    world.create(policy, "{}")
    for token, code in (("", 401), ("unknown", 401), ("reads", 403)):
        assert world.ask("PUT", path, {"status": "open"}, token)[0] == code
    for wrong in ({"status": "on"}, {}, {"status": "open", "x": 1}, b"", ["open"]):
        assert world.ask("PUT", path, wrong, "may")[0] == 400
    assert world.data(policy)[KEY] == "{}"


@BOTH
def test_without_its_config_map_it_says_what_to_do(world: World, path: str):
    for method, token in (("GET", ""), ("PUT", "may")):
        code, answer = world.ask(method, path, {"status": "open"} if token else None, token)
        assert code == 404 and "apply manifests/settings" in answer["data"]["reason"]


@pytest.mark.parametrize("text", ["{", "[]", "", '{"distance": "yes"}', '{"distant": true}'])
def test_a_document_that_cannot_be_used_is_named_and_left_alone(world: World, text: str):
    world.create(NUMA_DISTANCE, text)
    for method, token in (("GET", ""), ("PUT", "may")):
        code, answer = world.ask(method, "numadistance", {"status": "open"} if token else None, token)
        assert code == 500 and KEY in answer["data"]["reason"]
    assert world.data(NUMA_DISTANCE)[KEY] == text


def test_the_extender_goes_by_what_was_put_and_by_the_defaults_without_it(world: World):
    cluster = world.scene.cluster
    world.create(NUMA_DISTANCE, None)
    watches = Watches(world.api, cluster, monotonic=time.monotonic)
    watches.start()
    try:
        until(lambda: cluster.policies == NUMAPolicy())
        world.ask("PUT", "numadistance", {"status": "open"}, "may")
        until(lambda: cluster.settings.numa_distance)
        world.api.request(
            "PATCH",
            numa_world.path_of(NUMA_DISTANCE),
            body={"data": {KEY: '{"distance": 7, "podAffinity": false}'}},
            content_type="application/merge-patch+json",
        )
        world.ask("PUT", "numadistance", {"status": "close"}, "may")
        assert cluster.settings.numa_distance, "the last good document holds, and a bad one is not edited"
        world.api.request("DELETE", numa_world.path_of(NUMA_DISTANCE))
        until(lambda: not cluster.settings.numa_distance)
        assert cluster.policies == NUMAPolicy()
    finally:
        watches.stop()


def test_without_the_right_to_read_the_switches_everything_else_is_answered(world: World):
    watches = Watches(world.as_user("reads"), world.scene.cluster, monotonic=time.monotonic)
    watches.start()
    try:
        until(lambda: watches.age() is not None)
        until(lambda: any(state.name == "config" and state.error for state in watches.states()))
        assert world.scene.cluster.policies is None
    finally:
        watches.stop()


@given(TEXTS, st.sampled_from(["distance", "pod_affinity"]), st.booleans())
def test_any_text_is_edited_in_one_member_or_refused(text: str, field: str, value: bool):
    try:
        edited = switches._ours(field).edited(text, value)
    except ValueError:
        return
    before, after = _held(text), _held(edited)
    assert getattr(after, field) is value
    assert {**_fields(before), field: value} == _fields(after)
    assert switches._ours(field).edited(edited, value) == edited


def _held(text: str) -> NUMAPolicy:
    return config.effective({KEY: text}, labels={}, annotations={}).numa_policy


def _fields(policy: NUMAPolicy) -> dict[str, Any]:
    return {"distance": policy.distance, "pod_affinity": policy.pod_affinity}
