"""What a node keeps for other things is nobody's room, whichever plugin asks."""

from __future__ import annotations

from typing import Any

import pytest

ORDER = [{"name": name, "nodeSelector": {"matchLabels": {"pool": name}}} for name in ("first", "last")]


@pytest.mark.parametrize(
    ("plugin", "args"),
    [
        pytest.param("CustomPriority", {"evictionOrder": ORDER}, id="CustomPriority"),
        pytest.param(
            "CustomPriority", {"evictionOrder": ORDER, "mode": "DrainNode", "nodeFit": False}, id="draining by requests"
        ),
        pytest.param("FragmentationAware", {"imbalanceThreshold": 0.1}, id="FragmentationAware"),
        pytest.param("RemovePodsViolatingNodeTaints", {}, id="nodeFit of the evictor"),
        pytest.param("HighNodeUtilization", {"thresholds": {"cpu": 60, "memory": 50}}, id="HighNodeUtilization"),
    ],
)
@pytest.mark.parametrize(
    ("reservation", "gone"),
    [
        pytest.param(None, ["p"], id="nothing kept"),
        pytest.param({"resources": {"cpu": "9"}}, [], id="an amount kept"),
        pytest.param({"reservedCPUs": "0-8"}, [], id="CPUs kept"),
        pytest.param({"reservedCPUs": "0-8", "applyPolicy": "ReservedCPUsOnly"}, ["p"], id="only CPU numbers kept"),
    ],
)
def test_a_pod_does_not_leave_for_reserved_room(
    cluster: Any, evicted: Any, *, plugin: str, args: Any, reservation: Any, gone: list[str]
) -> None:
    source = cluster.node("a", labels={"pool": "first"})
    source["spec"]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    cluster.node("b", labels={"pool": "last"}, reservation=reservation)
    cluster.pod("p", "a", cpu="8", memory="1Gi")
    cluster.pod("resident", "b", cpu="0", memory="60Gi", owner="")
    assert evicted(plugin, args, evictor={"nodeFit": True}) == gone
