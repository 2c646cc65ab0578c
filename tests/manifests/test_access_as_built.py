"""Each process may do what it does, with the roles as kustomize and the chart build them.

The requests were recorded on a real API server (`access`); names in roles are judged as built, after every rewriting of
names.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import cyaml
import helmlike
import pytest
from apiserver.authorizer import Authorizer
from apiserver.clocks import RealClock
from apiserver.cluster import Cluster
from apiserver.objects import Objects
from apiserver.requests import Target
from apiserver.store import Store
from apiserver.users import User

from tests.manifests.access import CASES, Case, Right
from tests.manifests.conftest import MANIFESTS, kubectl, rendered
from tests.manifests.test_chart import merged

INITIAL = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "extension-apiserver-authentication-reader", "namespace": "kube-system"},
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }
    ],
}
"""A role that every cluster has from its beginning."""
NAMED = [pytest.param(each, id=each.name) for each in CASES]


def denied(objects: Iterable[dict[str, Any]], case: Case, requests: Sequence[Right]) -> list[Right]:
    """The requests that the roles among these objects do not allow."""
    with_namespaces = ("koordlite-system", "koordinator-system", "volcano-system", "tcs", "kube-system")
    cluster = Cluster(Store(), RealClock())
    store = Objects(cluster)
    store.load(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in with_namespaces))
    store.load(INITIAL, *(each for each in objects if "rbac" in each["apiVersion"]))
    judge = Authorizer(cluster.store).judge
    user = User(case.user, case.groups)
    return [each for each in requests if not judge(user, target(each)).allowed]


def target(right: Right) -> Target:
    verb, group, whole, namespace, name = right
    resource, _, subresource = whole.partition("/")
    return Target(verb, group, "v1", resource, subresource, namespace, name)


@pytest.mark.parametrize("case", NAMED)
def test_kustomize_allows_what_the_process_asks_for(render, case: Case) -> None:
    assert case.recorded(), "tests/e2e/test_installed.py records it"
    assert denied(render(case.folder, *case.components), case, case.recorded()) == []


@pytest.fixture(scope="module")
def charted(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A chart with an overlay for each case."""
    kubectl()
    around = tmp_path_factory.mktemp("charted")
    copy = around / "manifests"
    shutil.copytree(MANIFESTS, copy)
    for case in CASES:
        folder = copy / "overlays" / f"case-{case.name}"
        folder.mkdir()
        head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        components = [f"../../components/{name}" for name in case.components]
        document = {**head, "resources": [f"../../{case.folder}"], "components": components}
        (folder / "kustomization.yaml").write_text(cyaml.safe_dump(document))
    folders = [copy / "overlays" / f"case-{case.name}" for case in CASES]
    script = MANIFESTS.parent / "scripts" / "chart"
    subprocess.run([sys.executable, script, around / "chart", *folders], check=True, capture_output=True, timeout=100)
    return around / "chart"


@pytest.mark.long
@pytest.mark.parametrize("case", NAMED)
def test_the_chart_allows_the_same(charted: pathlib.Path, case: Case) -> None:
    template = (charted / "templates" / f"case-{case.name}.yaml").read_text(encoding="utf-8")
    objects = helmlike.render(template, merged(charted, overlay=f"case-{case.name}"))
    assert denied(objects, case, case.recorded()) == []


def test_a_lease_by_another_name_is_denied() -> None:
    """What kustomize made of the role when a generated ConfigMap had the name of the lease."""
    (case,) = [each for each in CASES if each.name == "scheduler-extender"]
    objects = [dict(each) for each in rendered(case.folder, *case.components)]
    for each in objects:
        if each["metadata"]["name"] == "koordlite-scheduler-lease" and each["kind"] == "Role":
            rule = {**each["rules"][1], "resourceNames": ["koordlite-scheduler-9cfdm68724"]}
            each["rules"] = [each["rules"][0], rule]
    lease = ("coordination.k8s.io", "leases", "koordlite-system", "koordlite-scheduler")
    assert denied(objects, case, case.recorded()) == [("get", *lease), ("update", *lease)]


def test_the_lease_of_the_configuration_is_the_one_that_was_recorded(render) -> None:
    (case,) = [each for each in CASES if each.name == "scheduler-extender"]
    objects = render(case.folder, *case.components)
    (text,) = [each["data"]["configuration.yaml"] for each in objects if "configuration.yaml" in each.get("data", {})]
    election = cyaml.safe_load(text)["leaderElection"]
    names = {(right[3], right[4]) for right in case.recorded() if right[:3] == ("update", *LEASES)}
    assert names == {(election["resourceNamespace"], election["resourceName"])}


LEASES = ("coordination.k8s.io", "leases")


def test_no_name_in_a_role_is_a_generated_one(render) -> None:
    for case in CASES:
        objects = render(case.folder, *case.components)
        generated = {each["metadata"]["name"] for each in objects if each["kind"] in ("ConfigMap", "Secret")}
        kept = {"slo-controller-config", "koordlite-dashboards"}
        for item in objects:
            for rule in item.get("rules") or ():
                assert not (generated - kept).intersection(rule.get("resourceNames") or ()), item["metadata"]["name"]
