"""What ClusterColocationProfiles make of a pod. Koordinator's own cases are in the vectors."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from koordlite.formulas.admission import colocation_profile as rules
from koordlite.formulas.admission.colocation_profile import Admission, PriorityClassValue
from koordlite.model import colocation_profile
from koordlite.model.errors import InputError

CLASSES = {"koord-batch": PriorityClassValue(5000, "Never"), "koord-prod": PriorityClassValue(9000)}
POD = {
    "metadata": {"name": "crunch", "namespace": "night", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "2Gi"}}}]},
}


def profile(name: str = "batch", *, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    metadata = {"name": name, "annotations": annotations or {}}
    return colocation_profile.from_object({"metadata": metadata, "spec": spec})


def admitted(*profiles: Any, pod: Any = POD, **more: Any) -> Admission:
    known = {"night": {"colocation": "true"}}
    return rules.admitted(pod, profiles, namespaces=known, priority_classes=CLASSES, **more)


def requests(made: Admission) -> Any:
    return made.pod["spec"]["containers"][0]["resources"]["requests"]


def test_the_pod_that_was_given_stays_as_it_is():
    before = copy.deepcopy(POD)
    admitted(profile(qosClass="BE", labels={"a": "b"}, priorityClassName="koord-batch"))
    assert before == POD


def test_each_change_says_why():
    made = admitted(profile(qosClass="BE", priorityClassName="koord-batch"))
    explained = {change.field: (change.before, change.after, change.why) for change in made.changes}
    assert explained["metadata.labels[koordinator.sh/qosClass]"] == (None, "BE", "profile batch")
    cpu = "spec.containers[main].resources.requests.cpu"
    assert explained[cpu] == ("1500m", None, "priority class koord-batch")


def test_a_namespace_whose_labels_are_unknown_matches_no_selector_and_is_named():
    asks = profile(namespaceSelector={"matchLabels": {"colocation": "true"}})
    made = rules.admitted(POD, [asks], namespaces={}, priority_classes=CLASSES)
    assert (made.taken_by, made.pod) == ((), POD)
    assert "profile batch asks for labels of the namespace" in made.notes[0]


@pytest.mark.parametrize(("draw", "applied"), [(0, True), (29, True), (30, False), (99, False)])
def test_a_probability_of_30_takes_30_of_100_draws(draw, applied):
    made = admitted(profile(probability="30%", labels={"a": "b"}), draws=[draw])
    assert ("a" in made.pod["metadata"]["labels"]) is applied
    assert made.skipped == (() if applied else ("batch",))


def test_a_priority_class_without_a_policy_takes_the_policy_of_the_pod():
    pod = copy.deepcopy(POD) | {"spec": {**POD["spec"], "preemptionPolicy": "Never"}}
    made = admitted(profile(priorityClassName="koord-prod"), pod=pod)
    assert "preemptionPolicy" not in made.pod["spec"]


def test_a_patch_that_removes_a_label_changes_no_pod_without_labels():
    pod = {"metadata": {"name": "p", "namespace": "d"}, "spec": POD["spec"]}
    made = admitted(profile(patch={"metadata": {"labels": {"app": None}}}), pod=copy.deepcopy(pod))
    assert made.pod["metadata"] == pod["metadata"]
    assert not [change for change in made.changes if change.field.startswith("metadata")]


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        (["new"], ["new", "a", "b", "c"]),
        (["b", "new"], ["a", "b", "new", "c"]),
        (["c", "a"], ["b", "c", "a"]),
        (["b"], ["a", "b", "c"]),
    ],
)
def test_a_patch_puts_its_containers_where_kubernetes_puts_them(patch, names):
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": name} for name in "abc"]}}
    made = admitted(profile(patch={"spec": {"containers": [{"name": name} for name in patch]}}), pod=pod)
    assert [container["name"] for container in made.pod["spec"]["containers"]] == names


def test_a_patch_of_one_of_two_ports_with_a_number_leaves_the_other():
    ports = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 80}, {"containerPort": 53, "protocol": "TCP"}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "ports": ports}]}}
    patch = {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 53, "name": "dns"}]}]}}
    made = admitted(profile(patch=patch), pod=pod)
    assert made.pod["spec"]["containers"][0]["ports"] == [{**ports[0], "name": "dns"}, ports[2], ports[1]]


def test_a_patch_may_remove_a_label_and_add_to_a_container():
    container = {"name": "main", "env": [{"name": "A", "value": "1"}]}
    made = admitted(profile(patch={"metadata": {"labels": {"app": None}}, "spec": {"containers": [container]}}))
    assert made.pod["metadata"]["labels"] == {}
    assert made.pod["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    assert requests(made)["cpu"] == "1500m"


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"priorityClassName": "gone"}, "spec.priorityClassName", "there are: koord-batch, koord-prod"),
        ({"patch": {"$patch": "delete"}}, "spec.patch", r"\$patch is not supported"),
        ({"patch": {"spec": {"containers": [{"image": "x"}]}}}, "spec.patch", "has to say its name"),
        ({"patch": {"spec": {"containers": {"main": {}}}}}, "spec.patch", "Expected"),
    ],
)
def test_what_cannot_be_applied_is_an_error_that_names_profile_and_field(spec, field, words):
    with pytest.raises(InputError, match=words) as refused:
        admitted(profile(**spec))
    assert (refused.value.problems[0].object, refused.value.problems[0].field) == (
        "clustercolocationprofile/batch",
        field,
    )


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"qosClas": "BE"}, "spec", "unknown field qosClas"),
        ({"qosClass": 7}, "spec.qosClass", "Expected"),
        ({"probability": "often"}, "spec.probability", "from 0 to 100"),
        ({"probability": 101}, "spec.probability", "from 0 to 100"),
        ({"probability": -1}, "spec.probability", "from 0 to 100"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}}, "spec.selector", "is not In"),
        ({"namespaceSelector": {"matchLabels": {"a b": "c"}}}, "spec.namespaceSelector", "not a label key"),
    ],
)
def test_a_profile_that_cannot_be_read_names_the_field(spec, field, words):
    with pytest.raises(InputError, match=words) as refused:
        profile(**spec)
    assert refused.value.problems[0].field == field


def test_an_amount_that_is_none_is_an_error_with_its_place():
    pod = {"metadata": {}, "spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "much"}}}]}}
    with pytest.raises(InputError, match="much") as refused:
        admitted(profile(qosClass="BE"), pod=pod)
    assert refused.value.problems[0].field == "spec.containers[m].resources.requests.cpu"
