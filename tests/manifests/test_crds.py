"""The custom kind we bring: a server takes its definition, shows its objects, and refuses what is not one."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import cyaml
import pytest
from apibench import NODE, config
from apiserver import ApiServer

from koordlite.kube.client import access
from koordlite.kube.client.access import ApiError
from tests.manifests import shipped

ROOT = pathlib.Path(__file__).parents[2]
CRD = cyaml.safe_load((ROOT / "manifests/crds/noderesourcetopologies.yaml").read_text())
FOLDER = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


@pytest.fixture
def server(tmp_path):
    with ApiServer() as running:
        running.objects.load(CRD, NODE)
        (tmp_path / "kubeconfig").write_text(running.kubeconfig())
        yield running


@pytest.fixture
def api(server, tmp_path):
    return access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test")


def test_every_version_has_a_schema_columns_and_the_short_name():
    for version in CRD["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        assert schema["properties"]["zones"]["items"]["required"] == ["name", "type"]
        assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Zones", "CPU", "Age"]
    assert CRD["spec"]["names"]["shortNames"] == ["node-res-topo"]


def test_exactly_one_version_is_stored():
    assert [each["name"] for each in CRD["spec"]["versions"] if each["storage"]] == ["v1alpha2"]


def test_what_the_agent_publishes_is_taken(server, api, tmp_path):
    settings = config(**{"colocation-config": '{"enable": true}'})
    server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}, settings)
    command = [sys.executable, "-m", "koordlite", "run", "--sandbox", "intel-2s-ht", "--node-name", "n1", "--no-http"]
    command += ["--kubeconfig", str(tmp_path / "kubeconfig"), "-q", "--mode", "enforce", "--for", "15"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    held = server.objects.get("NodeResourceTopology", "n1", api_version="topology.node.k8s.io/v1alpha2")
    assert held is not None
    assert [zone["name"] for zone in held["zones"]] == ["node-0", "node-1"]


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ({"type": "Node"}, "name: Required"),
        ({"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "capacity": "8"}]}, "allocatable"),
        ({"name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": "near"}]}, "costs"),
    ],
    ids=["a-zone-without-name", "a-resource-without-allocatable", "a-distance-in-words"],
)
def test_what_is_no_topology_is_refused(api, zone, words):
    head = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "x"}}
    with pytest.raises(ApiError, match="422") as refused:
        api.request("POST", FOLDER, body={**head, "zones": [zone]})
    assert words in str(refused.value)


def test_no_two_kinds_share_a_short_name() -> None:
    """`kubectl get nrt` took ours for Crane's."""
    taken: dict[str, str] = {}
    for item in shipped.objects().values():
        if item["kind"] == "CustomResourceDefinition":
            for name in item["spec"]["names"].get("shortNames", ()):
                assert taken.setdefault(name, item["metadata"]["name"]) == item["metadata"]["name"], name
    assert taken["nrt"] == "noderesourcetopologies.topology.crane.io"
