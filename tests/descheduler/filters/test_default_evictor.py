"""Why a pod may not be evicted, one protection at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from descheduler.arguments.evictor import Args
from descheduler.filters import default_evictor
from descheduler.picture.pods import PREFER_NO_EVICTION
from koordlite.model import keys
from koordlite.model.errors import ConfigError, InputError
from koordlite.model.reading import strict

EVICT = {"descheduler.alpha.kubernetes.io/evict": "false"}


def reasons(cluster: Any, args: str = "") -> list[str]:
    view = cluster.view()
    pod = next(view.pods())
    chosen = strict.load(args, Args, "args")
    return [
        r.reason
        for r in (
            *default_evictor.Guards(view, (chosen,)).refusals(pod),
            *default_evictor.late_refusals(pod, view, chosen),
        )
    ]


def volume(**source: object) -> dict[str, object]:
    return {"volumes": [{"name": "v", **source}]}


@pytest.mark.parametrize(
    ("name", "owner", "expected"),
    [
        ("reservation-uid-r-1", "Reservation/r", ["Placeholder"]),
        ("web", "Reservation/r", []),
        ("reservation-uid-r-1", "app", []),
    ],
    ids=["placeholder", "another-name", "another-owner"],
)
def test_a_placeholder_of_a_reservation_is_not_moved(cluster: Any, name: str, owner: str, expected: list[str]) -> None:
    cluster.node("a")
    cluster.pod(name, "a", owner=owner, labels={keys.RESERVATION_UID: "uid-r"})
    assert reasons(cluster) == expected
    view = cluster.view()
    in_a_cycle = default_evictor.Guards(view, (Args(),)).refusals(next(view.pods()))
    assert [refusal.reason for refusal in in_a_cycle] == expected


def test_a_pod_that_is_going_is_left_to_go(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "a", annotations=EVICT)["metadata"]["deletionTimestamp"] = "2026-01-01T11:00:00Z"
    assert reasons(cluster) == ["Terminating"]


def test_every_reason_is_named_not_only_the_first(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "a", owner="")["spec"].update(volume(emptyDir={}), priority=2000000001)
    assert reasons(cluster) == ["SystemCritical", "BarePod", "LocalStorage"]


def test_the_evict_annotation_overrules_protections(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "a", owner="", annotations=EVICT)["spec"].update(volume(emptyDir={}))
    assert reasons(cluster) == []


@pytest.mark.parametrize(
    "args",
    [
        "",
        "minReplicas: 3, minPodAge: 5h, noEvictionPolicy: Mandatory, evictFailedBarePods: true",
        "priorityThreshold: {value: 10}, labelSelector: {matchLabels: {a: b}}, ignorePvcPods: true",
        "podProtections: {extraEnabled: [PodsWithoutPDB, PodsWithPVC, PodsWithResourceClaims]}",
        "namespaces: {exclude: [other]}",
    ],
)
def test_guards_that_ask_a_template_once_say_what_is_said_of_each_pod(cluster: Any, args: str) -> None:
    cluster.node("a")
    for number, change in enumerate(DIFFERENCES):
        for twin in "pq":
            change(cluster.pod(f"{twin}{number:02}", "a"))
    cluster.budget("b", 1, {"a": "b"})
    view = cluster.view()
    filters = (strict.load(f"{{{args}}}", Args, "args"), strict.load("evictLocalStoragePods: true", Args, "args"))
    asked = default_evictor.Guards(view, filters)
    for pod in view.pods():
        each = (refusal for one in filters for refusal in default_evictor.Guards(view, (one,)).refusals(pod))
        assert asked.refusals(pod) == tuple(dict.fromkeys(each))
    for group in view.groups:
        assert list(asked.evictable(group)) == [pod for pod in group.pods if not asked.refusals(pod)]


DIFFERENCES: tuple[Callable[[dict[str, Any]], object], ...] = (
    lambda pod: None,
    lambda pod: pod["metadata"].update(labels={"a": "b"}),
    lambda pod: pod["metadata"].update(ownerReferences=[]),
    lambda pod: pod["metadata"].update(ownerReferences=[], namespace="other"),
    lambda pod: pod["metadata"]["ownerReferences"][0].update(kind="DaemonSet"),
    lambda pod: pod["metadata"].update(annotations=EVICT),
    lambda pod: pod["metadata"].update(annotations={PREFER_NO_EVICTION: ""}),
    lambda pod: pod["metadata"].update(annotations={"kubernetes.io/config.mirror": "x"}),
    lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T11:00:00Z"),
    lambda pod: pod["spec"].update(priority=2000000000),
    lambda pod: pod["spec"].update(priority=10),
    lambda pod: pod["spec"].update(volume(emptyDir={})),
    lambda pod: pod["spec"].update(volume(persistentVolumeClaim={"claimName": "c"})),
    lambda pod: pod["spec"].update(resourceClaims=[{}]),
    lambda pod: pod["status"].update(startTime="2026-01-01T01:00:00Z"),
    lambda pod: pod["status"].update(phase="Pending"),
)
"""What guards look at; all pods share the rest."""


def test_a_pod_under_two_budgets_cannot_be_evicted_at_all(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "a", labels={"app": "x"})
    cluster.budget("one", 1, {"app": "x"})
    assert reasons(cluster) == []
    cluster.budget("two", 1, {"app": "x"})
    assert reasons(cluster) == ["ManyDisruptionBudgets"]


@pytest.mark.parametrize(("storage_class", "expected"), [("fast", ["HasPVC"]), ("slow", []), ("", ["HasPVC"])])
def test_only_claims_of_protected_classes_and_unknown_ones_protect(
    cluster: Any, storage_class: str, expected: list[str]
) -> None:
    cluster.node("a")
    cluster.pod("p", "a")["spec"].update(volume(persistentVolumeClaim={"claimName": "c"}))
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"namespace": "default", "name": "c"}}
    cluster.add({**claim, "spec": {"storageClassName": storage_class or None}})
    classes = "config: {PodsWithPVC: {protectedStorageClasses: [{name: fast}]}}"
    assert reasons(cluster, f"podProtections: {{extraEnabled: [PodsWithPVC], {classes}}}") == expected


def test_a_threshold_by_name_needs_its_class_in_the_picture(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "a")["spec"]["priority"] = 100
    args = strict.load("priorityThreshold: {name: high}", Args, "args")
    with pytest.raises(InputError, match="no such PriorityClass"):
        default_evictor.check(cluster.view(), args)
    cluster.add({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100})
    default_evictor.check(cluster.view(), args)
    assert reasons(cluster, "priorityThreshold: {name: high}") == ["PriorityThreshold"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param("priorityThreshold: {value: 1, name: a}", "not both", id="value and name"),
        pytest.param("priorityThreshold: {value: 2000000001}", "at most 2000000000", id="above system-critical"),
        pytest.param("noEvictionPolicy: Maybe", "accepted words", id="an unknown policy"),
        pytest.param("podProtections: {extraEnabled: [PodsWithPVC, PodsWithPVC]}", "twice", id="listed twice"),
        pytest.param("podProtections: {extraEnabled: [PodsWithPVCs]}", "did you mean PodsWithPVC", id="misspelt"),
        pytest.param(
            "{podProtections: {extraEnabled: [PodsWithPVC]}, ignorePvcPods: true}", "cannot be mixed", id="old and new"
        ),
        pytest.param("minReplicas: -1", "out of range", id="negative"),
        pytest.param("minPodAge: 5 minutes", "not a duration", id="no duration"),
        pytest.param("nodeSelector: a b", "label selector", id="no selector"),
    ],
)
def test_arguments_that_are_refused(args: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        strict.load(args, Args, "args")
