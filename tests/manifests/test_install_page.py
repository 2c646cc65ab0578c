"""The commands of docs/install.md do what the page says, against the tests' own API server."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver import ApiServer

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "install.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPERATOR = [("servicemonitors", "ServiceMonitor"), ("prometheusrules", "PrometheusRule")]
"""Kinds that the operator of Prometheus brings."""


def commands() -> list[str]:
    """Every line of the sh blocks, in the page's order."""
    return [line for block in _BLOCK.findall(PAGE.read_text(encoding="utf-8")) for line in block.splitlines()]


def operator_kind(plural: str, kind: str) -> dict[str, Any]:
    open_schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": open_schema}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return head | {"metadata": {"name": f"{plural}.monitoring.coreos.com"}, "spec": spec}


class Cluster:
    """The tests' API server, with somebody who says that workloads are ready and that namespaces have ended."""

    def __init__(self, server: ApiServer, folder: pathlib.Path) -> None:
        self.server, self._folder = server, folder
        (folder / "kubeconfig").write_text(server.kubeconfig())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._roll_out, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)

    def run(self, line: str) -> str:
        """One command of the page; it must succeed."""
        words = shlex.split(line)
        assert words[0] == "kubectl"
        # The server has no OpenAPI document, by which kubectl checks fields before it sends them.
        more = ["--validate=false"] if words[1] == "apply" else []
        kubectl = shutil.which("kubectl") or pytest.skip("kubectl is not installed")
        done = subprocess.run(
            [kubectl, *words[1:], *more],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=60,
            env={**os.environ, "KUBECONFIG": str(self._folder / "kubeconfig")},
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def names(self, kind: str, api_version: str) -> set[str]:
        """Of all objects of a kind."""
        return {item["metadata"]["name"] for item in self.server.objects.all(kind, api_version=api_version)}

    def _roll_out(self) -> None:
        while not self._over.wait(0.1):
            for kind, counts in _READY.items():
                for item in self.server.objects.all(kind, api_version="apps/v1"):
                    wanted = counts | {"observedGeneration": item["metadata"].get("generation", 1)}
                    if item.get("status") != wanted and not item["metadata"].get("deletionTimestamp"):
                        self.server.objects.load(item | {"status": wanted})
            for item in self.server.objects.all("Namespace", api_version="v1"):
                if item["metadata"].get("deletionTimestamp"):
                    self._empty(item["metadata"]["name"])
                    self.server.objects.remove("Namespace", item["metadata"]["name"], api_version="v1")

    def _empty(self, namespace: str) -> None:
        """What kubectl does not know of, such as the ConfigMap of an earlier overlay."""
        for item in self.server.objects.all("ConfigMap", api_version="v1"):
            if item["metadata"]["namespace"] == namespace:
                self.server.objects.remove("ConfigMap", item["metadata"]["name"], namespace, api_version="v1")


_READY = {
    "DaemonSet": dict.fromkeys(
        (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberReady",
        ),
        3,
    ),
    "Deployment": dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2),
}


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    with ApiServer(controllers=True) as server:
        server.objects.load(*[operator_kind(*each) for each in OPERATOR])
        made = Cluster(server, tmp_path)
        try:
            yield made
        finally:
            made.close()


RBAC = "rbac.authorization.k8s.io/v1"


def test_the_page_leads_from_nothing_to_everything_and_back(cluster):
    before = cluster.names("ClusterRole", RBAC)
    seen: dict[str, set[str]] = {}
    for line in commands():
        cluster.run(line)
        seen[line] = cluster.names("ClusterRole", RBAC) - before
        workloads = cluster.names("DaemonSet", "apps/v1")
        if line == "kubectl apply -k manifests/overlays/observe":
            assert workloads == {"koordlite"}
            assert "koordlite-publish" not in seen[line]
        if line == "kubectl apply -k manifests/overlays/enforce":
            assert "koordlite-publish" in seen[line]
        if line == "kubectl apply -k manifests/restore":
            assert workloads == {"koordlite-restore"}
    assert seen[commands()[-1]] == set()
    for kind, version in (("DaemonSet", "apps/v1"), ("Deployment", "apps/v1"), ("ConfigMap", "v1")):
        assert cluster.names(kind, version) == set(), kind
    definitions = cluster.names("CustomResourceDefinition", "apiextensions.k8s.io/v1")
    assert definitions == {f"{plural}.monitoring.coreos.com" for plural, _ in OPERATOR}
    assert not {"koordlite-system", "koordinator-system"} & cluster.names("Namespace", "v1")


def test_applying_twice_changes_nothing(cluster):
    cluster.run("kubectl apply -k manifests/settings")
    cluster.run("kubectl apply -k manifests/overlays/enforce")
    again = cluster.run("kubectl apply -k manifests/overlays/enforce")
    changed = [line for line in again.splitlines() if not line.endswith("unchanged")]
    # kubectl replaces the selector of a budget as a whole each time, also by itself.
    assert changed in ([], ["poddisruptionbudget.policy/descheduler configured"])


@pytest.mark.parametrize("word", ["kubectl"])
def test_every_block_is_commands_that_can_be_tried(word):
    assert len(commands()) > 12
    assert {line.split()[0] for line in commands()} == {word}


def test_every_path_of_the_page_is_there():
    for path in re.findall(r"\bmanifests/[\w./-]+", PAGE.read_text(encoding="utf-8")):
        assert (ROOT / path.rstrip(".")).exists(), path


def test_every_component_is_in_the_table():
    page = PAGE.read_text(encoding="utf-8")
    components = {path.parent.name for path in (ROOT / "manifests/components").glob("*/kustomization.yaml")}
    assert [name for name in components - {"enforce"} if f"`{name}`" not in page and f"/{name}`" not in page] == []
