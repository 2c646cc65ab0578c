"""What is installed runs on a real API server: each process with the token of its ServiceAccount, its roles as built.

The requests that the server saw are compared with `tests/manifests/requests`, by which `make test` judges roles without
a server. `RECORD_REQUESTS=1` writes them anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cyaml
import msgspec
import pytest
from control_plane import ControlPlane, control_plane, free_port
from realnode.waiting import until

from koordlite.apply.unlisted import entries as unlisted_entries
from koordlite.changes.published import NodeConditionChange
from koordlite.formulas.topology.other_writer import OURS
from koordlite.kube.client import access
from koordlite.kube.client.access import ApiError
from koordlite.kube.publish.publisher import STRATEGIC, of_node
from koordlite.model import keys
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.wire import objects
from koordlite.ports import ClusterView
from tests.manifests.access import CASES, RECORDED, Case, rights_used
from tests.manifests.conftest import MANIFESTS, rendered

pytestmark = pytest.mark.timeout(400)
CONTROLLERS = (
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "garbage-collector-controller",
    "namespace-controller",
)
KINDS = ("crds", "crds/koordinator", "crds/crane", "crds/podaffinity")
NODE = "n1"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {
        "schedulerName": "koordlite-scheduler",
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "registry.invalid/web:1", "resources": {"requests": {"cpu": "1"}}}],
    },
}
MERGE = "application/merge-patch+json"


class Cluster:
    """A control plane with our kinds, a Node that is ready, and what a case installs."""

    def __init__(self, plane: ControlPlane, folder: pathlib.Path) -> None:
        self.plane, self.folder, self.admin = plane, folder, plane.api()
        for kind in KINDS:
            plane.kubectl("apply", "-k", str(MANIFESTS / kind))
        numaadj = "resource.sop.huawei.com"
        self.put(
            foreign("nodeinfo.volcano.sh", "v1alpha1", "Numatopology", "numatopologies", "Cluster"),
            foreign(numaadj, "v1alpha1", "Oenuma", "oenumas", "Namespaced"),
            foreign(numaadj, "v1alpha1", "Whitelist", "whitelists", "Namespaced"),
        )
        for name in ("shop", "tcs", "volcano-system"):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        plane.kubectl("apply", "-k", str(MANIFESTS / "settings"))
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        self.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        self.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})
        with contextlib.suppress(ApiError):
            self.patch(f"/api/v1/nodes/{NODE}", {"spec": {"taints": None}})

    def put(self, *items: dict[str, Any]) -> None:
        """Apply objects as an administrator."""
        path = self.folder / f"objects-{free_port()}.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
        self.plane.kubectl("apply", "-f", str(path))

    def patch(self, path: str, body: dict[str, Any]) -> None:
        """Merge a patch as an administrator."""
        self.admin.request("PATCH", path, body=body, content_type=MERGE)

    def get(self, path: str) -> Any:
        """An object or a list, as an administrator sees it."""
        return json.loads(self.admin.request("GET", path).body)

    def install(self, case: Case) -> list[dict[str, Any]]:
        """Apply a case as kubectl does, all or nothing; its objects."""
        objects = list(rendered(case.folder, *case.components))
        self.put(*objects)
        return objects

    def token(self, case: Case) -> str:
        """A token of the account, bound to a pod on the node, as kubelet mounts it."""
        name = f"holder-{free_port()}"
        namespace, account = case.namespace, case.account
        spec = {"serviceAccountName": account, "nodeName": NODE, "containers": [{"name": "c", "image": "none"}]}
        meta = {"name": name, "namespace": namespace}
        self.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        bound = ("--bound-object-kind", "Pod", "--bound-object-name", name)
        return self.plane.token(account, namespace, *bound)


def foreign(group: str, version: str, kind: str, plural: str, scope: str) -> dict[str, Any]:
    """Somebody else's kind, which this project does not ship, with any content."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": group, "names": names, "scope": scope, "versions": [served]}
    meta = {"name": f"{plural}.{group}"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("plane")
    with control_plane(folder, controllers=CONTROLLERS, admission=True) as plane:
        yield Cluster(plane, folder)


def command(objects: Sequence[dict[str, Any]], kind: str, name: str, container: str = "") -> list[str]:
    """The command of a container as built."""
    (workload,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    spec = workload["spec"]["template"]["spec"]
    found = [*spec.get("initContainers", ()), *spec["containers"]]
    return list(next(each for each in found if container in ("", each["name"]))["command"])


def config_map(objects: Sequence[dict[str, Any]], name: str, key: str) -> str:
    """A file that a pod gets, by the name before the generated part."""
    (found,) = [
        each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"].rpartition("-")[0] == name
    ]
    return str(found["data"][key])


@contextlib.contextmanager
def process(
    cluster: Cluster, words: Sequence[str], token: str, *, listen: int = 0, ca: pathlib.Path | None = None
) -> Iterator[None]:
    """A command of a container as a process here, asking with this token; it listens on loopback only."""
    program, *options = words
    for name, text in PLACEHOLDERS.items():
        options = [each.replace(f"$({name})", text) for each in options]
    replaced = {
        "--listen": f"127.0.0.1:{listen or free_port()}",
        "--health-listen": f"127.0.0.1:{free_port()}",
        "--tls-cert-file": str(cluster.plane.certificate),
        "--tls-private-key-file": str(cluster.plane.folder / "serving.key"),
        "--client-ca-file": str(ca or cluster.plane.certificate),
    }
    parts = [(option, each) for each in options for option in (each.partition("=")[0],)]
    made = [f"{option}={replaced[option]}" if option in replaced else each for option, each in parts]
    command = [sys.executable, "-m", program, *made, f"--kubeconfig={cluster.plane.kubeconfig(token)}"]
    log = cluster.folder / f"{free_port()}.log"
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=file, cwd=cluster.folder, env=environment()) as running,
    ):
        try:
            yield
        finally:
            running.terminate()
            running.wait(30)
            print(log.read_text()[-3000:])


def environment() -> dict[str, str]:
    """That of a pod, which has no kubeconfig."""
    return {name: text for name, text in os.environ.items() if not name.startswith("KUBE")}


def judged(cluster: Cluster, case: Case, *, since: int) -> None:
    """No request of the account was refused, and each is one of those recorded."""
    mine = cluster.plane.requests(case.user)[since:]
    assert mine, "it asked for nothing"
    refused = [f"{each.verb} {each.uri}" for each in mine if each.status in (401, 403)]
    assert refused == []
    used = rights_used((each.verb, each.group, each.resource, each.namespace, each.name) for each in mine)
    if os.environ.get("RECORD_REQUESTS"):
        case.write(used)
    new = set(used) - set(case.recorded())
    assert not new, f"not in {RECORDED / case.name}.json: RECORD_REQUESTS=1 adds them, if they are meant"


def case(name: str) -> Case:
    return next(each for each in CASES if each.name == name)


def seen(cluster: Cluster, of: Case) -> int:
    """How many requests of the account the server has had."""
    return len(cluster.plane.requests(of.user))


def asked(cluster: Cluster, of: Case, since: int, verb: str, resource: str) -> Callable[[], bool]:
    """Whether the account has made such a request after the first `since` ones."""
    return lambda: any(
        (each.verb, each.resource) == (verb, resource) for each in cluster.plane.requests(of.user)[since:]
    )


_TRUST = cyaml.safe_load((MANIFESTS / "components/reservation-controller/placeholders.yaml").read_text())["data"]
PLACEHOLDERS = {
    "PLACEHOLDER_IMAGE": _TRUST["image"],
    "PLACEHOLDER_PRIORITY_CLASS": _TRUST["priorityClassName"],
}
"""What kubelet would put into the command."""
AGENT = ("--sandbox", "small", "--node-name", NODE, "--no-http", "--for", "100", "--speed", "10")


def agent_settings(folder: pathlib.Path, objects: Sequence[dict[str, Any]], **more: Any) -> pathlib.Path:
    """The agent's file as built, with sections of its own; there is no kubelet here."""
    document = cyaml.safe_load(config_map(objects, "koordlite", "koordlite.yaml"))
    path = folder / f"koordlite-{free_port()}.yaml"
    path.write_text(cyaml.safe_dump({**document, "cluster": {"kubelet": "off"}, **more}))
    return path


def run_agent(cluster: Cluster, token: str, settings: pathlib.Path, *more: str) -> None:
    command = [sys.executable, "-m", "koordlite", "run", "--quiet", *AGENT, *more, f"--config={settings}"]
    command += [f"--kubeconfig={cluster.plane.kubeconfig(token)}", f"--state-dir={cluster.folder / 'state'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=cluster.folder)
    assert done.returncode == 0, done.stderr
    print(done.stderr[-2000:])


def test_an_observing_agent(cluster: Cluster) -> None:
    of = case("agent-observe")
    objects, since = cluster.install(of), seen(cluster, of)
    run_agent(cluster, cluster.token(of), agent_settings(cluster.folder, objects))
    judged(cluster, of, since=since)


def test_an_enforcing_agent_that_puts_its_node_back(cluster: Cluster) -> None:
    of = case("agent-enforce")
    objects, since = cluster.install(of), seen(cluster, of)
    before = cluster.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
    publish = {"nodeMetric": "create", "nodeMetricSeconds": 30}
    publish |= dict.fromkeys(("craneTopology", "numatopology", "podAffinity"), "on")
    settings = agent_settings(
        cluster.folder, objects, publish=publish, cluster={"kubelet": "off", "affinityNamespace": "tcs"}
    )
    token = cluster.token(of)
    run_agent(cluster, token, settings, "--mode", "enforce", "--for", "340", "--on-stop", "restore")
    assert cluster.get(f"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{NODE}")["zones"]
    for path in (
        "slo.koordinator.sh/v1alpha1/nodemetrics",
        "topology.crane.io/v1alpha1/noderesourcetopologies",
        "numa.koordlite.io/v1alpha1/podaffinities",
    ):
        assert cluster.get(f"/apis/{path}/{NODE}")["metadata"]["name"] == NODE
    judged(cluster, of, since=since)
    assert asked(cluster, of, since, "patch", "nodes/status")()
    assert cluster.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"] == before


def test_the_condition_of_contention_comes_and_goes_beside_kubelets_which_the_agent_may_not_write(
    cluster: Cluster,
) -> None:
    of = case("agent-enforce")
    cluster.install(of)
    api = access.connect(str(cluster.plane.kubeconfig(cluster.token(of))), None, user_agent=OURS)
    path = f"/api/v1/nodes/{NODE}"

    def write(change: NodeConditionChange, *, dry: bool = False) -> str:
        query = (("dryRun", "All"),) if dry else ()
        try:
            api.request("PATCH", f"{path}/status", query=query, body=of_node([change], uid=""), content_type=STRATEGIC)
        except ApiError as error:
            return str(error)
        return ""

    def conditions() -> dict[str, dict[str, str]]:
        return {each["type"]: each for each in cluster.get(path)["status"]["conditions"]}

    def unlisted() -> set[str]:
        node = msgspec.convert(cluster.get(path), objects.WrittenNodeObject)
        view = ClusterView(node=node, pods=(), config=None, topology=None, kubelet=Kubelet())
        return {str(entry.place) for entry in unlisted_entries(view)}

    before = conditions()
    ready = NodeConditionChange("Ready", "False", "Why", "words")
    until(lambda: "writes CPUContention only" in write(ready, dry=True))
    for value, left in (("True", True), ("False", True), (None, False)):
        change = NodeConditionChange(keys.CPU_CONTENTION, value, "PodsContended", "words", "2026-01-02T03:04:05.678Z")
        assert write(change) == ""
        after = conditions()
        assert after.pop(keys.CPU_CONTENTION, {}).get("status") == value
        assert after == before
        assert (str(change.place) in unlisted()) is left, "what no journal lists is known by its writer"


def test_the_agent_of_another_node_is_refused(cluster: Cluster) -> None:
    of = case("agent-enforce")
    cluster.install(of)
    token = cluster.token(of)
    cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}})
    body = {"status": {"capacity": {"kubernetes.io/batch-cpu": "1"}, "allocatable": {"kubernetes.io/batch-cpu": "1"}}}
    api = cluster.plane.api(token)
    with pytest.raises(ApiError, match="writes about another one"):
        api.request("PATCH", "/api/v1/nodes/n2/status", body=body, content_type=MERGE)
    with pytest.raises(ApiError, match="the agent writes capacity, allocatable and conditions only"):
        api.request("PATCH", f"/api/v1/nodes/{NODE}/status", body={"status": {"phase": "x"}}, content_type=MERGE)
    api.request("PATCH", f"/api/v1/nodes/{NODE}/status", body=body, content_type=MERGE)


@pytest.mark.parametrize("name", ["descheduler-plan", "descheduler-evict"])
def test_the_descheduler(cluster: Cluster, name: str) -> None:
    of = case(name)
    objects, since = cluster.install(of), seen(cluster, of)
    policy = cluster.folder / f"{name}.yaml"
    policy.write_text(config_map(objects, "descheduler-policy", "policy.yaml"))
    words = [
        f"--policy={policy}" if each.startswith("--policy=") else each
        for each in command(objects, "Deployment", "descheduler")
        if not each.startswith("--state-dir")
    ]
    renewed = asked(cluster, of, since, "update", "leases")
    watching = asked(cluster, of, since, "watch", "pods")
    with process(cluster, words, cluster.token(of)):
        until(lambda: renewed() and watching())
        ask_for_metrics(cluster, of)
    judged(cluster, of, since=since)


def test_the_descheduler_of_the_cron_job(cluster: Cluster) -> None:
    of = case("descheduler-cron")
    objects, since = cluster.install(of), seen(cluster, of)
    (job,) = [each for each in objects if each["kind"] == "CronJob"]
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    policy = cluster.folder / "cron.yaml"
    policy.write_text(config_map(objects, "descheduler-policy", "policy.yaml"))
    words = [f"--policy={policy}" if each.startswith("--policy=") else each for each in container["command"][1:]]
    command = [
        sys.executable,
        "-m",
        "descheduler",
        *words,
        f"--kubeconfig={cluster.plane.kubeconfig(cluster.token(of))}",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=cluster.folder, env=environment()
    )
    assert done.returncode == 0, done.stderr
    judged(cluster, of, since=since)


def ask_for_metrics(cluster: Cluster, of: Case) -> None:
    """TokenReview and SubjectAccessReview, which each server makes when somebody asks it."""
    from koordlite.kube.client import reviews

    api = cluster.plane.api(cluster.token(of))
    reviews.Reviewer(api).verdict("somebody", "get", "/metrics")


def test_the_second_scheduler_with_the_extender_beside_it_places_a_pod(cluster: Cluster) -> None:
    of = case("scheduler-extender")
    objects, since = cluster.install(of), seen(cluster, of)
    token, port = cluster.token(of), free_port()
    configuration = cyaml.safe_load(config_map(objects, "koordlite-scheduler-configuration", "configuration.yaml"))
    (extender,) = configuration["extenders"]
    extender["urlPrefix"] = f"http://127.0.0.1:{port}"
    words = [*command(objects, "Deployment", "koordlite-scheduler", "extender"), "--crane"]
    renewed = asked(cluster, of, since, "update", "leases")
    with process(cluster, words, token, listen=port), cluster.plane.scheduler(configuration, token):
        until(asked(cluster, of, since, "watch", "reservations"))
        cluster.put(POD)
        until(lambda: cluster.get("/api/v1/namespaces/shop/pods/web")["spec"].get("nodeName") == NODE)
        until(renewed)
        ask_for_metrics(cluster, of)
    log = (cluster.plane.folder / "scheduler.log").read_text()
    assert "forbidden" not in log, [line for line in log.splitlines() if "forbidden" in line][:5]
    judged(cluster, of, since=since)


def test_the_clusters_own_scheduler_asks_the_extender_as_a_service(cluster: Cluster) -> None:
    """With the stanza that ships, over mutual TLS."""
    of = case("scheduler-service")
    objects, since = cluster.install(of), seen(cluster, of)
    port, certificate, key = free_port(), cluster.folder / "client.crt", cluster.folder / "client.key"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=kube-scheduler"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words.split(), *files], check=True, capture_output=True)
    stanza = cyaml.safe_load((MANIFESTS / "components/scheduler-service/extenders.yaml").read_text())
    (extender,) = stanza["extenders"]
    extender["urlPrefix"] = f"https://127.0.0.1:{port}"
    tls = {"caFile": cluster.plane.certificate, "certFile": certificate, "keyFile": key}
    assert extender["tlsConfig"].keys() == tls.keys()
    # So a pod waits where the extender is not asked: nothing else would show it.
    extender |= {"tlsConfig": {name: str(path) for name, path in tls.items()}, "ignorable": False}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    configuration = {**head, "leaderElection": {"leaderElect": False}, **stanza}
    options = [*command(objects, "Deployment", "koordlite-scheduler-extender"), "--crane"]
    with (
        process(cluster, options, cluster.token(of), listen=port, ca=certificate),
        cluster.plane.scheduler(configuration),
    ):
        until(asked(cluster, of, since, "watch", "reservations"))
        spec = {**POD["spec"], "schedulerName": "default-scheduler"}
        cluster.put({**POD, "metadata": {"name": "own", "namespace": "shop"}, "spec": spec})
        until(lambda: cluster.get("/api/v1/namespaces/shop/pods/own")["spec"].get("nodeName") == NODE)
        # The binding is the extender's.
        until(asked(cluster, of, since, "create", "pods/binding"))
        ask_for_metrics(cluster, of)
    judged(cluster, of, since=since)


def test_the_numa_page_of_the_cluster(cluster: Cluster) -> None:
    of = case("numa-api")
    objects, since = cluster.install(of), seen(cluster, of)
    with process(cluster, command(objects, "Deployment", "koordlite-numa-api"), cluster.token(of)):
        until(asked(cluster, of, since, "watch", "configmaps"))
        ask_for_metrics(cluster, of)
    judged(cluster, of, since=since)


def test_the_numa_exporter(cluster: Cluster) -> None:
    of = case("numa-exporter")
    objects, since = cluster.install(of), seen(cluster, of)
    settings = cluster.folder / "numa-exporter.yaml"
    settings.write_text(config_map(objects, "numa-exporter", "koordlite.yaml"))
    program, *_ = command(objects, "DaemonSet", "numa-exporter")
    words = [program, "numa-exporter", f"--config={settings}", "--sandbox=small", f"--node-name={NODE}"]
    with process(cluster, [*words, "--listen=127.0.0.1:0"], cluster.token(of)):
        until(asked(cluster, of, since, "watch", "pods"))
        until(asked(cluster, of, since, "watch", "noderesourcetopologies"))
    judged(cluster, of, since=since)


RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def test_the_reservation_controller(cluster: Cluster) -> None:
    of = case("reservation-controller")
    objects, since = cluster.install(of), seen(cluster, of)
    template = {"metadata": {"namespace": "shop"}, "spec": {"containers": POD["spec"]["containers"]}}
    owners = [{"labelSelector": {"matchLabels": {"app": "later"}}}]
    spec = {"template": template, "owners": owners, "ttl": "24h", "allocateOnce": True}
    reservation = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "spec": spec}

    def phase() -> str:
        return str(cluster.get(f"{RESERVATIONS}/r").get("status", {}).get("phase", ""))

    def placeholders() -> list[Any]:
        pods = cluster.get("/api/v1/pods")["items"]
        return [each for each in pods if "reservation.koordlite.io/uid" in each["metadata"].get("labels", {})]

    with process(cluster, command(objects, "Deployment", "koordlite-reservation-controller"), cluster.token(of)):
        until(asked(cluster, of, since, "watch", "reservations"))
        cluster.put({**reservation, "metadata": {"name": "r"}})
        until(placeholders)
        (placeholder,) = placeholders()
        meta = placeholder["metadata"]
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
        cluster.admin.request("POST", path, body={**binding, "target": {"kind": "Node", "name": NODE}})
        # As kubelet says that it has admitted the pod.
        started = {"startTime": "2026-01-01T00:00:00Z", "phase": "Running"}
        cluster.patch(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status", {"status": started})
        until(lambda: phase() == "Available")
        ask_for_metrics(cluster, of)
        owner = {"name": "later", "namespace": "shop", "labels": {"app": "later"}}
        cluster.put({**POD, "metadata": owner})
        refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}
        cluster.patch("/api/v1/namespaces/shop/pods/later/status", {"status": {"conditions": [refusal]}})
        until(lambda: not placeholders())
        until(asked(cluster, of, since, "patch", "pods/status"))
        cluster.admin.request("DELETE", f"{RESERVATIONS}/r")
        until(asked(cluster, of, since, "update", "leases"))
    judged(cluster, of, since=since)


AMOUNTS = {"requests": {"cpu": "1"}}
HOSTILE: dict[str, dict[str, Any]] = {
    "rights": {
        "metadata": {"namespace": "shop"},
        "spec": {
            "hostNetwork": True,
            "hostPID": True,
            "serviceAccountName": "default",
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
            "containers": [
                {
                    "name": "c",
                    "image": "evil.invalid/x",
                    "command": ["sh"],
                    "resources": AMOUNTS,
                    "securityContext": {"privileged": True},
                    "volumeMounts": [{"name": "host", "mountPath": "/host"}],
                }
            ],
        },
    },
    "system": {
        "metadata": {"namespace": "kube-system"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": AMOUNTS}]},
    },
    "ours": {
        "metadata": {"namespace": "koordlite-system"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": AMOUNTS}]},
    },
    "disguise": {
        "metadata": {
            "namespace": "shop",
            "labels": {"app": "web", "app.kubernetes.io/name": "koordlite-agent"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "u", "controller": True}],
            "finalizers": ["example.com/never"],
        },
        "spec": {
            "nodeName": NODE,
            "priorityClassName": "system-node-critical",
            "containers": [{"name": "c", "image": "x", "resources": AMOUNTS}],
        },
    },
    "unreadable": {
        "metadata": {"namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "many"}}}]},
    },
}


def test_a_tenant_who_may_reserve_gets_room_and_nothing_else(cluster: Cluster) -> None:
    of = case("reservation-controller")
    objects, since = cluster.install(of), seen(cluster, of)
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "tenant"}}
    rule = {"apiGroups": ["scheduling.koordinator.sh"], "resources": ["reservations"], "verbs": ["create", "delete"]}
    account = {"kind": "ServiceAccount", "name": "tenant", "namespace": "shop"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenant"}
    cluster.put(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant", "namespace": "shop"}},
        {**rbac, "kind": "ClusterRole", "rules": [rule]},
        {**rbac, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]},
    )
    tenant = cluster.plane.api(cluster.plane.token("tenant", "shop"))
    honest = {
        "metadata": {"namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": AMOUNTS}]},
    }
    head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation"}

    def placeholders() -> dict[str, Any]:
        """By name of the Reservation."""
        uids = {each["metadata"]["uid"]: each["metadata"]["name"] for each in cluster.get(RESERVATIONS)["items"]}
        key = "reservation.koordlite.io/uid"
        pods = [each for each in cluster.get("/api/v1/pods")["items"] if key in each["metadata"].get("labels", {})]
        return {uids.get(each["metadata"]["labels"][key], ""): each for each in pods}

    names = [*HOSTILE, "honest"]
    with process(cluster, command(objects, "Deployment", "koordlite-reservation-controller"), cluster.token(of)):
        until(asked(cluster, of, since, "watch", "reservations"))
        for name, template in {**HOSTILE, "honest": honest}.items():
            spec = {"owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}], "template": template}
            tenant.request("POST", RESERVATIONS, body={**head, "metadata": {"name": name}, "spec": spec})
        with pytest.raises(ApiError, match="403"):
            tenant.request("PATCH", f"{RESERVATIONS}/honest/status", body={"status": {}}, content_type=MERGE)
        until(lambda: {"rights", "disguise", "honest"} <= placeholders().keys())
        held = placeholders()
        assert held.keys() == {"rights", "disguise", "honest"}
        for name in ("rights", "disguise"):
            spec, meta = held[name]["spec"], held[name]["metadata"]
            (container,) = spec["containers"]
            assert container["image"] == PLACEHOLDERS["PLACEHOLDER_IMAGE"]
            assert not {"command", "args", "volumeMounts"} & container.keys()
            assert not container.get("securityContext", {}).get("privileged")
            assert not {"hostNetwork", "hostPID", "volumes", "nodeName"} & spec.keys()
            assert spec["automountServiceAccountToken"] is False
            assert spec["priorityClassName"] == PLACEHOLDERS["PLACEHOLDER_PRIORITY_CLASS"]
            assert meta["namespace"] == "shop"
            assert not {"app", "app.kubernetes.io/name"} & meta["labels"].keys()
            assert "finalizers" not in meta
            assert [each["kind"] for each in meta.get("ownerReferences", ())] in ([], ["Reservation"])
        for name in names:
            tenant.request("DELETE", f"{RESERVATIONS}/{name}")
        until(lambda: not placeholders())
    judged(cluster, of, since=since)
