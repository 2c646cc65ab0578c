"""Volcano's plugin numa-aware switched over REST: the text, the ConfigMap and its versions, and who may."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from apiserver import ApiServer
from apiserver.users import User
from hypothesis import given
from hypothesis import strategies as st

from koordlite.http.cluster_review import by_cluster
from koordlite.http.server import Server
from koordlite.kube.client import access
from koordlite.scheduler.numa_api import volcano_conf
from koordlite.scheduler.numa_api.envelope import RestGuard
from koordlite.scheduler.numa_api.service import NumaService
from koordlite.scheduler.numa_api.switches import NUMA_AWARE, Switches
from tests.scheduler.builders import Scene

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
MAPS = "/api/v1/namespaces/volcano-system/configmaps"
ONE = f"{MAPS}/volcano-scheduler-configmap"
PATH = "/rest/scheduling/v1/numaaware"


def test_opened_adds_the_plugin_to_the_last_tier_and_nothing_else():
    made = volcano_conf.opened(CONF)
    assert made == CONF.replace("binpack.weight: 10\n", "binpack.weight: 10\n  - name: numa-aware\n")
    assert volcano_conf.opened(made) == made
    assert volcano_conf.closed(made) == CONF


def test_closed_takes_the_settings_of_the_plugin_along():
    text = CONF.replace(
        "  - name: gang\n", "  - name: numa-aware\n    arguments:\n      weight: 10\n\n  - name: gang\n"
    )
    assert volcano_conf.closed(text) == CONF.replace("  - name: gang\n", "\n  - name: gang\n")
    assert volcano_conf.closed(CONF) == CONF


@pytest.mark.parametrize(
    "text",
    ["", "tiers: [{plugins: [{name: gang}]}]", "tiers:\n- plugins:\n  - name: a\n\t- b", "a: {", "- name: gang\n"],
)
def test_what_is_not_understood_is_not_edited(text: str):
    with pytest.raises(ValueError, match=r"no line|edited|no YAML"):
        volcano_conf.opened(text)


@pytest.mark.parametrize("text", ["tiers: [{plugins: [{name: numa-aware}]}]", CONF + "# - name: numa-aware\n"])
def test_a_plugin_in_another_form_is_open_and_is_left_to_people(text: str):
    assert volcano_conf.is_open(text)
    with pytest.raises(ValueError, match="by hand"):
        volcano_conf.closed(text)


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1), min_size=1), st.sampled_from(["", "  ", "    "]))
def test_open_and_close_are_inverse(tiers: list[list[str]], indent: str):
    lines = ["actions: x", "tiers:"]
    for tier in tiers:
        lines += [f"{indent}- plugins:", *(f"{indent}  - name: {name}" for name in tier)]
    text = "\n".join(lines) + "\n"
    made = volcano_conf.opened(text)
    assert yaml.safe_load(made)["tiers"][-1]["plugins"][-1] == {"name": "numa-aware"}
    assert volcano_conf.closed(made) == text


@given(st.text())
def test_any_text_is_edited_or_refused(text: str):
    for edit in (volcano_conf.opened, volcano_conf.closed):
        try:
            made = edit(text)
        except ValueError:
            continue
        assert made == text or volcano_conf.is_open(made) != volcano_conf.is_open(text)


TOKENS = {
    "server": User("server", groups=("system:masters",)),
    "may": User("may"),
    "reads": User("reads"),
}


class World:
    """An API server, and our server before it that lets who may `put /rest`."""

    def __init__(self, server: ApiServer, folder: pathlib.Path, *, may_switch: bool = True) -> None:
        (folder / "kubeconfig").write_text(server.kubeconfig("server"))
        self.api = access.connect(str(folder / "kubeconfig"), None, user_agent="test")
        scene = Scene()
        service = NumaService(
            scene.cluster,
            wall=lambda: 0.0,
            not_ready=lambda: "",
            switches=Switches(self.api),
            may_switch=may_switch,
        )
        guard = RestGuard(exposed=False, review=by_cluster(self.api))
        self.http = Server("127.0.0.1", 0, service.answer, change=service.put, guard=guard)
        self.http.start()

    def ask(self, method: str, body: Any = None, token: str = "", path: str = PATH) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.http.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def create(self, text: str = CONF) -> None:
        meta = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
        data = {"volcano-scheduler.conf": text, "other": "kept"}
        self.api.request("POST", MAPS, body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    def data(self) -> Any:
        return json.loads(self.api.request("GET", ONE).body)["data"]

    def version(self) -> str:
        return str(json.loads(self.api.request("GET", ONE).body)["metadata"]["resourceVersion"])


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    with ApiServer(seed=1, tokens=TOKENS) as server:
        made = World(server, tmp_path)
        made.api.request("POST", "/api/v1/namespaces", body=_object("Namespace", "v1", "volcano-system"))
        rules = [{"nonResourceURLs": ["/rest"], "verbs": ["put"]}]
        group = "/apis/rbac.authorization.k8s.io/v1"
        made.api.request(
            "POST",
            f"{group}/clusterroles",
            body=_object("ClusterRole", "rbac.authorization.k8s.io/v1", "r", rules=rules),
        )
        binding = {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "may"}],
        }
        made.api.request(
            "POST",
            f"{group}/clusterrolebindings",
            body=_object("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "b", **binding),
        )
        yield made
        made.http.close()


def _object(kind: str, version: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


def test_it_is_read_opened_and_closed_and_a_second_time_writes_nothing(world: World):
    world.create()
    assert world.ask("GET") == (200, {"code": 200, "msg": "success", "data": {"status": "close"}})
    assert world.ask("PUT", {"status": "open"}, "may")[1]["data"] == {"status": "open", "changed": True}
    assert world.data() == {"volcano-scheduler.conf": volcano_conf.opened(CONF), "other": "kept"}
    version = world.version()
    assert world.ask("PUT", {"status": "open"}, "may")[1]["data"] == {"status": "open", "changed": False}
    assert world.version() == version and world.ask("GET")[1]["data"] == {"status": "open"}
    assert world.ask("PUT", {"status": "close"}, "may")[0] == 200
    assert world.data()["volcano-scheduler.conf"] == CONF


@pytest.mark.parametrize(
    "body", [b"", b"open", {"status": "on"}, {"status": "OPEN"}, {}, {"status": "open", "x": 1}, b"\xff", ["open"]]
)
def test_anything_else_is_400_and_writes_nothing(world: World, body: Any):
    world.create()
    code, answer = world.ask("PUT", body, "may")
    assert (code, answer["code"], answer["msg"]) == (400, 400, "bad request")
    assert world.data()["volcano-scheduler.conf"] == CONF


@pytest.mark.parametrize(("token", "code"), [("", 401), ("unknown", 401), ("reads", 403)])
def test_only_who_may_put_switches(world: World, token: str, code: int):
    world.create()
    status, answer = world.ask("PUT", {"status": "open"}, token)
    assert status == answer["code"] == code and answer["data"]["reason"]
    assert world.data()["volcano-scheduler.conf"] == CONF


def test_it_is_read_only_unless_it_was_told_otherwise(tmp_path: pathlib.Path):
    with ApiServer(seed=1, tokens=TOKENS) as server:
        made = World(server, tmp_path, may_switch=False)
        code, answer = made.ask("PUT", {"status": "open"}, "server")
        made.http.close()
    assert code == 403 and "read-only" in answer["data"]["reason"]


def test_without_the_config_map_it_is_404(world: World):
    assert world.ask("GET")[0] == world.ask("PUT", {"status": "open"}, "may")[0] == 404
    assert world.ask("PUT", {"status": "open"}, "may", path="/rest/scheduling/v1/other")[0] == 404


def test_a_write_in_between_is_kept(world: World):
    world.create()
    once, opened = iter([True]), volcano_conf.opened

    def slow(text: str) -> str:
        if next(once, False):
            body = {"data": {"volcano-scheduler.conf": CONF.replace("gang", "drf")}}
            world.api.request("PATCH", ONE, body=body, content_type="application/merge-patch+json")
        return opened(text)

    changed = Switches(world.api).put(dataclasses.replace(NUMA_AWARE, opened=slow), "open")
    assert changed and world.data()["volcano-scheduler.conf"] == opened(CONF.replace("gang", "drf"))
