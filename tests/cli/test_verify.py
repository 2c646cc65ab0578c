"""`koordlite verify`: every kind of rest is named with what to do; a clean cluster and machine have nothing left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import ApiServer

from koordlite.cli.traces import NAME_LABEL, NAMES, OBJECTS
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal
from koordlite.host.procfs import boot_id
from koordlite.model import keys
from tests.manifests.conftest import COMPONENTS, rendered

Ask = Callable[..., Any]
SPACE = "koordlite-system"
FIELDS = {"f:status": {"f:allocatable": {"f:kubernetes.io/batch-cpu": {}}}}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "kubernetes.io/batch-cpu": "3000"}},
}
REPORT = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "zones": []}


def written(item: dict[str, Any], manager: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object as a real API server shows it: with its writer."""
    wrote = {"manager": manager, "operation": "Update", "fieldsV1": fields or {"f:zones": {}}}
    return {**item, "metadata": {**item["metadata"], "managedFields": [wrote]}}


def made(api_version: str, kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


LEFT = {
    "Lease": made("coordination.k8s.io/v1", "Lease", "descheduler", namespace="jobs"),
    "memory": made("v1", "ConfigMap", "descheduler-memory", namespace="jobs"),
    "namespace": made("v1", "Namespace", SPACE),
    "role": made("rbac.authorization.k8s.io/v1", "ClusterRole", "koordlite", labels={NAME_LABEL: "koordlite"}),
    "placeholder": made("v1", "Pod", "room-1", namespace="jobs", labels={keys.RESERVATION_UID: "u"}),
    "report": written({**REPORT, "metadata": {"name": "n1"}}, "koordlite"),
    "offer": written(NODE, "koordlite", FIELDS),
    "pause": {**NODE, "metadata": {"name": "n1", "annotations": {"agent.koordlite.io/pause": "{}"}}, "status": {}},
}
OTHERS = (
    made("coordination.k8s.io/v1", "Lease", "kube-scheduler", namespace="kube-system"),
    made("v1", "ConfigMap", "settings", namespace="jobs"),
    made("rbac.authorization.k8s.io/v1", "ClusterRole", "admin"),
    made("v1", "Pod", "web", namespace="jobs", labels={NAME_LABEL: "descheduler"}),
    written({**REPORT, "metadata": {"name": "n2"}}, "nfd-master"),
    written(NODE, "koord-manager", FIELDS),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(seed=1) as running:
        crd = next(each for each in rendered("crds") if each["spec"]["group"] == "topology.node.k8s.io")
        running.objects.load(crd)
        (tmp_path / "kubeconfig").write_text(running.kubeconfig("admin"))
        yield running


@pytest.fixture
def verify(ask: Ask, tmp_path: Path) -> Ask:
    """The command for a machine of which only two folders of this test are known."""
    (tmp_path / "koordlite.yaml").write_text(
        f"agent: {{stateDir: {tmp_path / 'state'}}}\nrecord: {{folder: {tmp_path / 'record'}}}\n"
    )
    return lambda *words: ask("verify", "--config", tmp_path / "koordlite.yaml", *words)


def test_of_others_nothing_is_named(verify: Ask, server: ApiServer, tmp_path: Path) -> None:
    server.objects.load(*OTHERS)
    answer = verify("--kubeconfig", tmp_path / "kubeconfig")
    assert answer.code == 0, answer.out
    assert answer.out.splitlines() == [f"nothing left on this machine and {server.url}"]


def test_the_kubeconfig_of_the_environment_counts_where_the_node_is_named(
    verify: Ask, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert verify().out.splitlines() == ["nothing left on this machine"]
    monkeypatch.setenv("NODE_NAME", "n1")
    assert verify("--sandbox", "small").out.splitlines()[-1].endswith(f"on this machine and {server.url}")


@pytest.mark.parametrize("what", LEFT)
def test_each_rest_is_named_with_what_to_do(verify: Ask, server: ApiServer, tmp_path: Path, what: str) -> None:
    server.objects.load(LEFT[what])
    answer = verify("--kubeconfig", tmp_path / "kubeconfig", "-o", "json")
    document = json.loads(answer.out)
    assert answer.code == 1
    (rest,) = document["left"]
    assert LEFT[what]["metadata"]["name"] in rest["where"]
    assert rest["do"].startswith(("kubectl delete ", "kubectl annotate ", "koordlite restore"))


def test_the_journal_and_the_folders_of_the_agent_are_left(verify: Ask, tmp_path: Path) -> None:
    assert verify().code == 0
    (tmp_path / "record").mkdir()
    with Journal.open(str(tmp_path / "state"), boot_id=boot_id(RealFiles())):
        answer = verify()
    assert answer.code == 1
    assert "an agent runs (process " in answer.out
    assert [f"{tmp_path / name}: a folder of the agent" in answer.out for name in ("state", "record")] == [True, True]
    assert answer.out.splitlines()[-1] == "3 left"


def test_a_node_that_nothing_has_touched_has_nothing_left(verify: Ask) -> None:
    answer = verify("--sandbox", "intel-2s-ht", "--cluster", "configs/tour", "--node", "tour-a")
    assert (answer.code, answer.out) == (0, "nothing left on this machine\n")


def test_every_object_of_the_manifests_is_looked_for() -> None:
    """By its label, in a collection that is asked; not what goes with the namespace, nor Koordinator's classes."""
    names = [name for name in COMPONENTS if name not in ("enforce", "tenant-guard", "colocation-profile-v1beta1")]
    kinds = {path.rpartition("/")[2] for path in OBJECTS}
    rest = [
        (item["kind"], item["metadata"]["name"])
        for item in (*rendered("overlays/enforce", *names), *rendered("restore"))
        if item["metadata"].get("namespace") != SPACE
        and not item["metadata"]["name"].startswith("koord-")
        and item["kind"] not in ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Service", "NetworkPolicy")
        and not (
            f"{item['kind'].lower()}s".replace("policys", "policies").replace("classs", "classes") in kinds
            and item["metadata"].get("labels", {}).get(NAME_LABEL) in NAMES
        )
    ]
    assert rest == []
