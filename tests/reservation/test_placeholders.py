"""Placeholders: whatever a template says, it is refused by name or becomes a pod without rights of the same size."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from koordlite.model import keys, times
from koordlite.model.pod.pod_reader import effective_requests, kube_qos
from koordlite.model.wire.objects import PodObject
from koordlite.model.wire.reservation import ReservationObject
from koordlite.reservation import hand_over, placeholder, validity
from koordlite.reservation.lifecycle import template_requests
from koordlite.reservation.placeholder import PlaceholderSettings

NOW = 1_800_000_000.0
ANYTHING = some.recursive(
    some.none() | some.booleans() | some.integers(-5, 5) | some.text(max_size=6),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
AMOUNT = some.sampled_from(("1", "500m", "2Gi", 3, "-1", "much", "0"))
AMOUNTS = some.dictionaries(some.sampled_from(("cpu", "memory", "nvidia.com/gpu", "pods")), AMOUNT, max_size=3)
CONTAINER = some.fixed_dictionaries(
    {"name": some.sampled_from(("a", "b"))},
    optional={
        "resources": some.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS}) | ANYTHING,
        "command": some.just(["sh"]),
        "env": some.just([{"name": "SECRET", "value": "1"}]),
        "volumeMounts": some.just([{"name": "token", "mountPath": "/t"}]),
        "ports": some.lists(some.just({"containerPort": 80, "hostPort": 8080}), max_size=1) | ANYTHING,
        "restartPolicy": some.just("Always"),
    },
)
TEMPLATE = some.fixed_dictionaries(
    {},
    optional={
        "metadata": some.fixed_dictionaries(
            {},
            optional={
                "namespace": some.sampled_from(("shop", "Not One", "")),
                "labels": ANYTHING,
                "annotations": ANYTHING,
            },
        )
        | ANYTHING,
        "spec": some.fixed_dictionaries(
            {},
            optional={
                "containers": some.lists(CONTAINER, max_size=2) | ANYTHING,
                "initContainers": some.lists(CONTAINER, max_size=1) | ANYTHING,
                "nodeName": some.just("n1") | ANYTHING,
                "affinity": ANYTHING,
                "tolerations": ANYTHING,
                "volumes": some.just([{"name": "v", "secret": {"secretName": "s"}}]) | ANYTHING,
                "hostNetwork": some.booleans(),
                "serviceAccountName": some.just("admin"),
                "priority": ANYTHING,
                "overhead": AMOUNTS,
                "runtimeClassName": some.just("vm"),
            },
        )
        | ANYTHING,
    },
)


SOUND_AMOUNTS = some.dictionaries(
    some.sampled_from(("cpu", "memory", "nvidia.com/gpu")), some.sampled_from(("1", "500m", "2Gi", 3)), min_size=1
)
SOUND_CONTAINER = some.fixed_dictionaries(
    {"name": some.sampled_from(("a", "b")), "resources": some.fixed_dictionaries({"requests": SOUND_AMOUNTS})},
    optional={"command": some.just(["sh"]), "env": some.just([{"name": "SECRET", "value": "1"}])},
)
SOUND = some.fixed_dictionaries(
    {
        "metadata": some.just({"namespace": "shop", "labels": {"app": "web", "koordinator.sh/qosClass": "LS"}}),
        "spec": some.fixed_dictionaries(
            {"containers": some.lists(SOUND_CONTAINER, min_size=1, max_size=2)},
            optional={
                "initContainers": some.lists(SOUND_CONTAINER, max_size=1),
                "nodeName": some.just("n1"),
                "hostNetwork": some.booleans(),
                "serviceAccountName": some.just("admin"),
                "volumes": some.just([{"name": "v", "secret": {"secretName": "s"}}]),
                "runtimeClassName": some.just("vm"),
            },
        ),
    }
)


def reservation(template: Any, **spec: Any) -> ReservationObject:
    meta = {"name": "r", "uid": "u", "creationTimestamp": times.show(NOW)}
    return msgspec.convert(
        {"metadata": meta, "spec": {"template": template, "owners": [{}], "ttl": "1h", **spec}}, ReservationObject
    )


@given(SOUND | TEMPLATE)
def test_a_template_is_refused_by_name_or_becomes_a_pod_without_rights(template: Any) -> None:
    resource = reservation(template)
    if wrong := validity.problems(resource):
        assert all(problem.object == "reservation/r" and problem.do for problem in wrong)
        return
    amounts = placeholder.resources(resource)
    body = placeholder.pod(resource, amounts, 1, PlaceholderSettings())
    spec = body["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "serviceAccountName", "nodeName", "initContainers"} & spec.keys()
    assert all(volume.get("persistentVolumeClaim") for volume in spec.get("volumes", ()))
    assert all(not {"command", "env", "volumeMounts", "args"} & container.keys() for container in spec["containers"])
    pod = msgspec.convert(body, PodObject, strict=False)
    pods: list[Any] = []
    holding = {name: q for name, q in effective_requests(pod.spec, "", pods).items() if q.nano > 0}
    requested = {name: q for name, q in amounts.items() if q.nano > 0 and name != "pods"}
    assert not pods
    assert {name: holding.get(name) for name in requested} == requested


def test_a_guaranteed_template_stays_guaranteed_when_a_part_is_left() -> None:
    both = {"cpu": "4", "memory": "4Gi"}
    container = {"name": "c", "resources": {"requests": both, "limits": both}}
    template = {"spec": {"containers": [container], "runtimeClassName": "vm"}}
    resource = reservation(template)
    half = {name: type(q)(q.nano // 2, q.format) for name, q in template_requests(resource).items()}
    pod = msgspec.convert(placeholder.pod(resource, half, 2, PlaceholderSettings()), PodObject, strict=False)
    assert kube_qos(pod) == "Guaranteed"
    assert effective_requests(pod.spec, "", []) == half
    assert "runtimeClassName" not in placeholder.pod(resource, half, 2, PlaceholderSettings())["spec"], (
        "its overhead is in the amounts"
    )


def test_a_pinned_template_goes_to_its_node_only() -> None:
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {rule: {"nodeSelectorTerms": terms}}}
    resource = reservation({"spec": {**requests, "nodeName": "n7", "affinity": affinity}})
    document = placeholder.pod(resource, placeholder.resources(resource), 1, PlaceholderSettings())["spec"]["affinity"][
        "nodeAffinity"
    ][rule]
    line = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
    assert [term["matchFields"] for term in document["nodeSelectorTerms"]] == [[line], [line]]


@given(some.text(max_size=20) | ANYTHING.map(lambda value: msgspec.json.encode(value).decode()))
def test_whatever_is_noted_about_a_hand_over_is_read_or_reported(text: str) -> None:
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    resource = reservation({"spec": requests})
    resource = msgspec.structs.replace(
        resource, metadata=msgspec.structs.replace(resource.metadata, annotations={keys.HAND_OVER: text})
    )
    read = hand_over.read(resource)
    assert read is not None or any(problem.field == keys.HAND_OVER for problem in validity.problems(resource))
    assert isinstance(hand_over.may_try(resource, "p", NOW), bool)


def test_pauses_double_up_to_five_minutes() -> None:
    resource, pauses = reservation({}), []
    text = hand_over.begin("ns", "p", "p", before=None, now=NOW, remainder="")
    for _ in range(7):
        meta = msgspec.structs.replace(resource.metadata, annotations={keys.HAND_OVER: text})
        resource = msgspec.structs.replace(resource, metadata=meta)
        text = hand_over.give_up(hand_over.read(resource), NOW, "")  # type: ignore[arg-type]
        over = msgspec.structs.replace(
            resource, metadata=msgspec.structs.replace(meta, annotations={keys.HAND_OVER: text})
        )
        pauses.append(next(second for second in range(1000) if hand_over.may_try(over, "p", NOW + second)))
        text = hand_over.begin("ns", "p", "p", before=hand_over.read(over), now=NOW, remainder="")
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    assert hand_over.may_try(over, "another", NOW)
