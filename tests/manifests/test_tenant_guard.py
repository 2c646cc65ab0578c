"""The policies about what a tenant writes on his pods, evaluated as in `test_guard`."""

from __future__ import annotations

import pathlib
from typing import Any

import cyaml
import pytest

from koordlite.model import keys

FOLDER = pathlib.Path(__file__).parents[2] / "manifests/components/tenant-guard"
DOCUMENTS = list(cyaml.safe_load_all((FOLDER / "policies.yaml").read_text()))
POLICIES = {item["metadata"]["name"]: item["spec"] for item in DOCUMENTS if item["kind"].endswith("Policy")}
SCHEDULER = "system:serviceaccount:koordinator-system:koord-scheduler"
STATUS, RESULT = keys.RESOURCE_STATUS, "scheduling.koordinator.sh/topology-result"
Texts = dict[str, str]


def pod(notes: Texts | None = None, qos: str = "") -> dict[str, Any]:
    """A pod; without annotations or labels the fields are not there."""
    meta: dict[str, Any] = {"name": "p"}
    meta |= {"annotations": notes} if notes is not None else {}
    meta |= {"labels": {"koordinator.sh/qosClass": qos}} if qos else {}
    return {"metadata": meta}


def refused(
    new: dict[str, Any],
    old: dict[str, Any] | None = None,
    *,
    user: str = "alice",
    groups: tuple[str, ...] = (),
    namespace: str = "shop",
) -> list[str]:
    """The policies that refuse the write."""
    celpy = pytest.importorskip("celpy", reason="no CEL interpreter is installed (cel-python)")
    environment = celpy.Environment()
    who = {"username": user, "groups": ["system:authenticated", *groups]}
    known: dict[str, Any] = {"request": {"userInfo": who, "namespace": namespace}, "object": new, "oldObject": old}
    known["request"]["operation"] = "CREATE" if old is None else "UPDATE"

    def admits(spec: dict[str, Any]) -> bool:
        held = {name: celpy.json_to_cel(value) for name, value in known.items()}

        def evaluated(expression: str) -> Any:
            return environment.program(environment.compile(expression)).evaluate(held)

        if not all(evaluated(each["expression"]) for each in spec.get("matchConditions", ())):
            return True
        for each in spec["variables"]:
            found = held.get("variables", celpy.celtypes.MapType())
            value = evaluated(each["expression"])
            # This interpreter joins two texts to a plain one, which has no methods.
            value = celpy.celtypes.StringType(value) if isinstance(value, str) else value
            found[celpy.celtypes.StringType(each["name"])] = value
            held["variables"] = found
        return all(evaluated(each["expression"]) for each in spec["validations"])

    return [name.removeprefix("koordlite-tenant-") for name, spec in POLICIES.items() if not admits(spec)]


def test_each_policy_is_bound_and_denies() -> None:
    bound = {item["spec"]["policyName"]: item["spec"] for item in DOCUMENTS if item["kind"].endswith("Binding")}
    assert bound.keys() == POLICIES.keys()
    assert all("Deny" in spec["validationActions"] for spec in bound.values())
    assert all(spec["failurePolicy"] == "Fail" for spec in POLICIES.values())


def test_every_way_to_write_a_pods_metadata_is_judged() -> None:
    for spec in POLICIES.values():
        (rule,) = spec["matchConstraints"]["resourceRules"]
        assert set(rule["operations"]) == {"CREATE", "UPDATE"}
        assert {"pods", "pods/status"} <= set(rule["resources"])
    (rule,) = POLICIES["koordlite-tenant-assignments"]["matchConstraints"]["resourceRules"]
    assert "pods/binding" in rule["resources"], "annotations of a Binding become the pod's"


@pytest.mark.parametrize("key", [STATUS, RESULT])
@pytest.mark.parametrize(
    ("old", "new", "user", "wanted"),
    [
        pytest.param(None, "x", "alice", ["assignments"], id="created with it"),
        pytest.param({}, "x", "alice", ["assignments"], id="added"),
        pytest.param("x", "y", "alice", ["assignments"], id="changed"),
        pytest.param("x", None, "alice", ["assignments"], id="taken away"),
        pytest.param("x", "x", "alice", [], id="left as it was"),
        pytest.param({}, "x", SCHEDULER, [], id="by a scheduler"),
        pytest.param("x", None, SCHEDULER, [], id="taken away by a scheduler"),
        pytest.param({}, "x", "koord-scheduler", ["assignments"], id="a part of a scheduler's name"),
        pytest.param({}, "x", "", ["assignments"], id="nobody"),
    ],
)
def test_cpu_assignments_are_the_schedulers(key: str, old: Any, new: str | None, user: str, wanted: list[str]) -> None:
    before = None if old is None else pod({key: old} if old else None)
    assert refused(pod({"mine": "1"} if new is None else {key: new}), before, user=user) == wanted


@pytest.mark.parametrize("key", [keys.CONFIG_MIRROR, keys.CONFIG_SOURCE, "kubernetes.io/config.hash"])
def test_the_annotations_of_static_pods_are_kubelets(key: str) -> None:
    assert refused(pod({key: "file"})) == ["static-pods"]
    assert refused(pod({key: "file"}), pod()) == ["static-pods"]
    assert refused(pod({key: "file"}), pod({key: "api"})) == ["static-pods"]
    assert refused(pod({key: "file"}), pod({key: "file"})) == []
    assert refused(pod({key: "file"}), user="system:node:n1", groups=("system:nodes",)) == []
    assert refused(pod({key: "file"}), user="system:node:n1") == ["static-pods"], "a name alone is no kubelet"
    assert refused(pod({key: "file"}), user=SCHEDULER) == ["static-pods"]


@pytest.mark.parametrize("qos", ["LSE", "LSR", "SYSTEM"])
def test_classes_with_cpus_of_their_own_are_for_trusted_namespaces(qos: str) -> None:
    assert refused(pod(qos=qos)) == ["classes"]
    assert refused(pod(qos=qos), pod(qos="LS")) == ["classes"]
    assert refused(pod(qos=qos), pod(qos=qos)) == []
    assert refused(pod(qos=qos), namespace="koordinator-system") == []
    assert refused(pod(qos=qos), namespace="kube") == ["classes"], "a part of a trusted name"


@pytest.mark.parametrize("qos", ["LS", "BE", ""])
def test_ordinary_pods_are_nobodys_business(qos: str) -> None:
    assert refused(pod(qos=qos)) == []
    assert refused(pod({"theirs": "1"}, qos), pod(None, "LSE")) == []
