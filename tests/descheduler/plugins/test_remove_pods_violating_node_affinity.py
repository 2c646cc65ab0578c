"""RemovePodsViolatingNodeAffinity: wrong nodes, better nodes, and whether there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "RemovePodsViolatingNodeAffinity"
REQUIRED = {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}
PREFERRED = {"nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"]}
Object = dict[str, Any]


def line(key: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def required(pod: Object, *terms: Object) -> None:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).update(rule)


def preferred(pod: Object, **weights: int) -> None:
    """By the value of the label `disk`."""
    terms = [{"weight": weight, "preference": line("disk", value)} for value, weight in weights.items()]
    rule = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).update(rule)


@pytest.fixture(autouse=True)
def nodes(cluster: Any) -> None:
    cluster.node("hdd", labels={"disk": "hdd"})
    cluster.node("ssd", labels={"disk": "ssd"})


def test_a_pod_that_fits_nowhere_right_is_named_with_the_reason(cluster: Any, work: Callable[..., Any]) -> None:
    required(cluster.pod("p", "hdd", cpu="4"), line("disk", "ssd"))
    cluster.pod("big", "ssd", cpu="15")
    outcome = work(NAME, REQUIRED).kept[0]
    assert outcome.reasons[0].reason == "NoMatchingNodeFits"
    assert outcome.reasons[0].text == "it fits on no node that matches its affinity"
    assert outcome.main.fact == "hdd is none of them"


@pytest.mark.parametrize(
    ("args", "goes"),
    [
        pytest.param({}, False, id="upstream does not look at it"),
        pytest.param({"includingNodeSelector": True}, True, id="unless asked for"),
    ],
)
def test_a_plain_node_selector(cluster: Any, evicted: Callable[..., Any], args: Object, goes: bool) -> None:
    cluster.pod("p", "hdd")["spec"]["nodeSelector"] = {"disk": "ssd"}
    assert evicted(NAME, {**REQUIRED, **args}) == ["p"] * goes


def test_a_better_node_must_have_room_itself(cluster: Any, evicted: Callable[..., Any]) -> None:
    cluster.node("other", labels={"disk": "hdd"})
    preferred(cluster.pod("p", "hdd", cpu="4"), ssd=10)
    cluster.pod("big", "ssd", cpu="15")
    assert evicted(NAME, PREFERRED) == []


def test_what_is_preferred_never_takes_a_pod_where_it_must_not_be(cluster: Any, evicted: Callable[..., Any]) -> None:
    pod = cluster.pod("p", "hdd")
    required(pod, line("disk", "hdd"))
    preferred(pod, ssd=10)
    assert evicted(NAME, PREFERRED) == []


def test_both_types_name_a_pod_once(cluster: Any, work: Callable[..., Any]) -> None:
    pod = cluster.pod("p", "hdd")
    required(pod, line("disk", "ssd"))
    preferred(pod, ssd=10)
    both = {"nodeAffinityType": REQUIRED["nodeAffinityType"] + PREFERRED["nodeAffinityType"]}
    plan = work(NAME, both)
    assert [[f.reason for f in o.findings] for o in plan.evict] == [["NodeAffinityViolated", "BetterNodeAvailable"]]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param({}, "nodeAffinityType is needed", id="no type"),
        pytest.param({"nodeAffinityType": ["required"]}, "not one of the accepted words", id="a type nobody knows"),
    ],
)
def test_arguments_that_are_refused(refused: Callable[..., str], args: Object, says: str) -> None:
    assert says in refused(NAME, args)
