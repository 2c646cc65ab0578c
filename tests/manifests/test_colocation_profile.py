"""The admission policies for ClusterColocationProfiles, compared with the rules in Python.

Their expressions are evaluated by cel-python as a stand-in for the API server's CEL, inside a model of its admission:
mutating policies, then its own Priority plugin again, then the policies that may run twice.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import random
from typing import Any

import cyaml
import pytest
import slices

pytest.importorskip("celpy", reason="no CEL interpreter is installed (cel-python)")

import celpolicy

from koordlite.formulas.admission import colocation_profile as rules
from koordlite.formulas.admission.colocation_profile import PriorityClassValue
from koordlite.model import colocation_profile, keys
from koordlite.model.errors import InputError
from tests.conformance.adapters.colocation_profile import amounts_as_numbers, priority_classes

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "manifests/components/colocation-profile"
DOCUMENTS = [item for path in sorted(FOLDER.glob("*.yaml")) for item in cyaml.safe_load_all(path.read_text())]
POLICIES = {item["metadata"]["name"]: item["spec"] for item in DOCUMENTS if item["kind"].endswith("Policy")}
PROFILES, RESOURCES = POLICIES["koordlite-colocation-profiles"], POLICIES["koordlite-colocation-resources"]
GUARD = POLICIES["koordlite-colocation-guard"]
VECTORS = json.loads((ROOT / "tests/vectors/koord_sched/colocation_profile.json").read_text())
CASES = {
    each["source"].partition(":")[2]: each
    for each in VECTORS
    if each["func"] == "clusterColocationProfileMutatingPod" and each["input"]["operation"] == "CREATE"
}
CLASSES = {
    "koord-batch": PriorityClassValue(5000, "PreemptLowerPriority"),
    "koord-mid": PriorityClassValue(7000, "Never"),
    "koord-prod": PriorityClassValue(9000, "PreemptLowerPriority"),
    "koord-free": PriorityClassValue(3000, "PreemptLowerPriority"),
    "odd": PriorityClassValue(17, "PreemptLowerPriority"),
}
OURS = "colocation.koordlite.io/"
CHUNKS, PODS = int(os.environ.get("KOORDLITE_RANDOM_PODS", "2000")) // 250, 250
"""A long run compares 2,000 pods, at about a tenth of a second of CPU a pod; more where that variable says so."""

Object = dict[str, Any]


def admitted(pod: Object, profiles: list[Object], namespace: Object, classes: Any, *, resources_first: bool) -> Object:
    """The pod after the API server's admission. It evaluates policies in no particular order."""
    made = _as_typed(pod)
    if resources_first:
        made = celpolicy.mutated(RESOURCES, made)
    for profile in sorted(profiles, key=lambda each: each["metadata"]["name"]):
        made = celpolicy.mutated(PROFILES, made, params=profile, namespaceObject=namespace)
    if not resources_first:
        made = celpolicy.mutated(RESOURCES, made)
    return celpolicy.mutated(RESOURCES, priority_resolved(made, classes))


def _as_typed(pod: Object) -> Object:
    """As the server encodes it: a container always has resources, and empty maps are left out."""
    made = copy.deepcopy(pod)
    for container in [*made["spec"].get("initContainers", ()), *made["spec"]["containers"]]:
        container["resources"] = {which: held for which, held in container.get("resources", {}).items() if held}
    return made


def priority_resolved(pod: Object, classes: Any) -> Object:
    """The plugin Priority: number and policy from the class; it refuses a number that the class does not have."""
    made = copy.deepcopy(pod)
    name = made["spec"].get("priorityClassName")
    if name and "priority" not in made["spec"]:
        made["spec"]["priority"] = classes[name].value
        if classes[name].preemption_policy:
            made["spec"]["preemptionPolicy"] = classes[name].preemption_policy
    assert not name or made["spec"]["priority"] == classes[name].value
    return made


def comparable(pod: Object) -> Object:
    """Without our annotations and without empty maps; amounts as numbers, JSON as what it says."""
    made = amounts_as_numbers(pod)
    notes = {key: value for key, value in (made["metadata"].get("annotations") or {}).items() if OURS not in key}
    # "{" is how a random pod may bring it; no profile took that pod.
    if notes.get(keys.EXTENDED_RESOURCE_SPEC, "{") != "{":
        notes[keys.EXTENDED_RESOURCE_SPEC] = json.loads(notes[keys.EXTENDED_RESOURCE_SPEC])
        for entry in notes[keys.EXTENDED_RESOURCE_SPEC].get("containers", {}).values():
            entry |= {which: amounts_as_numbers({"spec": {"overhead": entry[which]}})["spec"] for which in entry}
    made["metadata"]["annotations"] = notes
    made["metadata"]["labels"] = made["metadata"].get("labels") or {}
    return made


def by_rules(pod: Object, profiles: list[Object], namespace: Object, classes: Any) -> Object:
    read = [colocation_profile.from_object(each) for each in profiles]
    spaces = {pod["metadata"]["namespace"]: namespace["metadata"].get("labels") or {}}
    made = rules.admitted(pod, read, namespaces=spaces, priority_classes=classes)
    return rules.with_resource_spec(made.pod)[0] if made.taken_by else made.pod


def expressible(profiles: list[Object]) -> bool:
    return not any(celpolicy.refusals(GUARD, each) for each in profiles)


@pytest.mark.parametrize("resources_first", [False, True])
@pytest.mark.parametrize("source", CASES)
def test_the_policies_do_what_the_rules_say(source, resources_first):
    given = CASES[source]["input"]
    profiles, pod = given["profiles"] or [], given["pod"]
    space = next((each for each in given["namespaces"] if each["name"] == pod["metadata"]["namespace"]), {"labels": {}})
    namespace = {"metadata": {"labels": space["labels"]}}
    if not expressible(profiles):
        # The guard refuses it; one that is older than the guard changes nothing.
        others = [each for each in profiles if not celpolicy.refusals(GUARD, each)]
        assert not others
        if "matchExpressions" not in json.dumps(profiles):
            made = admitted(pod, profiles, namespace, {}, resources_first=resources_first)
            assert comparable(made) == comparable(pod)
        return
    classes = priority_classes(given)
    try:
        wanted = by_rules(pod, profiles, namespace, classes)
    except InputError:
        with pytest.raises(KeyError, match="gone"):
            admitted(pod, profiles, namespace, classes, resources_first=resources_first)
        return
    made = admitted(pod, profiles, namespace, classes, resources_first=resources_first)
    assert comparable(made) == comparable(wanted)


def test_most_vectors_can_be_expressed():
    refused = {source for source, each in CASES.items() if not expressible(each["input"]["profiles"] or [])}
    assert len(CASES) - len(refused) >= 25
    assert all(
        any({"probability", "patch"} & each["spec"].keys() for each in CASES[source]["input"]["profiles"])
        or "Bad" in json.dumps(CASES[source]["input"]["profiles"])
        for source in refused
    )


class Dice:
    """Random profiles and pods. Labels that profiles set are not those that they select by: see compatibility.md."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, make: Any, most: int = 2) -> list[Any]:
        return [make() for _ in range(self.random.randint(0, most))]

    def maybe(self, **fields: Any) -> Object:
        return {key: make() for key, make in fields.items() if self.random.random() < 0.5}

    def labels(self, *names: str) -> Object:
        return {name: self.random.choice(["a", "b", ""]) for name in names if self.random.random() < 0.5}

    def mapping(self, names: str, values: str) -> Object:
        targets = self.random.sample(values.split(), 2)
        return dict(zip(self.random.sample(names.split(), 2), targets, strict=True))

    def line(self) -> Object:
        operator = self.random.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = {"values": self.random.sample(["a", "b", "c"], 2)} if operator in ("In", "NotIn") else {}
        return {"key": self.random.choice(["app", "x.io/tier"]), "operator": operator, **values}

    def selector(self) -> Object:
        return self.maybe(
            matchLabels=lambda: self.labels("app", "x.io/tier"), matchExpressions=lambda: self.some(self.line)
        )

    def profile(self, name: str) -> Object:
        pick = self.random.choice
        spec = self.maybe(
            namespaceSelector=self.selector if self.random.random() < 0.3 else dict,
            selector=self.selector if self.random.random() < 0.5 else dict,
            qosClass=lambda: pick(["", "BE", "LS", "LSR"]),
            priorityClassName=lambda: pick(["", "koord-batch", "koord-batch", *CLASSES]),
            koordinatorPriority=lambda: pick([0, 7, 1111]),
            labels=lambda: self.labels("z/1", "z~2", "koordinator.sh/priority-class"),
            annotations=lambda: self.labels("n/1", "n2"),
            labelKeysMapping=lambda: self.mapping("app x.io/tier z/1 z~2", "z~2 m1 m/2"),
            annotationKeysMapping=lambda: self.mapping("n/1 n2 n3", "n2 m1 m/2"),
            labelSuffixes=lambda: self.labels("z/1", "m/2"),
            schedulerName=lambda: pick(["", "koord-scheduler"]),
        )
        skip = {keys.SKIP_RESOURCES: ""} if self.random.random() < 0.1 else {}
        return {"metadata": {"name": name, "annotations": skip}, "spec": spec}

    def amounts(self) -> Object:
        pick = self.random.choice
        return self.maybe(
            cpu=lambda: pick(["1", "1500m", "0", "100u", "1500500u", "0.3", "2e3", "1k", "333m", "1.001"]),
            memory=lambda: pick(["1Gi", "1500M", "0", "1e9", "128974848", "123456Ki"]),
        ) | (self.maybe(**{key: lambda: pick(["7", "1k", "0"]) for key in ODD}) if self.random.random() < 0.2 else {})

    def container(self, name: str) -> Object:
        return {"name": name, "resources": self.maybe(requests=self.amounts, limits=self.amounts)}

    def pod(self) -> Object:
        labels = self.labels("app", "x.io/tier", "z/1") | self.maybe(
            **{keys.QOS_CLASS: lambda: self.random.choice(["BE", "LS", "LSE", "odd"])}
        )
        if self.random.random() < 0.2:
            labels[keys.PRIORITY_CLASS] = self.random.choice(["koord-batch", "koord-mid", "koord-prod", "odd"])
        spec = {"containers": [self.container(f"c{n}") for n in range(self.random.randint(1, 3))]}
        spec |= self.maybe(
            initContainers=lambda: [self.container(f"i{n}") for n in range(self.random.randint(0, 2))],
            overhead=self.amounts,
            priority=lambda: self.random.choice([0, 3500, 5000, 5999, 6000, 7777, 9500, 2000000000]),
        )
        notes = self.labels("n/1", "n3")
        if self.random.random() < 0.1:
            notes[keys.EXTENDED_RESOURCE_SPEC] = self.random.choice(["{}", "{", '{"containers":{}}'])
        return {"metadata": {"name": "p", "namespace": "ns", "labels": labels, "annotations": notes}, "spec": spec}


ODD = (keys.BATCH_CPU, keys.MID_CPU, keys.BATCH_MEMORY, "nvidia.com/gpu")


@pytest.mark.sliced
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", slices.first(range(CHUNKS)))
def test_random_pods_come_out_as_the_rules_say(chunk):
    taken = 0
    for number in range(slices.amount(PODS, 15)):
        dice = Dice(chunk * PODS + number)
        profiles = [dice.profile(name) for name in ("a", "b")[: dice.random.randint(1, 2)]]
        namespace = {"metadata": {"labels": dice.labels("app", "x.io/tier")}}
        pod = dice.pod()
        assert expressible(profiles), profiles
        wanted = by_rules(pod, profiles, namespace, CLASSES)
        made = admitted(pod, profiles, namespace, CLASSES, resources_first=dice.random.random() < 0.5)
        assert comparable(made) == comparable(wanted), (profiles, namespace, pod)
        taken += wanted != pod
    assert taken


BATCH = {"metadata": {"name": "batch"}, "spec": {"qosClass": "BE", "priorityClassName": "koord-batch"}}
POD = {
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}], "priority": 0},
}


def test_what_a_limit_range_adds_after_the_translation_does_not_replace_it():
    own = {"metadata": {"name": "own"}, "spec": {"qosClass": "BE"}}
    pod = copy.deepcopy(POD) | {"spec": {**copy.deepcopy(POD)["spec"], "priority": 5000}}
    made = celpolicy.mutated(PROFILES, _as_typed(pod), params=own, namespaceObject={"metadata": {}})
    made = celpolicy.mutated(RESOURCES, made)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"]["cpu"] = "100m"
    resources["limits"] = {"cpu": "500m"}
    made = celpolicy.mutated(RESOURCES, made)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {keys.BATCH_CPU: "2000"}


def test_a_pod_cannot_choose_the_resources_by_an_annotation_of_its_own():
    pod = copy.deepcopy(POD)
    pod["metadata"]["annotations"] = {f"{OURS}resources": "example.com/gpu-"}
    made = admitted(pod, [BATCH], {"metadata": {}}, CLASSES, resources_first=False)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {keys.BATCH_CPU: "2000"}


def test_the_number_of_the_old_class_goes_with_it():
    made = celpolicy.mutated(PROFILES, _as_typed(POD), params=BATCH, namespaceObject={"metadata": {}})
    assert "priority" not in made["spec"]
    assert priority_resolved(made, CLASSES)["spec"]["priority"] == 5000


def test_the_pod_says_which_profiles_took_it():
    made = admitted(POD, [BATCH, {"metadata": {"name": "c"}}], {"metadata": {}}, CLASSES, resources_first=False)
    assert made["metadata"]["annotations"][f"{OURS}profiles"] == "batch,c"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"probability": 50}, "spec.probability: a policy of the API server draws no lots"),
        ({"probability": "0%"}, "spec.probability"),
        ({"patch": {"spec": {"terminationGracePeriodSeconds": 30}}}, "spec.patch: a policy of the API server cannot"),
        ({"koordinatorPriority": -5}, "no label can have a negative number"),
        ({"labelKeysMapping": {"a": "c", "b": "c"}}, "spec.labelKeysMapping: two keys"),
        ({"annotationKeysMapping": {"a": "c", "b": "c"}}, "spec.annotationKeysMapping: two keys"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "In and NotIn take values"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}}, "no other operator"),
        ({"labels": {"a": "b c"}}, "no label can have such a value"),
        ({"labelSuffixes": {"a": "-"}}, "no label can have such a value"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_its_reason(spec, words):
    found = celpolicy.refusals(GUARD, {"metadata": {"name": "x"}, "spec": spec})
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    "spec",
    [{}, {"probability": 100}, {"probability": "100%"}, {"labelKeysMapping": {"a": "b", "b": "c"}}, BATCH["spec"]],
)
def test_what_can_be_expressed_is_not_refused(spec):
    assert celpolicy.refusals(GUARD, {"metadata": {"name": "x"}, "spec": spec}) == []


def test_pods_are_never_refused_and_profiles_may_be():
    assert [spec["failurePolicy"] for spec in (PROFILES, RESOURCES, GUARD)] == ["Ignore", "Ignore", "Fail"]
    for spec in (PROFILES, RESOURCES):
        assert [rule["operations"] for rule in spec["matchConstraints"]["resourceRules"]] == [["CREATE"]]
        assert "matchConditions" not in spec
    bound = {item["spec"]["policyName"] for item in DOCUMENTS if item["kind"].endswith("PolicyBinding")}
    assert bound == POLICIES.keys()


def test_every_field_of_a_profile_that_the_rules_read_is_in_the_crd():
    crd = next(item for item in DOCUMENTS if item["kind"] == "CustomResourceDefinition")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for field in schema:
        document = {"metadata": {"name": "x"}, "spec": {field: None}}
        colocation_profile.from_object(document)
    with pytest.raises(InputError):
        colocation_profile.from_object({"metadata": {"name": "x"}, "spec": {"other": None}})
    assert len(schema) == 13
