"""What the roles allow is what the programs ask for: no more, no less."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import cyaml
import pytest
from apibench import NODE, NoFiles, config, pod, until
from apiserver import ApiServer, Fault
from apiserver.users import User

from descheduler.metrics_sources import gather
from descheduler.snapshot import cluster as snapshots
from descheduler.snapshot.cluster import Watches
from koordlite.changes.eviction import EvictPod
from koordlite.changes.published import NodeResourceChange, TopologyChange
from koordlite.clock import RealClock
from koordlite.kube.client import access, reviews
from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.client.lease import Candidate, LeaseSettings
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.kubelet.http import KubeletHttp
from koordlite.kube.publish.events import COUNT_SECONDS, Event, Events
from koordlite.kube.publish.evictions import EvictionClient, eviction
from koordlite.kube.publish.node_metric import NodeMetricReport
from koordlite.kube.settings import ClusterSettings
from koordlite.model.errors import EvictionRefused
from koordlite.model.slo.settings import Colocation
from koordlite.model.topology import CPU, Topology
from koordlite.model.wire.objects import NodeObject, ObjectMeta
from koordlite.model.wire.reservation import ObjectReference

ROOT = pathlib.Path(__file__).parents[2]
SYSTEM = "koordlite-system"
Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""
ASKED_BY_KUBELET = {("", "nodes/configz", "get")}
"""The agent asks kubelet, and kubelet asks the API server whether it may: no request of the agent shows it."""


@dataclasses.dataclass(frozen=True)
class Scene:
    """A server that keeps to the rendered roles, and the products' access to it."""

    server: ApiServer
    objects: list[dict[str, Any]]
    folder: pathlib.Path

    def kubeconfig(self, account: str) -> pathlib.Path:
        """Of a service account, with nothing but its token."""
        path = self.folder / f"{account}.kubeconfig"
        path.write_text(self.server.kubeconfig(account))
        return path

    def api(self, account: str) -> Api:
        """Access as this service account."""
        return access.connect(str(self.kubeconfig(account)), None, user_agent="test")

    def asked(self, account: str) -> set[Right]:
        """Every right that was used; a refusal fails the test at once."""
        mine = [each for each in list(self.server.requests) if each.user == user(account).name and each.resource]
        assert [f"{each.verb} {each.resource}" for each in mine if each.status == 403] == []
        return {(each.group, each.resource, each.verb) for each in mine}

    def allowed(self, account: str) -> set[Right]:
        """Every right that bindings give to the account."""
        return {right for rule in rules(self.objects, account) for right in rights(rule)}


def user(account: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}")
    return User(f"system:serviceaccount:{SYSTEM}:{account}", groups)


def rules(objects: list[dict[str, Any]], account: str) -> Iterator[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}
    roles = {(each["kind"], each["metadata"]["name"]): each for each in objects if "Role" in each["kind"]}
    for item in objects:
        if item["kind"].endswith("RoleBinding") and subject in item["subjects"]:
            yield from roles[item["roleRef"]["kind"], item["roleRef"]["name"]]["rules"]


def rights(rule: dict[str, Any]) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield from ((group, resource, verb) for verb in rule["verbs"])


def test_no_role_has_a_wildcard(render):
    for item in render("overlays/enforce", *EVERYTHING):
        for rule in item.get("rules", ()) if "Role" in item["kind"] else ():
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]), item["metadata"]["name"]


AGENT_PARTS = ("evictions", "node-metric", "node-metric-create", "kubelet-proxy")
EVERYTHING = (*AGENT_PARTS, "descheduler-evict")


@pytest.fixture
def scene(render, tmp_path) -> Iterator[Scene]:
    """A cluster in which both products may do whatever some component of ours allows."""
    objects = [*render("overlays/enforce", *EVERYTHING)]
    tokens = {"koordlite": user("koordlite"), "descheduler": user("descheduler"), "reader": User("reader")}
    with ApiServer(tokens=tokens, streams=False) as server:
        crd = cyaml.safe_load((ROOT / "manifests/crds/noderesourcetopologies.yaml").read_text())
        nodemetrics = cyaml.safe_load((ROOT / "manifests/crds/koordinator/nodemetrics.yaml").read_text())
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}]
        server.objects.load(
            crd, *of_others(), nodemetrics, *namespaces, *[item for item in objects if item["kind"] == "Namespace"]
        )
        server.objects.load(*[item for item in objects if "rbac" in item["apiVersion"]])
        other = {**NODE, "metadata": {"name": "n2"}}
        settings = config(**{"colocation-config": '{"enable": true}'})
        server.objects.load(NODE, other, pod("a"), pod("b"), pod("c"), settings)
        yield Scene(server, objects, tmp_path)


def of_others() -> Iterator[dict[str, Any]]:
    """Kinds of Crane and Volcano, whose objects the descheduler reads where there are any."""
    of_crane = cyaml.safe_load((ROOT / "manifests/crds/crane/noderesourcetopologies.yaml").read_text())
    yield of_crane
    names = {
        "plural": "numatopologies",
        "singular": "numatopology",
        "kind": "Numatopology",
        "listKind": "NumatopologyList",
    }
    spec = {**of_crane["spec"], "group": "nodeinfo.volcano.sh", "names": names}
    yield {**of_crane, "metadata": {"name": "numatopologies.nodeinfo.volcano.sh"}, "spec": spec}


@contextlib.contextmanager
def watching(api: Api) -> Iterator[KubeCluster]:
    """The agent's view of the cluster, with its first answers."""
    clock = RealClock()
    made = KubeCluster(
        api,
        ClusterSettings(kubelet="off"),
        node_name="n1",
        files=NoFiles(),
        topology=Topology((CPU(0, 0, 0, 0),), ()),
        clock=clock,
        user_agent="test",
        events=Events(api, controller="c", instance="i", monotonic=clock.monotonic, wall=clock.wall),
    )
    made.start(10.0)
    try:
        yield made
    finally:
        made.stop()


def evicted(server: ApiServer, cluster: KubeCluster, name: str, *, uid: str = "") -> None:
    found = server.objects.get("Pod", name, "default", api_version="v1")
    assert found is not None
    with contextlib.suppress(EvictionRefused):
        cluster.evict(EvictPod("default", name, uid or found["metadata"]["uid"], "because"))


def counted_events(api: Api) -> None:
    """One event told, and the same again, so that its count is written."""
    at = [0.0]
    events = Events(api, controller="c", instance="i", monotonic=lambda: at[0], wall=lambda: 1.0)
    event = Event(regarding=ObjectReference(kind="Node", name="n1"), reason="R", note="n", action="A")
    for _ in range(2):
        events.write(event)
        at[0] += COUNT_SECONDS + 1
    events.write_due()


def as_the_agent(scene: Scene) -> None:
    """Everything an agent ever asks of the API server, the rare things too."""
    api = scene.api("koordlite")
    with watching(api) as cluster:
        until(lambda: cluster.view().node is not None)
        cluster.publish([NodeResourceChange("kubernetes.io/batch-cpu", 5000)])
        cluster.publish([TopologyChange("node.koordinator.sh/cpu-topology", "{}")])
        # Somebody else writes at the same moment.
        scene.server.faults.add(Fault(verb="patch", resource="noderesourcetopologies", status=409))
        cluster.publish([TopologyChange("node.koordinator.sh/cpu-topology", '{"detail":[]}')])
        evicted(scene.server, cluster, "a")
        evicted(scene.server, cluster, "b", uid="of-an-earlier-pod")
    counted_events(api)
    report = NodeMetricReport(api, "n1", create=True)
    owner = NodeObject(metadata=ObjectMeta(name="n1", uid="u"))
    for colocation in (Colocation(), Colocation(enable=True, metric_report_interval_seconds=90)):
        report.send({}, colocation, owner, patience_seconds=10.0)
    report.stop()
    assert report.error == ""
    reviews.Reviewer(api).verdict("reader", "get", "/metrics")
    with contextlib.suppress(ApiError):
        KubeletHttp(api, prefix="/api/v1/nodes/n1/proxy").config()


def test_the_agent_may_do_what_it_does_and_no_more(scene):
    as_the_agent(scene)
    allowed, asked = scene.allowed("koordlite"), scene.asked("koordlite")
    assert allowed - asked - ASKED_BY_KUBELET == set(), "superfluous"
    assert asked - allowed == set(), "missing"


def as_the_descheduler(scene: Scene) -> None:
    """The lists of a cycle, what measures, and the lease; `run` does the rest."""
    api = scene.api("descheduler")
    following = Watches(api, monotonic=time.monotonic)
    snapshots.read(api, before=snapshots.nothing_yet(), watches=following)
    until(lambda: sum(a.verb == "watch" and a.status == 200 for a in scene.server.requests) == len(snapshots.PATHS))
    following.stop()
    gather.metrics_api(api, [])
    settings = LeaseSettings(namespace=SYSTEM, name="descheduler", identity="me")
    candidate = Candidate(api, settings, monotonic=RealClock().monotonic, wall=RealClock().wall)
    candidate.step()
    candidate.step()
    reviews.Reviewer(api).verdict("reader", "get", "/metrics")
    wrong = eviction("default", "b", {"preconditions": {"uid": "of-an-earlier-pod"}})
    assert EvictionClient(api).send(wrong) == "replaced"
    counted_events(api)


def test_the_descheduler_may_do_what_it_does_and_no_more(scene):
    as_the_descheduler(scene)
    misplaced(scene)
    for _ in range(2):  # The second run finds the memory of the first.
        scene.server.objects.load(old_pod("stuck"))
        done = descheduled(scene)
        assert done.returncode == 0, done.stderr
    allowed, asked = scene.allowed("descheduler"), scene.asked("descheduler")
    assert allowed - asked == set(), f"superfluous; it said {done.stderr}"
    assert asked - allowed == set(), "missing"


def misplaced(scene: Scene) -> None:
    policy = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: old
    pluginConfig:
      - {name: DefaultEvictor, args: {nodeFit: false}}
      - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 60}}
    plugins:
      deschedule: {enabled: [PodLifeTime]}
"""
    (scene.folder / "policy.yaml").write_text(policy)


def old_pod(name: str) -> dict[str, Any]:
    """A pod of a ReplicaSet that has been there for years."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    made = pod(name, ownerReferences=[owner], creationTimestamp="2020-01-01T00:00:00Z")
    made["status"]["startTime"] = "2020-01-01T00:00:00Z"
    return made


def descheduled(scene: Scene) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "descheduler", "run", "--dry-run=false", f"--memory-namespace={SYSTEM}"]
    command += [f"--kubeconfig={scene.kubeconfig('descheduler')}", f"--policy={scene.folder / 'policy.yaml'}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_run_of_the_agent_is_refused_nothing(scene, tmp_path):
    """The real command, with every strategy enforced; `as_the_agent` asks piece by piece."""
    options = ["--sandbox", "small", "--kubeconfig", str(scene.kubeconfig("koordlite")), "--mode", "enforce"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("KUBE")}
    done = subprocess.run(
        [sys.executable, "-m", "koordlite", "run", *options, "--node-name", "n1", "-q", "--no-http", "--for", "15"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert ("", "nodes/status", "patch") in scene.asked("koordlite")


@pytest.mark.parametrize(
    ("overlay", "missing"),
    [("overlays/observe", {"nodes/status", "pods/eviction"}), ("overlays/enforce", {"pods/eviction"})],
)
def test_rights_to_write_come_with_what_needs_them(render, overlay, missing):
    objects = render(overlay)
    for account in ("koordlite", "descheduler"):
        allowed = {right[1] for rule in rules(objects, account) for right in rights(rule)}
        assert not missing & allowed
