"""RemovePodsHavingTooManyRestarts: the sum over containers. The vectors have the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "RemovePodsHavingTooManyRestarts"
Object = dict[str, Any]


def restarted(cluster: Any, name: str, *counts: int) -> Object:
    pod: Object = cluster.pod(name, "a")
    pod["status"]["containerStatuses"] = [{"name": f"c{i}", "restartCount": n} for i, n in enumerate(counts)]
    pod["status"]["ephemeralContainerStatuses"] = [{"name": "debug", "restartCount": 1000}]
    return pod


@pytest.mark.parametrize(("counts", "goes"), [((6, 4), True), ((6, 3), False)])
def test_the_sum_decides(cluster: Any, evicted: Callable[..., Any], counts: tuple[int, ...], goes: bool) -> None:
    cluster.node("a")
    restarted(cluster, "p", *counts)
    assert evicted(NAME, {"podRestartThreshold": 10}) == ["p"] * goes


@pytest.mark.parametrize("threshold", [None, 0, -3])
def test_a_threshold_is_needed(refused: Callable[..., str], threshold: int | None) -> None:
    args = {} if threshold is None else {"podRestartThreshold": threshold}
    assert "podRestartThreshold is needed" in refused(NAME, args)
