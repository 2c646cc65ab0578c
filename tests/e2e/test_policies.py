"""Every admission policy and CRD, compiled and evaluated by a real API server, as the identities they are about."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import cel_functions
import pytest
from control_plane import ControlPlane, control_plane

from koordlite.formulas.admission.colocation_profile import PriorityClassValue
from koordlite.kube.client.access import Api, ApiError
from koordlite.model import keys
from tests.manifests import shipped
from tests.manifests import test_colocation_profile as colocation_tests
from tests.manifests import test_reservation_controller as reservation_tests
from tests.manifests.conftest import rendered

ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    names = ("serviceaccount-controller", "validatingadmissionpolicy-status-controller")
    with control_plane(tmp_path_factory.mktemp("policies"), controllers=names) as made:
        yield made


MORE = (
    '"abc".startsWith("a")',
    '"abc".endsWith("c")',
    '"a,b".contains(",")',
    'string(1) == "1"',
    'string(true) == "true"',
    "size([1]) == 1",
    'size("abc") == 3',
    "[1].exists_one(x, x == 1)",
    "has(object.metadata) ? true : false",
)
"""What the first recording did not ask."""


def answer(api: Api, expression: str) -> tuple[int, str]:
    """What the type checker says of an expression; nothing is stored."""
    name, _, patch = expression.partition(": ")
    kind = "MutatingAdmissionPolicy" if name in ("JSONPatch", "ApplyConfiguration") else "ValidatingAdmissionPolicy"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec: dict[str, Any] = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}}
    if kind == "ValidatingAdmissionPolicy":
        spec["validations"] = [{"expression": expression}]
    else:
        field = "jsonPatch" if name == "JSONPatch" else "applyConfiguration"
        spec |= {"reinvocationPolicy": "Never", "mutations": [{"patchType": name, field: {"expression": patch}}]}
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    plural = "mutatingadmissionpolicies" if kind.startswith("M") else "validatingadmissionpolicies"
    try:
        return api.request("POST", f"{ADMISSION}/{plural}", query=(("dryRun", "All"),), body=body).status, ""
    except ApiError as error:
        _, _, words = str(error).partition("compilation failed: ")
        return error.status, words.splitlines()[0] if words else str(error)


def test_the_table_of_functions_is_what_the_server_says(plane: ControlPlane) -> None:
    api = plane.api()
    recorded = {str(row["expression"]): row["status"] for row in cel_functions.rows()}
    found = {each: answer(api, each) for each in (*recorded, *MORE)}
    if os.environ.get("RECORD_FUNCTIONS"):
        rows = [{"expression": each, "status": code, "error": why} for each, (code, why) in found.items()]
        cel_functions.TABLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    else:
        assert {each: code for each, (code, _) in found.items()} == recorded


CONTROLLER = "koordlite-reservation-controller"


@pytest.fixture(scope="module")
def placeholders(plane: ControlPlane) -> Api:
    """The reservation controller's access, with its component applied."""
    install(plane, "namespace", "reservation-controller")
    create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    return plane.api(plane.token(CONTROLLER))


def install(plane: ControlPlane, folder: str, *components: str) -> list[dict[str, Any]]:
    """Apply what kustomize builds; every object has to be accepted."""
    objects = list(rendered(folder, *components))
    for name in sorted({each["metadata"].get("namespace", "") for each in objects} - {""}):
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    create(plane, *objects)
    return objects


def create(plane: ControlPlane, *items: dict[str, Any]) -> None:
    path = plane.folder / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    plane.kubectl("apply", "-f", str(path))


def dry_run(api: Api, method: str, path: str, body: dict[str, Any]) -> str:
    """The refusal of a policy; empty where the write is admitted. Other refusals fail the test."""
    merge = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        api.request(method, path, query=(("dryRun", "All"),), body=body, content_type=merge)
    except ApiError as error:
        assert "denied request" in str(error), error
        return str(error)
    return ""


def in_force(refused: Callable[[], str]) -> None:
    """Wait until the server has taken a new policy up."""
    end = time.monotonic() + 30.0
    while not refused():
        assert time.monotonic() < end, "the policy never came into force"
        time.sleep(0.2)


def test_the_placeholders_of_the_controller_are_admitted_and_nothing_else(placeholders: Api) -> None:
    path = "/api/v1/namespaces/shop/pods"
    made = reservation_tests.a_placeholder()
    made["metadata"]["namespace"] = "shop"
    in_force(lambda: dry_run(placeholders, "POST", path, {**made, "metadata": {"name": "evil"}}))
    assert dry_run(placeholders, "POST", path, made) == ""
    admitted = []
    for name, spec in reservation_tests.ATTACKS.items():
        attack = {**made, "spec": {**made["spec"], **spec}}
        # The server itself refuses some that policies never see.
        if not _refused_at_all(placeholders, path, attack):
            admitted.append(name)
    for name, meta in reservation_tests.DISGUISES.items():
        if not _refused_at_all(placeholders, path, {**made, "metadata": meta}):
            admitted.append(name)
    assert admitted == []
    elsewhere = {**made, "metadata": {**made["metadata"], "namespace": "kube-system"}}
    assert "not for the namespace" in dry_run(placeholders, "POST", "/api/v1/namespaces/kube-system/pods", elsewhere)


def _refused_at_all(api: Api, path: str, body: dict[str, Any]) -> bool:
    try:
        api.request("POST", path, query=(("dryRun", "All"),), body=body)
    except ApiError:
        return True
    return False


def test_every_policy_and_crd_is_compiled_without_a_warning(plane: ControlPlane) -> None:
    objects = shipped.objects()
    create(plane, *(each for each in objects.values() if each["kind"] == "CustomResourceDefinition"))
    create(plane, *(each for each in objects.values() if each["kind"] != "CustomResourceDefinition"))
    api, warned = plane.api(), list[Any]()
    for name in objects:
        if name.startswith("ValidatingAdmissionPolicy/"):
            path = f"{ADMISSION}/validatingadmissionpolicies/{name.partition('/')[2]}"
            in_force(lambda at=path: "typeChecking" in status_of(api, at) and "x")
            warned += status_of(api, path)["typeChecking"].get("expressionWarnings", ())
    assert warned == []
    for name, item in objects.items():
        if name.startswith("CustomResourceDefinition/"):
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{item['metadata']['name']}"
            in_force(lambda at=path: "conditions" in status_of(api, at) and "x")
            conditions = {each["type"]: each["status"] for each in status_of(api, path)["conditions"]}
            assert conditions["NamesAccepted"] == "True", name
            assert conditions.get("NonStructuralSchema", "False") == "False", name
    digests = {name: shipped.digest(each) for name, each in sorted(objects.items())}
    if os.environ.get("RECORD_ACCEPTED"):
        shipped.ACCEPTED.write_text(json.dumps(digests, indent=1) + "\n")
    assert json.loads(shipped.ACCEPTED.read_text()) == digests, "RECORD_ACCEPTED=1 records them"


def test_of_policies_of_which_one_is_refused_none_is_stored(plane: ControlPlane, tmp_path: pathlib.Path) -> None:
    """By the command of docs/install.md: half of these policies would be worse than none."""
    objects = [dict(each) for each in rendered("restore", "colocation-profile")]
    names = [each["metadata"]["name"] for each in objects if each["kind"] == "MutatingAdmissionPolicy"]
    for each in objects:
        each["metadata"] = {**each["metadata"], "name": f"partly-{each['metadata']['name']}"}
        each["spec"] = {**each.get("spec", {})}
    last = next(each for each in objects if each["metadata"]["name"] == f"partly-{names[-1]}")
    last["spec"] |= {"matchConditions": [{"name": "broken", "expression": "object.functionOfTomorrow()"}]}
    chosen = [each for each in objects if each["kind"].startswith("MutatingAdmissionPolicy")]
    (tmp_path / "all.json").write_text("\n---\n".join(json.dumps(each) for each in chosen))
    words = ["scheduler", "deploy", str(tmp_path / "all.json"), "--kubeconfig", str(plane.kubeconfig())]
    done = subprocess.run([sys.executable, "-m", "koordlite", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"MutatingAdmissionPolicy/partly-{names[-1]}: refused: " in done.stdout
    assert len(names) > 1
    kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    assert "partly-" not in plane.kubectl("get", kinds, "-o", "name").stdout


def status_of(api: Api, path: str) -> Any:
    return json.loads(api.request("GET", path).body).get("status", {})


def asked_as(plane: ControlPlane, user: str, item: dict[str, Any], *groups: str) -> str:
    """Why a new object is refused to this user, in a dry run; empty where it is admitted."""
    path = plane.folder / "asked.json"
    path.write_text(json.dumps(item))
    who = [f"--as={user}", *(f"--as-group={group}" for group in ("system:authenticated", *groups))]
    done = plane.kubectl("create", "--dry-run=server", "-f", str(path), *who, check=False)
    assert done.returncode == 0 or "denied request" in done.stderr, done.stderr
    return done.stderr if done.returncode else ""


def bare_pod(name: str, namespace: str, *, qos: str = "", **notes: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "annotations": notes}
    meta |= {"labels": {keys.QOS_CLASS: qos}} if qos else {}
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_what_tenants_may_not_write(plane: ControlPlane) -> None:
    install(plane, "namespace", "tenant-guard")
    create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    subjects = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenants"}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "tenants"}}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    binding = {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects}
    create(plane, {**head, "kind": "ClusterRole", "rules": rules}, {**head, **binding})
    status = {keys.RESOURCE_STATUS: '{"cpuset":"0-31"}'}
    in_force(lambda: asked_as(plane, "alice", bare_pod("a", "shop", **status)))
    in_force(lambda: asked_as(plane, "alice", bare_pod("a", "shop", qos="LSR")))
    in_force(lambda: asked_as(plane, "alice", bare_pod("a", "shop", **{"kubernetes.io/config.hash": "x"})))
    assert "schedulers' to write" in asked_as(plane, "alice", bare_pod("a", "shop", **status))
    assert "not for the namespace shop" in asked_as(plane, "alice", bare_pod("a", "shop", qos="SYSTEM"))
    # Somebody who names a group of kubelets, but no kubelet.
    mirror = bare_pod("a", "shop", **{"kubernetes.io/config.source": "file"})
    assert "kubelet's to write" in asked_as(plane, "alice", mirror, "system:nodes")
    assert asked_as(plane, "alice", bare_pod("a", "shop", qos="BE")) == ""
    assert asked_as(plane, "alice", bare_pod("a", "koordlite-system", qos="LSR")) == ""
    scheduler = "system:serviceaccount:koordlite-system:koordlite-scheduler"
    assert asked_as(plane, scheduler, bare_pod("a", "shop", **status)) == ""


def test_guards_neither_stop_the_cluster_nor_open_it_when_our_namespace_is_gone(
    tmp_path: pathlib.Path,
) -> None:
    with control_plane(tmp_path, controllers=("serviceaccount-controller", "namespace-controller")) as plane:
        install(plane, "overlays/enforce", "reservation-controller")
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        controller = f"system:serviceaccount:koordlite-system:{CONTROLLER}"
        spec = bare_pod("evil", "shop")["spec"]
        container = {**spec["containers"][0], "securityContext": {"privileged": True}}
        privileged = {**bare_pod("evil", "shop"), "spec": {**spec, "containers": [container]}}
        status = bare_pod("a", "shop", **{keys.RESOURCE_STATUS: '{"cpuset":"0-31"}'})

        def refused() -> list[str]:
            return [
                asked_as(plane, controller, privileged),
                asked_as(plane, "admin", status, "system:masters"),
                asked_as(plane, "admin", bare_pod("a", "shop", qos="LSR"), "system:masters"),
            ]

        in_force(lambda: "x" if all(refused()) else "")
        before = refused()
        plane.kubectl("delete", "namespace", "koordlite-system", "--timeout=60s")
        assert refused() == before
        for namespace in ("shop", "kube-system"):
            create(plane, bare_pod("plain", namespace))


def test_one_key_of_a_config_map_is_numa_apis(plane: ControlPlane) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}}
    meta = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    create(plane, space)
    install(plane, "namespace", "numa-api", "numa-api-policies", "numa-api-volcano")
    create(plane, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"colocation-config": "{}"}})
    api = plane.api(plane.token("koordlite-numa-api"))
    path = "/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config"
    in_force(lambda: dry_run(api, "PATCH", path, {"data": {"colocation-config": '{"enable":true}'}}))
    assert dry_run(api, "PATCH", path, {"data": {"numa-policy-config": "{}"}}) == ""
    assert "numa-policy-config only" in dry_run(api, "PATCH", path, {"data": {"colocation-config": None}})
    assert "writes data only" in dry_run(api, "PATCH", path, {"metadata": {"labels": {"a": "b"}}})


DESCHEDULER_PARTS = ("descheduler-evict", "descheduler-migrate", "descheduler-cordon", "descheduler-deletion-cost")


def test_what_the_descheduler_may_write(plane: ControlPlane) -> None:
    create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    install(plane, "overlays/observe", *DESCHEDULER_PARTS)
    create(plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}}, bare_pod("b", "shop"))
    api = plane.api(plane.token("descheduler"))
    pod, node = "/api/v1/namespaces/shop/pods/b", "/api/v1/nodes/n9"

    def note(name: str, value: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {name: value}}}

    mark = "descheduler.koordlite.io/cordon"
    in_force(lambda: dry_run(api, "PATCH", pod, note("theirs", "1")))
    in_force(lambda: dry_run(api, "PATCH", node, note("theirs", "1")))
    assert dry_run(api, "PATCH", pod, note("scheduling.koordinator.sh/soft-eviction", "{}")) == ""
    cost = "controller.kubernetes.io/pod-deletion-cost"
    assert dry_run(api, "PATCH", pod, note(cost, "-5")) != ""
    both = {"metadata": {"annotations": {cost: "-5", "descheduler.koordlite.io/deletion-cost": "-5"}}}
    assert dry_run(api, "PATCH", pod, both) == ""
    assert dry_run(api, "PATCH", pod, {"metadata": {"labels": {"app": "web"}}}) != ""
    assert dry_run(api, "PATCH", node, {"spec": {"unschedulable": True}}) != ""
    assert dry_run(api, "PATCH", node, {"spec": {"unschedulable": True}, **note(mark, "asked")}) == ""
    assert dry_run(api, "PATCH", node, {"metadata": {"labels": {"a": "b"}}}) != ""


COLOCATION = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"


def test_pods_come_out_of_a_real_server_as_the_rules_say(plane: ControlPlane) -> None:
    """Random pods and profiles, as those that cel-python is compared with."""
    installed = install(plane, "namespace", "colocation-profile")
    api, spaces = plane.api(), f"/api/v1/namespaces/{SPACE}"
    create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    classes = {
        each["metadata"]["name"]: PriorityClassValue(
            each["value"], each.get("preemptionPolicy", "PreemptLowerPriority")
        )
        for each in installed
        if each["kind"] == "PriorityClass"
    }
    in_force(lambda: _profiled(api, {"spec": {"probability": 50}}))
    compared, taken = 0, 0
    for number in range(RANDOM_PODS):
        dice = colocation_tests.Dice(number)
        profiles = [_valid(dice.profile(name)) for name in ("a", "b")[: dice.random.randint(1, 2)]]
        if any(each["spec"].get("priorityClassName") == "odd" for each in profiles):
            continue
        namespace = {"metadata": {"labels": dice.labels("app", "x.io/tier")}}
        pod = _as_pod(_valid(dice.pod()))
        plain = _admitted(api, pod)
        if plain is None:
            continue
        labels = dict.fromkeys(("app", "x.io/tier")) | namespace["metadata"]["labels"]
        api.request("PATCH", spaces, body={"metadata": {"labels": labels}}, content_type="application/merge-patch+json")
        for profile in profiles:
            assert _profiled(api, profile, dry=False) == "", profile
        wanted = colocation_tests.comparable(colocation_tests.by_rules(plain, profiles, namespace, classes))
        end = time.monotonic() + 10.0
        # The server takes profiles and labels up within a moment.
        while (made := _admitted(api, pod)) is None or colocation_tests.comparable(made) != wanted:
            assert time.monotonic() < end, _difference(number, profiles, made, wanted)
            time.sleep(0.05)
        compared, taken = compared + 1, taken + (wanted != colocation_tests.comparable(plain))
        for profile in profiles:
            api.request("DELETE", f"{COLOCATION}/{profile['metadata']['name']}")
        end = time.monotonic() + 10.0
        while _admitted(api, pod) != plain:
            assert time.monotonic() < end, "the profiles stay in force"
            time.sleep(0.05)
    assert compared >= RANDOM_PODS // 4
    assert taken >= compared // 4


RANDOM_PODS = 60
LOWER = "PreemptLowerPriority"
SPACE = "koordinator-system"
"""Tenant-guard lets pods have any class there."""


def _difference(number: int, profiles: list[Any], made: dict[str, Any] | None, wanted: dict[str, Any]) -> str:
    if made is None:
        return f"pod {number} is refused with {profiles}"
    found = colocation_tests.comparable(made)
    parts = [
        f"{part}.{key}: {found.get(part, {}).get(key)} in place of {wanted.get(part, {}).get(key)}"
        for part in ("metadata", "spec")
        for key in {*found[part], *wanted[part]}
        if found[part].get(key) != wanted[part].get(key)
    ]
    return f"pod {number} with {profiles}: {parts}"


def _valid(item: dict[str, Any]) -> dict[str, Any]:
    """Without the key that only tests how a path is written."""
    made: dict[str, Any] = json.loads(json.dumps(item).replace("z~2", "z_2"))
    return made


def _as_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """A random pod with what a server wants of every pod."""
    meta = {**pod["metadata"], "namespace": SPACE}
    spec = {name: value for name, value in pod["spec"].items() if name not in ("overhead", "priority")}
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        container["image"] = "x"
    spec["automountServiceAccountToken"] = False
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _admitted(api: Api, pod: dict[str, Any]) -> dict[str, Any] | None:
    """The pod as it would be stored, without what differs at each time; None where the server refuses it."""
    path = f"/api/v1/namespaces/{SPACE}/pods"
    try:
        answer = api.request("POST", path, query=(("dryRun", "All"),), body=pod)
    except ApiError:
        return None
    made: dict[str, Any] = json.loads(answer.body)
    for name in ("uid", "creationTimestamp", "managedFields"):
        made["metadata"].pop(name, None)
    del made["status"]
    return made


def _profiled(api: Api, profile: dict[str, Any], *, dry: bool = True) -> str:
    """The guard's refusal of a profile."""
    name = profile.get("metadata", {}).get("name", "x")
    notes = profile.get("metadata", {}).get("annotations", {})
    head = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    body = {**head, "metadata": {"name": name, "annotations": notes}, "spec": profile["spec"]}
    try:
        api.request("POST", COLOCATION, query=(("dryRun", "All"),) if dry else (), body=body)
    except ApiError as error:
        return str(error) if "denied request" in str(error) else ""
    return ""
