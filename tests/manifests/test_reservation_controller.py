"""Component reservation-controller: the command is known, the rights are used, the policy leaves placeholders only."""

from __future__ import annotations

import copy
import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import cyaml
import msgspec
import pytest
from apibench import until
from apiserver import ApiServer
from apiserver.users import User

from koordlite import cli
from koordlite.cli import services
from koordlite.kube.client import access, reviews
from koordlite.model import times
from koordlite.reservation import placeholder
from tests.reservation.test_over_http import RESERVATIONS, Bench, node

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "manifests/components/reservation-controller"
NAME = "koordlite-reservation-controller"
PARAMS = cyaml.safe_load((FOLDER / "placeholders.yaml").read_text())
USER = User(
    f"system:serviceaccount:koordlite-system:{NAME}",
    ("system:serviceaccounts", "system:serviceaccounts:koordlite-system"),
)


def test_the_command_is_known_and_makes_what_the_component_brings(render, find):
    objects = render("namespace", "reservation-controller")
    (container,) = find(objects, "Deployment", NAME)["spec"]["template"]["spec"]["containers"]
    words = container["command"][1:]
    for each in container["env"]:
        key = each["valueFrom"].get("configMapKeyRef", {}).get("key", "")
        words = [word.replace(f"$({each['name']})", PARAMS["data"].get(key, "")) for word in words]
    args = cli.parser().parse_args(words)
    assert args.health_listen.endswith(f":{container['ports'][0]['containerPort']}")
    made = find(objects, "PriorityClass", args.placeholder_priority_class)
    assert (made["value"], made["preemptionPolicy"]) == (1_000_000_000, "Never")
    settings = services.placeholder_settings(args)
    image, _, digest = settings.image.partition("@")
    assert digest.startswith("sha256:"), "a tag can be moved"
    defaults = placeholder.PlaceholderSettings()
    assert msgspec.structs.replace(settings, image=image) == defaults, "options and settings have the same defaults"


def test_the_policy_admits_what_the_controller_is_told_to_make(render, find):
    objects = render("namespace", "reservation-controller")
    policy = find(objects, "ValidatingAdmissionPolicy", NAME)
    literals = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    data = find(objects, "ConfigMap", "koordlite-placeholders")["data"]
    assert data == {name: json.loads(literals[name]) for name in ("image", "priorityClassName")}
    assert set(json.loads(literals["withheldNamespaces"])) == placeholder.WITHHELD


def test_the_lease_is_the_one_that_the_role_names(render):
    (role,) = [each for each in render("namespace", "reservation-controller") if each["kind"] == "Role"]
    assert role["rules"][1]["resourceNames"] == [services.LEASE]
    assert role["metadata"]["namespace"] == cli.parser().parse_args(["reservation-controller"]).lease_namespace


def test_its_rights_are_those_it_uses(render, tmp_path):
    """Placed, handed over, annotated, and collected: by the command itself as a process."""
    objects = render("namespace", "reservation-controller")
    roles = [each for each in objects if "rbac" in each["apiVersion"]]
    definition = cyaml.safe_load((ROOT / "manifests/crds/koordinator/reservations.yaml").read_text())
    reports = cyaml.safe_load((ROOT / "manifests/crds/noderesourcetopologies.yaml").read_text())
    admin = User("admin", ("system:masters",))
    with ApiServer(tokens={NAME: USER, "admin": admin, "reader": User("reader")}, streams=False) as server:
        spaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in ("shop", "koordlite-system")
        ]
        classes = [each for each in objects if each["kind"] == "PriorityClass"]
        server.objects.load(definition, reports, *spaces, node("a"), *classes, *roles)
        (tmp_path / "controller").write_text(server.kubeconfig(NAME))
        bench = Bench(server, tmp_path)
        command = [sys.executable, "-m", "koordlite", "reservation-controller"]
        command += ["--kubeconfig", str(tmp_path / "controller")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                _one_reservation(bench)
            finally:
                process.terminate()
            assert process.stderr is not None
            assert "lease gained" in process.stderr.read()
            assert process.wait(20) == 0
        reviews.Reviewer(access.connect(str(tmp_path / "controller"), None, user_agent="test")).verdict(
            "reader", "get", "/"
        )
        mine = [each for each in list(server.requests) if each.user == USER.name and each.resource]
    assert [f"{each.verb} {each.resource} {each.name}" for each in mine if each.status == 403] == []
    rules = [rule for role in roles if "Binding" not in role["kind"] for rule in role.get("rules", ())]
    allowed = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    # An Event is patched when it is repeated after a minute.
    assert allowed - {("events", "patch")} == {(each.resource, each.verb) for each in mine}, "no more, no less"


def _one_reservation(bench: Bench) -> None:
    bench.reserve(ttl="0s")
    until(lambda: len(bench.placeholders()) == 1, 60.0)
    bench.bind(bench.placeholder()["metadata"]["name"], "a")
    until(lambda: bench.phase() == "Available")
    bench.owner("web-1")
    until(lambda: not bench.placeholders())
    bench.bind("web-1", "a")
    until(lambda: bench.phase() == "Succeeded")
    status = bench.status()
    # As if it had ended two days ago, so that it is collected; an Event that is repeated is counted on the first one.
    for each in status["conditions"]:
        each["lastProbeTime"] = times.show(time.time() - 2 * 86400)
    bench.ask("PATCH", f"{RESERVATIONS}/r/status", {"status": status})
    until(lambda: not bench.ask("GET", RESERVATIONS)["items"], 20.0)


def refusals(operation: str, old: Any, new: Any, *, namespace: str = "shop", **variables: str) -> list[str]:
    """Messages of the policy; `variables` are expressions that an operator has put in place of ours."""
    pytest.importorskip("celpy", reason="no CEL interpreter is installed (cel-python)")
    from celpolicy import Request

    policy = next(
        each for each in cyaml.safe_load_all((FOLDER / "guard.yaml").read_text()) if each["kind"].endswith("Policy")
    )
    spec = policy["spec"]
    for each in spec["variables"]:
        each["expression"] = variables.get(each["name"], each["expression"])
    # What is absent is null in the API server, whose `||` does not look at the rest; cel-python looks.
    objects = {"object": old if new is None else new, "oldObject": new if old is None else old}
    who = {"operation": operation, "namespace": namespace, "userInfo": {"username": USER.name}}
    request = Request(spec, {"request": who, **objects})
    assert request.evaluated(spec["matchConditions"][0]["expression"])
    return [
        each.get("message") or str(request.evaluated(each["messageExpression"]))
        for each in spec["validations"]
        if not request.evaluated(each["expression"])
    ]


def a_placeholder() -> dict[str, Any]:
    from reservecluster import ReserveCluster

    made = ReserveCluster(None, nodes={}).reserve("r", 2)  # type: ignore[arg-type]
    return placeholder.pod(
        made, placeholder.resources(made), 1, placeholder.PlaceholderSettings(image=PARAMS["data"]["image"])
    )


POD = {
    "metadata": {"name": "p", "namespace": "shop", "uid": "1", "annotations": {"theirs": "1"}},
    "spec": {"containers": [{"name": "c"}]},
    "status": {"phase": "Pending"},
}


def changed(**parts: Any) -> dict[str, Any]:
    made = copy.deepcopy(POD)
    for part, values in parts.items():
        made[part] = {**made[part], **values}
    return made


def test_the_policy_admits_what_the_controller_does():
    made = a_placeholder()
    assert refusals("CREATE", None, made) == []
    assert refusals("DELETE", made, None) == []
    notes = {"theirs": "1", "scheduling.koordinator.sh/reservation-allocated": json.dumps({"name": "r"})}
    assert refusals("UPDATE", POD, changed(metadata={"annotations": notes})) == []
    assert refusals("UPDATE", POD, changed(status={"nominatedNodeName": "a"})) == []


@pytest.mark.parametrize(
    ("operation", "old", "new"),
    [
        ("DELETE", POD, None),
        ("CREATE", None, POD),
        ("UPDATE", POD, changed(metadata={"annotations": {"theirs": "2"}})),
        ("UPDATE", POD, changed(metadata={"annotations": {}})),
        ("UPDATE", POD, changed(metadata={"labels": {"a": "b"}})),
        ("UPDATE", POD, changed(spec={"containers": [{"name": "c", "image": "evil"}]})),
        ("UPDATE", POD, changed(status={"phase": "Failed"})),
    ],
    ids=["delete", "create", "annotation", "annotation-gone", "label", "spec", "phase"],
)
def test_the_policy_refuses_everything_else(operation, old, new):
    assert refusals(operation, old, new)


CONTAINER = {"name": "c", "image": PARAMS["data"]["image"], "securityContext": {"allowPrivilegeEscalation": False}}
_SECURITY: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_HOST = {"name": "v", "hostPath": {"path": "/"}}
ATTACKS: dict[str, dict[str, Any]] = {
    "host-network": {"hostNetwork": True},
    "host-pid": {"hostPID": True},
    "host-ipc": {"hostIPC": True},
    "host-users": {"hostUsers": True},
    "node-name": {"nodeName": "n1"},
    "account": {"serviceAccountName": "admin"},
    "token": {"automountServiceAccountToken": True},
    "secret": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    "host-path": {"volumes": [_HOST]},
    "priority": {"priorityClassName": "system-node-critical"},
    "number-of-a-priority": {"priority": 1_000_000_001},
    "number-of-a-system-priority": {"priority": 2_000_001_000},
    "root": {"securityContext": {"runAsUser": 0}},
    "sysctls": {
        "securityContext": {"runAsNonRoot": True, "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}
    },
    "init-container": {"initContainers": [CONTAINER]},
    "resource-claims": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    **{
        name: {"containers": [{**CONTAINER, "securityContext": _SECURITY, **more}]}
        for name, more in {
            "image": {"image": "registry.invalid/evil:1"},
            "tag-in-place-of-digest": {"image": "registry.k8s.io/pause:3.10"},
            "command": {"command": ["sh"]},
            "arguments": {"args": ["-c"]},
            "environment": {"env": [{"name": "A", "value": "b"}]},
            "probe": {"livenessProbe": {"exec": {"command": ["sh"]}}},
            "lifecycle": {"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}},
            "privileged": {"securityContext": {"privileged": True}},
            "capability": {"securityContext": {**_SECURITY, "capabilities": {"add": ["SYS_ADMIN"]}}},
            "escalation": {"securityContext": {"capabilities": {"drop": ["ALL"]}}},
            "host-port": {"ports": [{"containerPort": 443, "hostPort": 443}]},
            "working-dir": {"workingDir": "/"},
        }.items()
    },
}
"""What somebody with the controller's token may try: parts of a placeholder's spec. `tests/e2e/test_policies.py` sends
them to a real API server."""
_PLACE = {"name": "reservation-u1-1", "namespace": "shop", "labels": {"reservation.koordlite.io/uid": "u1"}}
_OWNER = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "name": "r", "uid": "u1"}
DISGUISES: dict[str, dict[str, Any]] = {
    "no-owner": _PLACE,
    "other-owner": {**_PLACE, "ownerReferences": [{**_OWNER, "uid": "u2"}]},
    "second-owner": {**_PLACE, "ownerReferences": [_OWNER, {**_OWNER, "kind": "ReplicaSet"}]},
    "other-name": {**_PLACE, "name": "evil", "ownerReferences": [_OWNER]},
    "finalizer": {**_PLACE, "ownerReferences": [_OWNER], "finalizers": ["example.com/stay"]},
    "label-of-a-service": {
        **_PLACE,
        "ownerReferences": [_OWNER],
        "labels": {**_PLACE["labels"], "app": "web"},  # type: ignore[dict-item]
    },
    "static-pod": {**_PLACE, "ownerReferences": [_OWNER], "annotations": {"kubernetes.io/config.mirror": "x"}},
}


@pytest.mark.parametrize("spec", ATTACKS.values(), ids=ATTACKS)
def test_a_placeholder_with_rights_is_refused(spec):
    made = a_placeholder()
    made["spec"] = {**made["spec"], **spec}
    assert refusals("CREATE", None, made)


@pytest.mark.parametrize("meta", DISGUISES.values(), ids=DISGUISES)
def test_what_only_looks_like_a_placeholder_is_refused(meta):
    assert refusals("CREATE", None, {**a_placeholder(), "metadata": meta})


@pytest.mark.parametrize(
    ("namespaces", "namespace", "admitted"),
    [
        *(('["*"]', "shop", True), ('["*"]', "kube-system", False)),
        *(('["places"]', "places", True), ('["places"]', "shop", False), ('["kube-system"]', "kube-system", True)),
        *(('["*", "kube-system"]', "kube-system", True), ("[]", "shop", False)),
    ],
)
def test_placeholders_are_made_where_the_setting_says(namespaces, namespace, admitted):
    found = refusals("CREATE", None, a_placeholder(), namespace=namespace, namespaces=namespaces)
    words = f"placeholders are not for the namespace {namespace}: the variable namespaces of this policy names theirs"
    assert found == ([] if admitted else [words])


def test_host_ports_are_a_setting():
    made = a_placeholder()
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 443, "hostPort": 443}]
    assert len(refusals("CREATE", None, made)) == 1
    assert refusals("CREATE", None, made, hostPorts="true") == []
