"""The command against an emulated API server: lists, watches, and a Binding that carries what was promised."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import cyaml
import pytest
from apibench import CRD, until
from apiserver import ApiServer, User

from koordlite.kube.client import access
from koordlite.model import keys
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import BindError, Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.promises import ApiBinder
from koordlite.scheduler.watches import Watches
from tests.scheduler import builders
from tests.scheduler.builders import as_object, pod

FREE = {"cpu": "8", "memory": "32Gi"}
CPUS = {"detail": [{"id": n, "core": n // 2, "socket": 0, "node": n // 8} for n in range(16)]}
API = "topology.node.k8s.io/v1alpha2"


class Api:
    """An API server with one node that our agent reports, and an extender that watches it."""

    def __init__(self, server: ApiServer, folder: pathlib.Path) -> None:
        self.server = server
        (folder / "kubeconfig").write_text(server.kubeconfig("admin"))
        self.api = access.connect(str(folder / "kubeconfig"), None, user_agent="test")
        self.cluster = Cluster(JudgeSettings(), monotonic=time.monotonic)
        self.watches = Watches(self.api, self.cluster, monotonic=time.monotonic, with_reservations=True)
        self.binder = ApiBinder(self.api)
        self.extender = Extender(self.cluster, wall=time.time, binder=self.binder, age=self.watches.age)

    def post(self, path: str, obj: Any) -> Any:
        return json.loads(self.api.request("POST", path, body=obj).body)

    def pod(self, name: str, **fields: Any) -> Any:
        obj = pod(name, "4", "1Gi", **fields)
        obj["spec"]["containers"][0]["image"] = "x"
        labels = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
        obj["metadata"] = {"name": name, "namespace": "default", "labels": labels if fields.get("lsr") else {}}
        return self.post("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **obj})

    def get(self, name: str) -> Any:
        return json.loads(self.api.request("GET", f"/api/v1/namespaces/default/pods/{name}").body)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[Api]:
    with ApiServer(seed=1) as server:
        opened = Api(server, tmp_path)
        opened.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", cyaml.safe_load(CRD.read_text()))
        node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}}
        opened.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})
        report = builders.report("a", FREE, FREE, policy="none", annotations={keys.CPU_TOPOLOGY: json.dumps(CPUS)})
        del report["metadata"]["resourceVersion"]
        until(lambda: _served(opened))
        opened.post(
            f"/apis/{API}/noderesourcetopologies", {"apiVersion": API, "kind": "NodeResourceTopology", **report}
        )
        opened.watches.start()
        until(lambda: opened.watches.age() is not None)
        until(lambda: opened.cluster.row("a") is not None)
        yield opened
        opened.watches.stop()


def _served(opened: Api) -> bool:
    try:
        opened.api.request("GET", f"/apis/{API}/noderesourcetopologies")
    except access.ApiError:
        return False
    return True


def bind(world: Api, opened: Any, node: str) -> str:
    meta = opened["metadata"]
    return world.extender.bind(meta["namespace"], meta["name"], meta["uid"], node)


def test_the_binding_carries_the_cpus_that_were_promised(world: Api) -> None:
    first, second = world.pod("first", lsr=True), world.pod("second", lsr=True)
    for obj in (first, second):
        assert world.extender.filter(as_object(obj), ["a"]) == (["a"], {})
        assert bind(world, obj, "a") == ""
    promised = [
        json.loads(world.get(name)["metadata"]["annotations"][keys.RESOURCE_STATUS]) for name in ("first", "second")
    ]
    assert [each["cpuset"] for each in promised] == ["0-3", "8-11"], "the emptier NUMA node, as Koordinator's default"
    until(lambda: (result := world.cluster.pod_of("default/second")) is not None and result.node == "a")
    assert len(world.cluster.assumed) == 0, "the watch has seen both"
    row = world.cluster.row("a")
    assert row is not None
    assert sorted(each.resource_status for each in row.pods) == sorted(
        json.dumps(p, separators=(",", ":")) for p in promised
    )


def test_a_pod_made_again_is_not_bound_by_the_old_request(world: Api) -> None:
    old = world.pod("p")
    world.api.request("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
    until(lambda: world.cluster.pod_of("default/p") is None)
    assert "not found" in bind(world, old, "a")
    new = world.pod("p")
    until(lambda: world.cluster.pod_of("default/p") is not None)
    assert "is another pod now" in bind(world, old, "a")
    assert "nodeName" not in world.get("p")["spec"]
    assert bind(world, new, "a") == ""
    until(lambda: (result := world.cluster.pod_of("default/p")) is not None and result.node == "a")
    assert bind(world, new, "a") == "", "a late answer is asked for again"


def test_the_binder_takes_a_conflict_on_the_same_node_for_success(world: Api) -> None:
    obj = world.pod("p")
    pod_object = builders.as_object(obj)
    pod = world.cluster.shapes.pod(pod_object)
    world.binder.bind(pod, "a", {})
    world.binder.bind(pod, "a", {})
    with pytest.raises(BindError) as error:
        world.binder.bind(pod, "elsewhere", {})
    assert error.value.is_certain


def test_a_server_that_went_away_leaves_the_reservation_until_more_is_known(world: Api) -> None:
    obj = world.pod("p", lsr=True)
    until(lambda: world.cluster.pod_of("default/p") is not None)
    world.server.stop()
    assert "the API server did not answer the binding" in bind(world, obj, "a")
    assumed = world.cluster.assumed.of_pod(obj["metadata"]["uid"])
    assert assumed is not None
    assert (assumed.stage, assumed.node) == ("binding", "a")
    assert world.extender.filter(as_object(obj), ["a"])[0] == ["a"], "it goes on answering from what it knows"


def test_crane_topologies_that_may_not_be_read_do_not_switch_it_off(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the rights as they are shipped: none for topology.crane.io."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    kinds = ["nodes", "pods", "noderesourcetopologies", "configmaps"]
    rules = [{"apiGroups": ["", "topology.node.k8s.io"], "resources": kinds, "verbs": ["list", "watch"]}]
    bound = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "r"}}
    bound |= {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "extender"}
    with ApiServer(tokens={"extender": User("extender")}) as server:
        crane = CRD.parent / "crane/noderesourcetopologies.yaml"
        server.objects.load(*cyaml.safe_load_all(CRD.read_text()), *cyaml.safe_load_all(crane.read_text()))
        server.objects.load({**role, "rules": rules}, {**bound, "subjects": [subject]})
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("extender"))
        api = access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test")
        cluster = Cluster(JudgeSettings(), monotonic=time.monotonic)
        watches = Watches(api, cluster, monotonic=time.monotonic, with_crane=True)
        watches.start()
        try:
            until(lambda: watches.age() is not None)
            assert "goes on without Crane's own topologies" in caplog.text
            assert [state.name for state in watches.states() if state.denied] == ["crane-topologies"]
        finally:
            watches.stop()


def test_a_promise_is_written_to_the_version_that_was_read_and_to_no_later_one(world: Api) -> None:
    world.pod("p", lsr=True)
    pod_ = world.binder.pod("default", "p")
    world.binder.promise(pod_, {keys.RESOURCE_STATUS: "{}"})
    assert world.get("p")["metadata"]["annotations"] == {keys.RESOURCE_STATUS: "{}"}
    with pytest.raises(BindError, match="modified"):
        world.binder.promise(pod_, {keys.RESOURCE_STATUS: '{"cpuset":"0"}'})
