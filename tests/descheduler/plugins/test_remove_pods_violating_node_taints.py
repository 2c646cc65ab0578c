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


def test_a_guarded_pod_is_named_and_kept(cluster: Any, work: Callable[..., Any]) -> None:
    cluster.node("a")["spec"]["taints"] = [taint()]
    cluster.pod("p", "a", owner="DaemonSet/d")
    plan = work(NAME)
    assert [(o.pod.pod.name, o.reasons[0].reason) for o in plan.kept] == [("p", "DaemonSet")]
    assert plan.kept[0].main.evidence == {"taint": "gpu=a100:NoSchedule"}
