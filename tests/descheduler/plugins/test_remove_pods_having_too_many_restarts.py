"""RemovePodsHavingTooManyRestarts: the sum over containers, and the states that may be asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "RemovePodsHavingTooManyRestarts"
Object = dict[str, Any]


def restarted(cluster: Any, name: str, *counts: int, init: int = 0, node: str = "a") -> Object:
    pod: Object = cluster.pod(name, node)
    pod["status"]["containerStatuses"] = [{"name": f"c{i}", "restartCount": n} for i, n in enumerate(counts)]
    pod["status"]["initContainerStatuses"] = [{"name": "init", "restartCount": init}]
    pod["status"]["ephemeralContainerStatuses"] = [{"name": "debug", "restartCount": 1000}]
    return pod


@pytest.mark.parametrize(
    ("counts", "init", "args", "goes"),
    [
        pytest.param((6, 4), 0, {}, True, id="all containers together"),
        pytest.param((6, 3), 0, {}, False, id="one too few"),
        pytest.param((6, 3), 1, {}, False, id="init containers do not count"),
        pytest.param((6, 3), 1, {"includingInitContainers": True}, True, id="unless told to"),
    ],
)
def test_the_sum_decides(
    cluster: Any, evicted: Callable[..., Any], *, counts: tuple[int, ...], init: int, args: Object, goes: bool
) -> None:
    cluster.node("a")
    restarted(cluster, "p", *counts, init=init)
    assert evicted(NAME, {"podRestartThreshold": 10, **args}) == ["p"] * goes


def test_of_a_node_those_with_most_restarts_go_first(cluster: Any, evicted: Callable[..., Any]) -> None:
    for node in "ab":
        cluster.node(node)
    for name, count, node in (("few", 3, "a"), ("many", 9, "a"), ("also-few", 3, "a"), ("most", 99, "b")):
        restarted(cluster, name, count, node=node)
    assert evicted(NAME, {"podRestartThreshold": 1}) == ["many", "also-few", "few", "most"]


@pytest.mark.parametrize("threshold", [None, 0, -3])
def test_a_threshold_is_needed(refused: Callable[..., str], threshold: int | None) -> None:
    args = {} if threshold is None else {"podRestartThreshold": threshold}
    assert "podRestartThreshold is needed" in refused(NAME, args)
