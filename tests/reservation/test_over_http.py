"""The controller against an emulated API server: requests, their effects, and what is said in conditions and Events."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import cyaml
import pytest
from apibench import until
from apiserver import ApiServer

from koordlite.kube.client import access
from koordlite.kube.client.access import ApiError, ApiUnreachable
from koordlite.kube.publish.events import Event
from koordlite.model import keys, times
from koordlite.reservation import report
from koordlite.reservation.controller import Controller
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement.nodes import JudgeSettings as Judgement

ROOT = pathlib.Path(__file__).parents[2]
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
PODS = "/api/v1/namespaces/shop/pods"
WHOLE = {"cpu": "4", "memory": "2Gi"}


class Bench:
    """An API server with two nodes, and a controller that works on it; the test is scheduler and kubelet."""

    def __init__(self, server: ApiServer, folder: pathlib.Path) -> None:
        self.server, self.kubeconfig = server, folder / "kubeconfig"
        self.kubeconfig.write_text(server.kubeconfig("admin"))
        self.api = access.connect(str(self.kubeconfig), None, user_agent="test")
        self.events: list[Event] = []
        self.leads = True
        judge = Cluster(Judgement(), monotonic=time.monotonic)
        self.controller = Controller(
            self.api,
            PlaceholderSettings(),
            leads=lambda: self.leads,
            tell=self.events.append,
            judge=judge,
            feeds_judge=True,
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return json.loads(self.api.request(method, path, body=body, content_type=kind).body)

    def reserve(self, name: str = "r", **spec: Any) -> Any:
        container = {"name": "web", "image": "shop/web:1", "resources": {"requests": WHOLE}, "command": ["serve"]}
        template = {
            "metadata": {"namespace": "shop", "labels": {"app": "web", keys.QOS_CLASS: "LS"}},
            "spec": {"containers": [container], "serviceAccountName": "web", "tolerations": [{"operator": "Exists"}]},
        }
        head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}}
        owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
        return self.ask("POST", RESERVATIONS, {**head, "spec": {"template": template, "owners": owners, **spec}})

    def owner(self, name: str, cpu: str = "4", *, guaranteed: bool = False) -> Any:
        amounts = {"cpu": cpu, "memory": "1Gi"} if guaranteed else {"cpu": cpu}
        resources = {"requests": amounts, **({"limits": amounts} if guaranteed else {})}
        spec = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}
        self.ask("POST", PODS, obj)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "Insufficient cpu",
        }
        return self.ask("PATCH", f"{PODS}/{name}/status", {"status": {"conditions": [condition]}})

    def report(self, node: str, *cpus: str) -> None:
        """Kubelet aligns there, and each NUMA node of four CPUs has so many left."""
        zones = [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": free}],
            }
            for number, free in enumerate(cpus)
        ]
        attributes = [{"name": "topologyManagerPolicy", "value": "single-numa-node"}]
        head = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
        body = {**head, "metadata": {"name": node}, "zones": zones, "attributes": attributes, "topologyPolicies": []}
        self.ask("POST", "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies", body)

    def bind(self, name: str, node: str, **notes: str) -> None:
        """As scheduler and kubelet: bound, and admitted."""
        meta = {"name": name, "annotations": notes}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        self.api.request("POST", f"{PODS}/{name}/binding", body=body)
        self.ask(
            "PATCH", f"{PODS}/{name}/status", {"status": {"startTime": times.show(time.time()), "phase": "Running"}}
        )

    def status(self, name: str = "r") -> Any:
        return self.ask("GET", f"{RESERVATIONS}/{name}").get("status") or {}

    def phase(self, name: str = "r") -> str:
        return str(self.status(name).get("phase", ""))

    def pods(self) -> dict[str, Any]:
        return {pod["metadata"]["name"]: pod for pod in self.ask("GET", PODS)["items"]}

    def placeholders(self) -> dict[str, Any]:
        return {name: pod for name, pod in self.pods().items() if name.startswith("reservation-")}

    def placeholder(self) -> Any:
        until(lambda: len(self.placeholders()) == 1)
        return next(iter(self.placeholders().values()))

    def available(self, node: str = "a", **spec: Any) -> Any:
        """A Reservation that is available on the node."""
        resource = self.reserve(**spec)
        self.bind(self.placeholder()["metadata"]["name"], node)
        until(lambda: self.phase() == "Available")
        return resource

    def notes(self, reason: str) -> list[str]:
        return [event.note for event in self.events if event.reason == reason]


def node(name: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Iterator[Bench]:
    with ApiServer(seed=1) as server:
        definition = cyaml.safe_load((ROOT / "manifests/crds/koordinator/reservations.yaml").read_text())
        classes = cyaml.safe_load(
            (ROOT / "manifests/components/reservation-controller/priority-class.yaml").read_text()
        )
        spaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}}
            for each in ("shop", "default", "koordinator-system")
        ]
        reports = cyaml.safe_load((ROOT / "manifests/crds/noderesourcetopologies.yaml").read_text())
        server.objects.load(definition, reports, *spaces, node("a"), node("b"), classes)
        opened = Bench(server, tmp_path)
        opened.controller.start()
        yield opened
        opened.controller.stop()


def test_a_place_is_held_by_a_pod_without_rights_that_nothing_else_counts(bench: Bench) -> None:
    resource = bench.reserve(allocateOnce=False)
    pod = bench.placeholder()
    spec, meta = pod["spec"], pod["metadata"]
    assert spec["containers"][0]["resources"]["requests"] == WHOLE
    assert (spec["containers"][0]["image"], "command" in spec["containers"][0]) == ("registry.k8s.io/pause:3.10", False)
    assert spec["priorityClassName"] == "koordlite-reservation"
    assert spec["automountServiceAccountToken"] is False
    assert spec.get("serviceAccountName", "default") == "default"
    assert meta["labels"] == {keys.RESERVATION_UID: resource["metadata"]["uid"], keys.QOS_CLASS: "LS"}
    assert [owner["kind"] for owner in meta["ownerReferences"]] == ["Reservation"]
    assert bench.phase() != "Available", "no node has it yet"
    bench.bind(meta["name"], "a", **{keys.RESOURCE_STATUS: '{"cpuset":"2-5"}'})
    until(lambda: bench.phase() == "Available")
    status = bench.status()
    assert (status["nodeName"], status["allocatable"]) == ("a", WHOLE)
    reasons = [(c["type"], c["status"], c["reason"]) for c in status["conditions"]]
    assert reasons == [("Scheduled", "True", "Scheduled"), ("Ready", "True", "Available")]
    annotations = bench.ask("GET", f"{RESERVATIONS}/r")["metadata"]["annotations"]
    assert annotations == {keys.RESOURCE_STATUS: '{"cpuset":"2-5"}'}


def test_the_room_is_kept_for_the_owner_before_it_is_freed(bench: Bench) -> None:
    bench.available()
    first = next(iter(bench.placeholders()))
    bench.owner("web-1")
    until(lambda: not bench.placeholders())
    assert bench.pods()["web-1"]["status"]["nominatedNodeName"] == "a"
    order = [
        (each.verb, each.resource, each.name)
        for each in bench.server.requests
        if each.name in ("web-1", first) and each.verb in ("patch", "delete")
    ]
    assert order[-2:] == [("patch", "pods/status", "web-1"), ("delete", "pods", first)]
    bench.bind("web-1", "a")
    until(lambda: bench.phase() == "Succeeded")
    status = bench.status()
    assert [owner["name"] for owner in status["currentOwners"]] == ["web-1"]
    assert status["allocated"] == {"cpu": "4"}
    allocated = json.loads(bench.pods()["web-1"]["metadata"]["annotations"][keys.RESERVATION_ALLOCATED])
    assert allocated["name"] == "r"
    until(lambda: keys.HAND_OVER not in bench.ask("GET", f"{RESERVATIONS}/r")["metadata"].get("annotations", {}))


def test_what_an_owner_leaves_over_stays_held_and_what_it_returns_is_held_again(bench: Bench) -> None:
    bench.available(allocateOnce=False)
    bench.owner("web-1", cpu="1")
    until(lambda: [p["spec"]["containers"][0]["name"] for p in bench.placeholders().values()] == ["rest"])
    remainder = bench.placeholder()
    assert remainder["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "3", "memory": "2Gi"}
    assert remainder["status"]["nominatedNodeName"] == "a"
    bench.bind("web-1", "a")
    bench.bind(remainder["metadata"]["name"], "a")
    until(lambda: bench.status().get("allocated") == {"cpu": "1"})
    bench.api.request("DELETE", f"{PODS}/web-1", body={"gracePeriodSeconds": 0})
    until(lambda: len(bench.placeholders()) == 2)
    amounts = [p["spec"]["containers"][0]["resources"]["requests"] for p in bench.placeholders().values()]
    assert amounts == [{"cpu": "3", "memory": "2Gi"}, {"cpu": "1"}]
    assert bench.phase() == "Available"
    until(lambda: "currentOwners" not in bench.status())


def test_a_place_that_goes_is_looked_for_again(bench: Bench) -> None:
    bench.available()
    name = next(iter(bench.placeholders()))
    bench.api.request("DELETE", f"{PODS}/{name}", body={"gracePeriodSeconds": 0})
    until(lambda: bench.phase() == "Pending")
    assert bench.status()["conditions"][0]["message"] == "its placeholder on node a is gone"
    assert bench.notes("PlaceLost") == ["r: its placeholder on node a is gone; another place is looked for"]
    bench.bind(bench.placeholder()["metadata"]["name"], "b")
    until(lambda: bench.status().get("nodeName") == "b")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"ttl": "a while"}, "spec.ttl = 'a while'"),
        ({"allocatePolicy": "Generous"}, "there is no such policy; there are Aligned"),
        ({"preAllocation": True}, "only Koordinator's scheduler lays a place over running pods"),
        ({"template": {"spec": {"containers": [{"name": "c"}]}}}, "there is nothing to hold"),
        ({"template": {"spec": {"containers": "many"}}}, "spec.template"),
        ({"template": {}}, "the template has no container"),
        (
            {"owners": [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}]},
            "owners[0].labelSelector",
        ),
    ],
    ids=["ttl", "policy", "pre-allocation", "no-requests", "broken-template", "empty-template", "selector"],
)
def test_what_cannot_be_read_is_said_and_holds_nothing(bench: Bench, spec: Any, words: str) -> None:
    definition = bench.server.objects.get("CustomResourceDefinition", "reservations.scheduling.koordinator.sh")
    assert definition is not None
    # As Koordinator's own definition may be laxer than ours: the controller judges what is there.
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    schema["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    bench.ask(
        "PUT", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + definition["metadata"]["name"], definition
    )
    bench.reserve("bad", **spec)
    until(lambda: bench.status("bad").get("conditions"))
    result = bench.status("bad")
    assert words in result["conditions"][0]["message"]
    assert (result["phase"], result["conditions"][0]["reason"]) == ("Pending", "Unschedulable")
    until(lambda: bench.notes("InvalidReservation"))
    assert words in bench.notes("InvalidReservation")[0]
    assert not bench.placeholders()


def test_a_placeholder_that_the_server_refuses_is_said(bench: Bench) -> None:
    bench.api.request("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/koordlite-reservation")
    bench.reserve()
    until(lambda: bench.status().get("conditions"))
    assert "no PriorityClass with name koordlite-reservation" in bench.status()["conditions"][0]["message"]


def test_it_stands_back_while_koord_scheduler_runs(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.available()
    labels = {"koord-app": "koord-scheduler"}
    spec = {"nodeName": "b", "containers": [{"name": "c", "image": "x"}]}
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "koord", "labels": labels}, "spec": spec}
    for namespace in ("shop", "koordinator-system"):
        bench.ask("POST", f"/api/v1/namespaces/{namespace}/pods", theirs)
        bench.ask("PATCH", f"/api/v1/namespaces/{namespace}/pods/koord/status", {"status": {"phase": "Running"}})
    until(lambda: not bench.placeholders())
    assert bench.controller.rival == "pod koordinator-system/koord runs", "what a tenant labels is no sign"
    assert "koord-scheduler runs here (pod koordinator-system/koord runs)" in caplog.text
    assert bench.phase() == "Available", "its status is Koordinator's now"
    bench.api.request("DELETE", "/api/v1/namespaces/koordinator-system/pods/koord", body={"gracePeriodSeconds": 0})
    until(bench.placeholders, 20.0)


@pytest.mark.parametrize(("free", "begins"), [(("3", "1"), False), (("4", "0"), True)])
def test_no_place_is_freed_for_a_pod_that_no_numa_node_can_take(
    bench: Bench, free: tuple[str, str], begins: bool
) -> None:
    bench.report("a", *free)
    bench.available()  # Its template is not Guaranteed: of the NUMA nodes it has nothing.
    until(lambda: bench.controller._watches["topologies"].state().objects)
    bench.owner("web-1", guaranteed=True)
    until(lambda: any(pod.name == "web-1" and pod.refused() for pod in bench.controller.world.waiting.values()))
    bench.controller.round()
    assert bool(bench.notes("HandOver")) is begins
    document = report.one_of(bench.controller.world, "r", PlaceholderSettings(), time.time())
    assert document is not None
    why = "it is being handed over to it" if begins else "cannot align container"
    assert [each["why"] for each in document["waiting"]] == [why]
    assert len(bench.placeholders()) == (not begins)


def test_places_that_depend_on_no_other_are_asked_for_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.leads = False
    for number in range(4):
        bench.reserve(f"r{number}")
    until(lambda: len(bench.controller.world.reservations) == 4)
    pairs, request = threading.Barrier(2, timeout=20), bench.api.request

    def in_pairs(method: str, path: str, **options: Any) -> Any:
        """Answer no placeholder's request before there is a second one."""
        if method == "POST" and path == PODS and "reservation-" in str(options["body"]):
            pairs.wait()
        return request(method, path, **options)

    monkeypatch.setattr(bench.api, "request", in_pairs)
    bench.leads = True
    bench.controller.gained()
    until(lambda: len(bench.placeholders()) == 4)
    assert not pairs.broken


def test_while_the_server_is_away_the_log_has_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.leads = False
    bench.reserve()
    until(lambda: bench.controller.world.reservations)
    tries, request = [], bench.api.request

    def refused(method: str, path: str, **options: Any) -> Any:
        if method == "POST" and path == PODS:
            tries.append(path)
            raise ApiUnreachable(111, "connection refused", path)
        return request(method, path, **options)

    monkeypatch.setattr(bench.api, "request", refused)
    bench.leads = True
    for before in range(5):
        bench.controller.gained()  # Its next round, in its own thread: a second one would change the same state.
        until(lambda: len(tries) > before)  # noqa: B023
    until(lambda: "connection refused" in bench.controller.error)
    assert len([r for r in caplog.records if "connection refused" in r.message]) == 1


def test_a_lease_that_may_not_be_read_is_asked_for_once_a_minute_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, question = 0.0, []

    class Denying:
        def request(self, method: str, path: str) -> None:
            question.append(now)
            raise ApiError(403, "Forbidden", "may not get leases")

    controller = Controller(
        Denying(),  # type: ignore[arg-type]
        PlaceholderSettings(),
        leads=lambda: True,
        tell=lambda event: None,
        judge=Cluster(Judgement(), monotonic=lambda: now),
        feeds_judge=False,
        monotonic=lambda: now,
    )
    for now in range(0, 130, 10):  # noqa: B007
        controller._look_for_rival()
    assert question == [0, 60, 120]
    assert len([r for r in caplog.records if "judged by its pods only" in r.message]) == 1


def test_only_the_leader_writes(bench: Bench) -> None:
    bench.leads = False
    bench.reserve()
    until(lambda: bench.controller.world.reservations)
    bench.controller.round()
    assert not bench.placeholders()
    bench.leads = True
    bench.controller.gained()
    bench.placeholder()


def test_the_definition_refuses_what_koordinators_refuses(bench: Bench) -> None:
    for spec, words in (
        ({"allocatePolicy": "Generous"}, "Unsupported value"),
        ({"owners": []}, "owners"),
    ):
        with pytest.raises(ApiError, match="422") as refused:
            bench.reserve("bad", **spec)
        assert words in str(refused.value)


def test_the_command_lists_and_explains(bench: Bench) -> None:
    bench.available(ttl="1h")
    command = [sys.executable, "-m", "koordlite", "reservation"]
    where = ["--kubeconfig", str(bench.kubeconfig)]
    listed = subprocess.run([*command, "list", *where], capture_output=True, text=True, check=True).stdout
    assert listed.splitlines()[1].split()[:4] == ["r", "Available", "a", "cpu"]
    bench.owner("web-1", cpu="64")
    explained = subprocess.run([*command, "explain", "r", *where], capture_output=True, text=True, check=True).stdout
    assert "Reservation r: Available on node a" in explained
    assert "may take it: pods with app=web" in explained
    assert "waits: pod shop/web-1: Insufficient cpu by node" in explained
    names = subprocess.run([*command, "list", "-o", "name", *where], capture_output=True, text=True, check=True).stdout
    assert [name.partition("/")[0] for name in names.splitlines()] == ["reservation.scheduling.koordinator.sh"]
    output = subprocess.run([*command, "list", "-o", "json", *where], capture_output=True, text=True, check=True).stdout
    assert json.loads(output)["reservations"][0]["endsBy"] == "ttl"
    unknown = subprocess.run([*command, "explain", "x", *where], capture_output=True, text=True, check=False)
    assert (unknown.returncode, "there is no Reservation x; there are r" in unknown.stderr) == (2, True)
