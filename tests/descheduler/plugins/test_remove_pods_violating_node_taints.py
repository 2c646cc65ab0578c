"""RemovePodsViolatingNodeTaints: which taints count, and who tolerates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "RemovePodsViolatingNodeTaints"
Object = dict[str, Any]


def taint(key: str = "gpu", value: str = "a100", effect: str = "NoSchedule") -> Object:
    return {"key": key, "value": value, "effect": effect}


@pytest.mark.parametrize(
    ("tolerations", "goes"),
    [
        pytest.param([], True, id="none"),
        pytest.param([{"key": "gpu", "value": "a100", "effect": "NoSchedule"}], False, id="equal without an operator"),
        pytest.param([{"key": "gpu", "operator": "Equal", "value": "h100"}], True, id="another value"),
        pytest.param([{"key": "gpu", "operator": "Exists"}], False, id="any value, any effect"),
        pytest.param([{"operator": "Exists"}], False, id="everything"),
        pytest.param([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], True, id="another effect"),
    ],
)
def test_tolerations(cluster: Any, evicted: Callable[..., Any], tolerations: list[Object], goes: bool) -> None:
    cluster.node("a")["spec"]["taints"] = [taint()]
    cluster.pod("p", "a")["spec"]["tolerations"] = tolerations
    assert evicted(NAME) == ["p"] * goes


@pytest.mark.parametrize(
    ("on_node", "args", "goes"),
    [
        pytest.param(taint(effect="NoExecute"), {}, False, id="NoExecute is the taint manager's"),
        pytest.param(taint(effect="PreferNoSchedule"), {}, False, id="a preference does not count"),
        pytest.param(
            taint(effect="PreferNoSchedule"), {"includePreferNoSchedule": True}, True, id="a preference, when asked for"
        ),
        pytest.param(taint(), {"excludedTaints": ["gpu"]}, False, id="left out by key"),
        pytest.param(taint(), {"excludedTaints": ["gpu=a100"]}, False, id="left out by key and value"),
        pytest.param(taint(), {"excludedTaints": ["gpu=h100"]}, True, id="another value is left out"),
        pytest.param(taint(value=""), {"excludedTaints": ["gpu="]}, True, id="without a value only the key matches"),
        pytest.param(taint(), {"includedTaints": ["gpu=a100"]}, True, id="included"),
        pytest.param(taint(), {"includedTaints": ["disk"]}, False, id="not included"),
        pytest.param(taint(), {"includedTaints": []}, False, id="nothing is included"),
    ],
)
def test_taints_that_count(
    cluster: Any, evicted: Callable[..., Any], on_node: Object, args: Object, goes: bool
) -> None:
    cluster.node("a")["spec"]["taints"] = [on_node]
    cluster.pod("p", "a")
    assert evicted(NAME, args) == ["p"] * goes


@pytest.mark.parametrize(
    ("args", "goes"),
    [
        pytest.param({"namespaces": {"include": ["default"]}}, True, id="its namespace is included"),
        pytest.param({"namespaces": {"include": ["other"]}}, False, id="another is"),
        pytest.param({"namespaces": {"exclude": ["default"]}}, False, id="its namespace is excluded"),
        pytest.param({"labelSelector": {"matchLabels": {"app": "x"}}}, True, id="its labels are chosen"),
        pytest.param({"labelSelector": {"matchLabels": {"app": "y"}}}, False, id="other labels are"),
        pytest.param({"labelSelector": {}}, True, id="an empty selector chooses all"),
    ],
)
def test_which_pods_are_judged(cluster: Any, evicted: Callable[..., Any], args: Object, goes: bool) -> None:
    cluster.node("a")["spec"]["taints"] = [taint()]
    cluster.pod("p", "a", labels={"app": "x"})
    assert evicted(NAME, args) == ["p"] * goes


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param({"excludedTaints": ["a"], "includedTaints": ["b"]}, "not both", id="both lists"),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "", "operator": "In"}]}}, "not a label key", id="no key"
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "needs values", id="no values"
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "takes no values",
            id="values too many",
        ),
        pytest.param({"labelSelector": {"matchLabels": {"a": "b c"}}}, "not the value of a label", id="no label value"),
    ],
)
def test_arguments_that_are_refused(refused: Callable[..., str], args: Object, says: str) -> None:
    assert says in refused(NAME, args)


def test_a_guarded_pod_is_named_and_spared(cluster: Any, work: Callable[..., Any]) -> None:
    cluster.node("a")["spec"]["taints"] = [taint()]
    cluster.pod("p", "a", owner="DaemonSet/d")
    plan = work(NAME)
    assert [(o.pod.pod.name, o.reasons[0].reason) for o in plan.spare] == [("p", "DaemonSet")]
    assert plan.spare[0].main.evidence == {"taint": "gpu=a100:NoSchedule"}
