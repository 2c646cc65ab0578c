"""Components numa-api, numa-api-policies, numa-api-volcano: the command is known, and the rights are used."""

from __future__ import annotations

import time
from typing import Any

import cyaml
import pytest
from apibench import CRD, until
from apiserver import ApiServer
from apiserver.users import User

from koordlite import cli
from koordlite.kube.client import access, reviews
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.numa_api.switches import NUMA_AWARE, NUMA_DISTANCE, Policy, Switches
from koordlite.scheduler.watches import Watches

COMPONENTS = ("numa-api", "numa-api-policies", "numa-api-volcano")
NAME = "koordlite-numa-api"


@pytest.mark.parametrize(
    ("components", "switches"), [(COMPONENTS[:1], False), (COMPONENTS[:2], True), (COMPONENTS, True)]
)
def test_it_is_read_only_unless_another_component_is_named(render, find, components, switches):
    pod = find(render("namespace", *components), "Deployment", NAME)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    args = cli.parser().parse_args(container["command"][1:])
    assert args.allow_policy_changes is switches
    assert args.numa_listen.endswith(f":{container['ports'][0]['containerPort']}")
    assert args.tls_cert_file.startswith(container["volumeMounts"][0]["mountPath"])


def test_the_service_finds_the_pod(render, find):
    objects = render("namespace", "numa-api")
    pod = find(objects, "Deployment", NAME)["spec"]["template"]
    service = find(objects, "Service", NAME)
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == pod["spec"]["containers"][0]["ports"][0]["name"]


def test_its_rights_are_those_it_uses(render, tmp_path):
    found = [each for each in render("namespace", *COMPONENTS) if "rbac" in each["apiVersion"]]
    user = User(
        f"system:serviceaccount:koordlite-system:{NAME}",
        ("system:serviceaccounts", "system:serviceaccounts:koordlite-system"),
    )
    held = [
        *_config_map(NUMA_AWARE, "tiers:\n- plugins:\n  - name: gang\n"),
        *_config_map(NUMA_DISTANCE, "{}"),
    ]
    with ApiServer(tokens={NAME: user, "reader": User("reader")}, streams=False) as server:
        server.objects.load(cyaml.safe_load(CRD.read_text()), *held, *found)
        (tmp_path / "kubeconfig").write_text(server.kubeconfig(NAME))
        api = access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test")
        watches = Watches(api, Cluster(JudgeSettings(), monotonic=time.monotonic), monotonic=time.monotonic)
        watches.start()
        until(lambda: watches.age() is not None)
        until(lambda: {each.verb for each in list(server.requests)} >= {"list", "watch"})
        until(lambda: all(state.error == "" for state in watches.states()))
        assert Switches(api).put(NUMA_AWARE, "open")
        assert Switches(api).put(NUMA_DISTANCE, "open")
        reviews.Reviewer(api).verdict("reader", "get", "/rest")
        watches.stop()
        mine = [each for each in list(server.requests) if each.user == user.name and each.resource]
    assert [f"{each.verb} {each.resource}" for each in mine if each.status == 403] == []
    asked = {(each.resource, each.verb) for each in mine}
    roles = [each for each in found if each["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]
    allowed = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert allowed == asked, "no more, no less"


def _config_map(policy: Policy, text: str) -> list[dict[str, Any]]:
    """With its namespace."""
    meta = {"name": policy.config_map, "namespace": policy.namespace}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": policy.namespace}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {policy.key: text}},
    ]
