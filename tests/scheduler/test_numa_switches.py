"""Volcano's plugin numa-aware switched over REST: the text, the ConfigMap and its versions, and who may."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cyaml
import msgspec
import pytest
from apiserver import ApiServer
from hypothesis import given
from hypothesis import strategies as st

from koordlite.kube.client.answers import Answer
from koordlite.scheduler.numa_api import switches
from koordlite.scheduler.numa_api.switches import NUMA_AWARE, Switches
from tests.scheduler import numa_world
from tests.scheduler.numa_world import TOKENS, World, path_of

CONF = """\
# of the platform team
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
- plugins:
  - name: overcommit  # keep
  - name: binpack
    arguments:
      binpack.weight: 10
configurations:
- name: enqueue
  arguments:
    "overcommit-factor": 1.5
"""
PATH = "numaaware"


def test_opened_adds_the_plugin_to_the_last_tier_and_nothing_else():
    edited = switches.with_numa_aware(CONF)
    assert edited == CONF.replace("binpack.weight: 10\n", "binpack.weight: 10\n  - name: numa-aware\n")
    assert switches.with_numa_aware(edited) == edited
    assert switches.without_numa_aware(edited) == CONF


def test_closed_takes_the_settings_of_the_plugin_along():
    text = CONF.replace(
        "  - name: gang\n", "  - name: numa-aware\n    arguments:\n      weight: 10\n\n  - name: gang\n"
    )
    assert switches.without_numa_aware(text) == CONF.replace("  - name: gang\n", "\n  - name: gang\n")
    assert switches.without_numa_aware(CONF) == CONF


@pytest.mark.parametrize(
    "text",
    ["", "tiers: [{plugins: [{name: gang}]}]", "tiers:\n- plugins:\n  - name: a\n\t- b", "a: {", "- name: gang\n"],
)
def test_what_is_not_understood_is_not_edited(text: str):
    with pytest.raises(ValueError, match=r"no line|edited|no YAML"):
        switches.with_numa_aware(text)


@pytest.mark.parametrize("text", ["tiers: [{plugins: [{name: numa-aware}]}]", CONF + "# - name: numa-aware\n"])
def test_a_plugin_in_another_form_is_open_and_is_left_to_people(text: str):
    assert switches.has_numa_aware(text)
    with pytest.raises(ValueError, match="by hand"):
        switches.without_numa_aware(text)


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1), min_size=1), st.sampled_from(["", "  ", "    "]))
def test_open_and_close_are_inverse(tiers: list[list[str]], indent: str):
    lines = ["actions: x", "tiers:"]
    for tier in tiers:
        lines += [f"{indent}- plugins:", *(f"{indent}  - name: {name}" for name in tier)]
    text = "\n".join(lines) + "\n"
    edited = switches.with_numa_aware(text)
    assert cyaml.safe_load(edited)["tiers"][-1]["plugins"][-1] == {"name": "numa-aware"}
    assert switches.without_numa_aware(edited) == text


@given(st.text())
def test_any_text_is_edited_or_refused(text: str):
    for edit in (switches.with_numa_aware, switches.without_numa_aware):
        try:
            edited = edit(text)
        except ValueError:
            continue
        assert edited == text or switches.has_numa_aware(edited) != switches.has_numa_aware(text)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    with numa_world.world(tmp_path) as opened:
        yield opened


def test_it_is_read_opened_and_closed_and_a_second_time_writes_nothing(world: World):
    world.create(NUMA_AWARE, CONF)
    assert world.ask("GET", PATH) == (200, {"code": 200, "msg": "success", "data": {"status": "close"}})
    assert world.ask("PUT", PATH, {"status": "open"}, "may")[1]["data"] == {"status": "open", "changed": True}
    assert world.data(NUMA_AWARE) == {"volcano-scheduler.conf": switches.with_numa_aware(CONF), "other": "kept"}
    version = world.version(NUMA_AWARE)
    assert world.ask("PUT", PATH, {"status": "open"}, "may")[1]["data"] == {"status": "open", "changed": False}
    assert world.version(NUMA_AWARE) == version and world.ask("GET", PATH)[1]["data"] == {"status": "open"}
    assert world.ask("PUT", PATH, {"status": "close"}, "may")[0] == 200
    assert world.data(NUMA_AWARE)["volcano-scheduler.conf"] == CONF


@pytest.mark.parametrize(
    "body", [b"", b"open", {"status": "on"}, {"status": "OPEN"}, {}, {"status": "open", "x": 1}, b"\xff", ["open"]]
)
def test_anything_else_is_400_and_writes_nothing(world: World, body: Any):
    world.create(NUMA_AWARE, CONF)
    code, answer = world.ask("PUT", PATH, body, "may")
    assert (code, answer["code"], answer["msg"]) == (400, 400, "bad request")
    assert world.data(NUMA_AWARE)["volcano-scheduler.conf"] == CONF


@pytest.mark.parametrize(("token", "code"), [("", 401), ("unknown", 401), ("reads", 403)])
def test_only_who_may_put_switches(world: World, token: str, code: int):
    world.create(NUMA_AWARE, CONF)
    status, answer = world.ask("PUT", PATH, {"status": "open"}, token)
    assert status == answer["code"] == code and answer["data"]["reason"]
    assert world.data(NUMA_AWARE)["volcano-scheduler.conf"] == CONF


def test_a_config_map_that_cannot_be_read_is_named():
    api: Any = SimpleNamespace(request=lambda *_, **__: Answer(200, {}, b'{"data":[1]}', "/x"))
    with pytest.raises(switches.CannotEdit, match=r"^configmap volcano-system/\S+: the answer of /x cannot be read: "):
        Switches(api).status(NUMA_AWARE)


def test_it_is_read_only_unless_it_was_told_otherwise(tmp_path: pathlib.Path):
    with ApiServer(seed=1, tokens=TOKENS) as server:
        opened = World(server, tmp_path, may_switch=False)
        code, answer = opened.ask("PUT", PATH, {"status": "open"}, "server")
        opened.http.close()
    assert code == 403 and "read-only" in answer["data"]["reason"]


def test_without_the_config_map_it_is_404(world: World):
    assert world.ask("GET", PATH)[0] == world.ask("PUT", PATH, {"status": "open"}, "may")[0] == 404
    assert world.ask("PUT", "other", {"status": "open"}, "may")[0] == 404


def test_a_write_in_between_is_kept(world: World):
    world.create(NUMA_AWARE, CONF)
    once, edited = iter([True]), NUMA_AWARE.edited

    def slow(text: str, is_open: bool) -> str:
        if next(once, False):
            body = {"data": {"volcano-scheduler.conf": CONF.replace("gang", "drf")}}
            world.api.request("PATCH", path_of(NUMA_AWARE), body=body, content_type="application/merge-patch+json")
        return edited(text, is_open)

    changed = Switches(world.api).put(msgspec.structs.replace(NUMA_AWARE, edited=slow), "open")
    wanted = switches.with_numa_aware(CONF.replace("gang", "drf"))
    assert changed and world.data(NUMA_AWARE)["volcano-scheduler.conf"] == wanted
