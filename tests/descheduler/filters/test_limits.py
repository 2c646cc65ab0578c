"""How many pods one plan may evict."""

from __future__ import annotations

from typing import Any

import pytest

from descheduler.filters.limits import Budget, Limits


def take_all(cluster: Any, limits: Limits) -> list[str]:
    """The reasons, pod after pod in the order of names; empty for those that go."""
    view = cluster.view()
    budget = Budget(limits, view)
    said = []
    for pod in sorted(view.pods(), key=lambda pod: pod.key):
        reason, _ = budget.refusal(pod)
        said.append(reason)
        if not reason:
            budget.take(pod)
    return said


@pytest.fixture
def four(cluster: Any) -> Any:
    """p0 and p1 of owner x on node a, p2 of y on a, p3 of y on b."""
    for node in "ab":
        cluster.node(node)
    for name, node, owner in (("p0", "a", "x"), ("p1", "a", "x"), ("p2", "a", "y"), ("p3", "b", "y")):
        cluster.pod(name, node, owner=owner, labels={"app": owner})
    return cluster


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        pytest.param(Limits(), ["", "", "", ""], id="no limit"),
        pytest.param(Limits(total=0), ["LimitTotal"] * 4, id="none is a limit too"),
        pytest.param(Limits(total=3), ["", "", "", "LimitTotal"], id="in all"),
        pytest.param(Limits(per_node=1), ["", "LimitPerNode", "LimitPerNode", ""], id="from a node"),
        pytest.param(Limits(per_namespace=2), ["", "", "LimitPerNamespace", "LimitPerNamespace"], id="of a namespace"),
        pytest.param(Limits(per_owner=1), ["", "LimitPerOwner", "", "LimitPerOwner"], id="of an owner"),
        pytest.param(Limits(total=1, per_node=1), ["", "LimitTotal", "LimitTotal", "LimitTotal"], id="total first"),
    ],
)
def test_limits(four: Any, limits: Limits, said: list[str]) -> None:
    assert take_all(four, limits) == said


@pytest.mark.parametrize(("allowed", "said"), [(0, "DisruptionBudget"), (1, ""), (-1, "DisruptionBudget")])
def test_a_budget_is_counted_down_by_the_plan(four: Any, allowed: int, said: str) -> None:
    four.budget("b", allowed, {"app": "x"})
    assert take_all(four, Limits()) == [said, "DisruptionBudget", "", ""]


def test_the_sentence_names_the_limit_and_whose_it_is(four: Any) -> None:
    view = four.view()
    budget = Budget(Limits(per_node=0), view)
    _, text = budget.refusal(next(view.pods()))
    assert text == "maxNoOfPodsToEvictPerNode is 0, and so many of a go before it"
