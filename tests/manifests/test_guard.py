"""The policies that hold an agent to its own node and its own keys.

Their expressions are evaluated where a CEL interpreter is installed (the package cel-python), as a stand-in for the API
server's; the server of the sandbox keeps such policies without applying them.
"""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import cyaml
import pytest

from koordlite.model import keys

ROOT = pathlib.Path(__file__).parents[2]
GUARD = ROOT / "manifests/agent/guard.yaml"
DOCUMENTS = list(cyaml.safe_load_all(GUARD.read_text()))
POLICIES = {item["metadata"]["name"]: item["spec"] for item in DOCUMENTS if item["kind"].endswith("Policy")}
AGENT = "system:serviceaccount:koordlite-system:koordlite"
NODE_CLAIM = "authentication.kubernetes.io/node-name"
NODE = {
    "metadata": {"name": "n1", "annotations": {"theirs": "1"}},
    "status": {
        "capacity": {"cpu": "8", "kubernetes.io/batch-cpu": "1"},
        "allocatable": {"cpu": "8", "kubernetes.io/batch-cpu": "1"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    },
}
CONTENDED = {"type": keys.CPU_CONTENTION, "status": "True"}


def test_each_policy_is_bound_and_denies():
    bound = {item["spec"]["policyName"]: item["spec"] for item in DOCUMENTS if item["kind"].endswith("Binding")}
    assert bound.keys() == POLICIES.keys()
    assert all("Deny" in spec["validationActions"] for spec in bound.values())
    assert all(spec["failurePolicy"] == "Fail" for spec in POLICIES.values())


def test_the_policies_are_about_the_agents_account(render, find):
    account = find(render("overlays/enforce"), "DaemonSet", "koordlite")["spec"]["template"]["spec"][
        "serviceAccountName"
    ]
    for spec in POLICIES.values():
        assert AGENT in spec["matchConditions"][0]["expression"]
    assert AGENT.endswith(f":{account}")


def test_the_keys_that_are_ours_are_those_the_agent_publishes():
    text = next(each["expression"] for each in POLICIES["koordlite-own-keys"]["variables"] if each["name"] == "ours")
    assert json.loads(text) == [keys.BATCH_CPU, keys.BATCH_MEMORY, keys.MID_CPU, keys.MID_MEMORY]


def test_every_write_that_a_role_of_the_agent_allows_is_covered_by_the_node_policy(render):
    covered = {
        (group, resource)
        for rule in POLICIES["koordlite-own-node"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    objects = render("overlays/enforce", "node-metric", "node-metric-create", "evictions")
    roles = [
        item for item in objects if item["kind"] == "ClusterRole" and "descheduler" not in item["metadata"]["name"]
    ]
    writes = {
        (group, resource)
        for role in roles
        for rule in role["rules"]
        if {"create", "update", "patch", "delete"} & set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    # Events are told about pods everywhere; reviews are questions; an eviction does not name a node.
    free = {("events.k8s.io", "events"), ("", "pods/eviction")}
    free |= {("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")}
    assert writes - free <= covered


def admitted(policy: str, *, old: dict[str, Any], new: dict[str, Any], node: str = "n1", user: str = AGENT) -> bool:
    """What the API server would say, by the expressions of one policy."""
    celpy = pytest.importorskip("celpy", reason="no CEL interpreter is installed (cel-python)")
    claims = {NODE_CLAIM: [node]} if node else {}
    about = {"name": new["metadata"]["name"], "resource": {"resource": "nodes"}}
    known = {
        "request": about | {"userInfo": {"username": user, "extra": claims}},
        "object": new,
        "oldObject": old,
    }
    environment = celpy.Environment()

    def evaluated(expression: str) -> Any:
        program = environment.program(environment.compile(expression))
        return program.evaluate({name: celpy.json_to_cel(value) for name, value in known.items()})

    spec = POLICIES[policy]
    if not all(evaluated(each["expression"]) for each in spec["matchConditions"]):
        return True
    held = {each["name"]: json.loads(json.dumps(evaluated(each["expression"]))) for each in spec["variables"]}
    known["variables"] = held
    return all(evaluated(each["expression"]) for each in spec["validations"])


@pytest.mark.parametrize(
    ("name", "node", "user", "wanted"),
    [
        ("n1", "n1", AGENT, True),
        ("n2", "n1", AGENT, False),
        ("n1", "", AGENT, False),
        ("n2", "n1", "system:node:n1", True),
    ],
    ids=["its-own-node", "another-node", "a-token-without-a-node", "somebody-else-is-not-judged"],
)
def test_an_agent_writes_about_its_own_node_only(name, node, user, wanted):
    item = {"metadata": {"name": name}}
    assert admitted("koordlite-own-node", old=item, new=item, node=node, user=user) is wanted


def _with(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(NODE)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "wanted"),
    [
        (("status", "allocatable", "kubernetes.io/batch-cpu"), "5", True),
        (("status", "allocatable", "kubernetes.io/mid-cpu"), "5", True),
        (("status", "capacity", "kubernetes.io/batch-cpu"), None, True),
        (("status", "allocatable", "cpu"), "80", False),
        (("status", "capacity", "cpu"), None, False),
        (("status", "capacity", "example.com/gpu"), "1", False),
        (("status", "conditions"), [], False),
        (("metadata", "annotations", "node.koordinator.sh/cpu-normalization-ratio"), "1.2", True),
        (("metadata", "annotations", "theirs"), "2", False),
        (("metadata", "annotations", "theirs"), None, False),
        (("status", "addresses"), None, False),
        (("status", "daemonEndpoints"), {"kubeletEndpoint": {"Port": 1}}, False),
        (("status", "nodeInfo"), {"kubeletVersion": "v0"}, False),
        (("status", "images"), [{"names": ["x"]}], False),
        (("status", "volumesAttached"), [{"name": "v", "devicePath": ""}], False),
        (("metadata", "labels"), {"pool": "secure"}, False),
        (("metadata", "finalizers"), ["example.com/mine"], False),
        (("metadata", "ownerReferences"), [{"uid": "gone"}], False),
        (("status", "phase"), "Terminated", False),
        (("status", "features"), {"supplementalGroupsPolicy": True}, False),
        (("status", "runtimeHandlers"), [{"name": "gvisor"}], False),
        (("status", "config"), {"error": "x"}, False),
        (("status", "invented"), 1, False),
        (("spec",), {"unschedulable": True}, False),
        (("invented",), {}, False),
        (("status", "conditions"), [*NODE["status"]["conditions"], CONTENDED], True),
        (("status", "conditions"), [{"type": "Ready", "status": "False"}, CONTENDED], False),
        (("status", "conditions"), [CONTENDED], False),
        (("metadata", "deletionGracePeriodSeconds"), 1, False),
        (("metadata", "resourceVersion"), "8", True),
        (("metadata", "managedFields"), [{"manager": "koordlite"}], True),
    ],
    ids=[
        "batch-cpu-may-change",
        "mid-cpu-may-come",
        "batch-cpu-may-go",
        "cpu-may-not-change",
        "cpu-may-not-go",
        "other-resources-may-not-come",
        "conditions-are-kubelets",
        "our-annotations-may-come",
        "other-annotations-may-not-change",
        "other-annotations-may-not-go",
        "addresses-may-not-go",
        "the-port-of-kubelet-is-its-own",
        "nor-may-its-version-change",
        "images-are-kubelets",
        "volumes-are-attached-by-others",
        "labels-may-not-come",
        "finalizers-may-not-come",
        "owners-may-not-come",
        "the-phase-is-kubelets",
        "features-are-kubelets",
        "runtime-handlers-are-kubelets",
        "the-config-is-kubelets",
        "a-field-of-the-status-that-nobody-knows-yet-may-not-come",
        "the-spec-may-not-change",
        "a-field-of-the-node-that-nobody-knows-yet-may-not-come",
        "our-condition-may-come",
        "but-not-with-one-of-kubelets",
        "nor-in-place-of-one",
        "other-metadata-may-not-come",
        "the-server-counts-versions",
        "the-server-notes-who-manages-what",
    ],
)
def test_of_its_node_an_agent_writes_what_is_its_own(path, value, wanted):
    assert admitted("koordlite-own-keys", old=NODE, new=_with(path, value)) is wanted


def test_a_node_without_addresses_yet_may_be_offered_to_batch():
    bare = copy.deepcopy(NODE)
    del bare["status"]["addresses"], bare["status"]["conditions"]
    changed = copy.deepcopy(bare)
    changed["status"]["allocatable"]["kubernetes.io/batch-cpu"] = "2"
    assert admitted("koordlite-own-keys", old=bare, new=changed)


@pytest.mark.parametrize("level", ["object", "object.metadata", "object.status"])
def test_at_each_level_every_key_but_ours_is_compared_both_ways(level):
    """Also where no CEL interpreter is installed."""
    texts = [each["expression"] for each in POLICIES["koordlite-own-keys"]["validations"]]
    old = level.replace("object", "oldObject")
    assert any(text.startswith(f"dyn({level}).all(k, ") and f"dyn({old}).all(k, " in text for text in texts)
