"""`koordlite scheduler validate|deploy|remove` against an API server: dry runs, and refusals that stop the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import ApiServer

from koordlite.kube.client.access import Answer, Api

Ask = Callable[..., Any]
LAST = "kubectl.kubernetes.io/last-applied-configuration"
MANIFESTS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: ours}
data: {a: "1"}
---
apiVersion: v1
kind: Namespace
metadata: {name: ours}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ours}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [list]}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(seed=1) as running:
        (tmp_path / "kubeconfig").write_text(running.kubeconfig("admin"))
        yield running


@pytest.fixture
def scheduler(ask: Ask, server: ApiServer, tmp_path: Path) -> Ask:
    """The command over MANIFESTS, or over the text that is given."""

    def run(action: str, *words: str, text: str = MANIFESTS) -> Any:
        (tmp_path / "all.yaml").write_text(text)
        return ask("scheduler", action, tmp_path / "all.yaml", "--kubeconfig", tmp_path / "kubeconfig", *words)

    return run


def test_validate_asks_and_stores_nothing(scheduler: Ask, server: ApiServer) -> None:
    answer = scheduler("validate")
    assert answer.code == 0, answer.out
    assert answer.out.splitlines() == [
        "Namespace/ours: created (server dry run)",
        "ConfigMap/ours/settings: not checked: the namespace ours is not there yet (server dry run)",
        "ClusterRole/ours: created (server dry run)",
    ]
    assert server.objects.get("Namespace", "ours") is None


def test_an_answer_that_cannot_be_read_refuses_its_object(scheduler: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler("deploy")
    ask = Api.request

    def cut(api: Api, method: str, path: str, **how: Any) -> Answer:
        answer = ask(api, method, path, **how)
        return Answer(answer.status, answer.headers, b"{") if path.endswith("/clusterroles/ours") else answer

    monkeypatch.setattr(Api, "request", cut)
    answer = scheduler("deploy")
    assert (answer.code, "ClusterRole/ours: refused: the answer cannot be read" in answer.out) == (1, True)


def test_deploy_creates_then_changes_then_leaves_alone(scheduler: Ask, server: ApiServer) -> None:
    assert scheduler("deploy").out.splitlines() == [
        "Namespace/ours: created",
        "ConfigMap/ours/settings: created",
        "ClusterRole/ours: created",
    ]
    assert "ConfigMap/ours/settings: configured\n" in scheduler("deploy", text=MANIFESTS.replace('"1"', '"2"')).out
    found = server.objects.get("ConfigMap", "settings", "ours")
    assert found is not None and found["data"] == {"a": "2"}
    assert "ConfigMap/ours/settings: unchanged\n" in scheduler("deploy", text=MANIFESTS.replace('"1"', '"2"')).out


def test_a_field_that_the_manifest_dropped_is_removed_whoever_applied_it(scheduler: Ask, server: ApiServer) -> None:
    scheduler("deploy", text=MANIFESTS.replace('{a: "1"}', '{a: "1", b: "2"}'))
    assert "ConfigMap/ours/settings: configured\n" in scheduler("deploy").out
    settings = server.objects.get("ConfigMap", "settings", "ours")
    assert settings is not None and settings["data"] == {"a": "1"}
    # As kubectl, or somebody's hand, may have left it.
    for last_applied in (json.dumps({"data": {"a": "1", "c": "3"}}), "no JSON", "[]", "[" * 100_000):
        meta = {"name": "settings", "namespace": "ours", "annotations": {LAST: last_applied}}
        server.objects.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1", "c": "3"}})
        assert scheduler("deploy").code == 0
        settings = server.objects.get("ConfigMap", "settings", "ours")
        assert settings is not None
        assert settings["data"] == ({"a": "1"} if '"c"' in last_applied else {"a": "1", "c": "3"})
        assert json.loads(settings["metadata"]["annotations"][LAST])["data"] == {"a": "1"}


def test_nothing_is_stored_when_one_object_is_refused(scheduler: Ask, server: ApiServer) -> None:
    wrong = MANIFESTS + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: No_Name}\n"
    answer = scheduler("deploy", text=wrong)
    assert answer.code == 1
    assert "Namespace/No_Name: refused: " in answer.out
    assert server.objects.get("ClusterRole", "ours") is None


def test_remove_keeps_what_may_hold_things_of_others(scheduler: Ask, server: ApiServer) -> None:
    scheduler("deploy")
    assert "ClusterRole/ours: deleted (server dry run)\n" in scheduler("remove", "--dry-run").out
    assert server.objects.get("ClusterRole", "ours") is not None
    answer = scheduler("remove")
    assert answer.out.splitlines() == [
        "ClusterRole/ours: deleted",
        "ConfigMap/ours/settings: deleted",
        "Namespace/ours: kept, since it may hold what is not ours",
    ]
    assert server.objects.get("ClusterRole", "ours") is None
    assert server.objects.get("Namespace", "ours") is not None
    assert "ClusterRole/ours: not there\n" in scheduler("remove").out


def test_a_kind_or_a_namespace_that_nothing_brings_is_refused_before_anything_is_stored(
    scheduler: Ask, server: ApiServer
) -> None:
    monitor = "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: m, namespace: default}\n"
    answer = scheduler("deploy", text=f"{MANIFESTS}---\n{monitor}")
    assert answer.code == 1
    assert "refused: the cluster has no ServiceMonitor of monitoring.coreos.com/v1" in answer.out
    assert server.objects.get("ClusterRole", "ours") is None
    answer = scheduler("deploy", text=MANIFESTS.replace("{name: ours}", "{name: other}"))
    assert answer.code == 1
    assert "ConfigMap/ours/settings: refused: 404 " in answer.out
    assert server.objects.get("Namespace", "other") is None


@pytest.mark.parametrize("text", ["a: [", "kind: Namespace\n", "- 1\n"])
def test_what_is_no_manifest_is_named(scheduler: Ask, text: str) -> None:
    answer = scheduler("validate", text=text)
    assert answer.code == 2
    assert "all.yaml" in answer.err
