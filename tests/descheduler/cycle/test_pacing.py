"""Windows, pauses between pods of one owner, and limits that are a part of an owner's pods."""

from __future__ import annotations

from typing import Any

import pytest

from descheduler.cycle import planner
from descheduler.history.past_evictions import Move, Past
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from koordlite.model.errors import ConfigError

RESERVED = {"reservedCPUs": "0-1"}
PROFILE = """
profiles:
- name: test
  pluginConfig:
  - name: ReservedCPUs
    args: {byQuantity: false}
  plugins: {deschedule: {enabled: [ReservedCPUs]}}
"""
OPEN_LATER = "windows: [{days: [Thu], start: '22:00', end: '04:00'}]\n"
OPEN = "windows: [{days: [Thu], start: '11:00', end: '13:00'}, {days: [Mon]}]\n"


def verdicts(plan: EvictionPlan) -> list[str]:
    return [o.reasons[0].reason if o.reasons else "goes" for o in plan.outcomes]


@pytest.fixture
def three(cluster: Any) -> Any:
    """Three pods of one owner, all on reserved CPUs."""
    for name in ("a", "b"):
        cluster.node(name)
        cluster.report(name)
    cluster.objects[0]["metadata"]["annotations"]["node.koordinator.sh/reservation"] = '{"reservedCPUs":"0-2"}'
    for number in range(3):
        cluster.pinned(f"p-{number}", "a", f"{number},{number + 4}", owner="app")
    return cluster


def test_outside_of_the_windows_a_plan_is_made_and_nobody_goes(three: Any) -> None:
    plan = three.plan(OPEN_LATER + PROFILE)
    assert verdicts(plan) == ["OutsideWindow"] * 3
    assert plan.kept[0].reasons[0].text == "no window for evictions is open; the next one opens at 2026-01-01T22:00:00Z"
    assert verdicts(three.plan(OPEN + PROFILE)) == ["goes"] * 3


def test_one_pod_of_an_owner_at_a_time(three: Any) -> None:
    plan = three.plan("minDelayPerOwner: 5m\n" + PROFILE)
    assert verdicts(plan) == ["goes", "OwnerDelay", "OwnerDelay"]


@pytest.mark.parametrize(
    ("ago", "first"), [pytest.param(299, "OwnerDelay", id="too soon"), pytest.param(300, "goes", id="long enough")]
)
def test_the_pause_holds_across_cycles(three: Any, ago: float, first: str) -> None:
    view, setup = three.view(), reader.setup(reader.parse("minDelayPerOwner: 5m\n" + PROFILE, "policy.yaml"))
    noon = 1767268800.0
    history = {"ReplicaSet/default/app": Past(noon, {}, (Move(noon - ago, "default/p", "a"),))}
    assert verdicts(planner.plan(view, setup, history=history))[0] == first


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        pytest.param("2", 2, id="a number"),
        pytest.param("70%", 2, id="a part, rounded down"),
        pytest.param("10%", 1, id="at least one"),
        pytest.param("100%", 3, id="all"),
        pytest.param("0%", 0, id="none at all"),
    ],
)
def test_a_limit_may_be_a_part_of_the_owners_pods(three: Any, limit: str, most: int) -> None:
    plan = three.plan(f"maxNoOfPodsToEvictPerOwner: {limit}\n" + PROFILE)
    assert verdicts(plan) == ["goes"] * most + ["LimitPerOwner"] * (3 - most)


def test_a_part_is_told_with_what_it_comes_to(three: Any) -> None:
    plan = three.plan("maxNoOfPodsToEvictPerOwner: 70%\n" + PROFILE)
    words = "maxNoOfPodsToEvictPerOwner is 70% (2), and so many of ReplicaSet/default/app go before it"
    assert plan.kept[0].reasons[0].text == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("maxNoOfPodsToEvictPerOwner: -1", "percentage like 10%", id="a negative limit"),
        pytest.param("maxNoOfPodsToEvictPerOwner: 101%", "percentage like 10%", id="more than all"),
        pytest.param("minDelayPerOwner: soon", "duration like 90s", id="no duration"),
        pytest.param("windows: [{start: '25:00'}]", "time of day", id="no time of day"),
        pytest.param("windows: [{timeZone: Mars/Phobos}]", "tz database", id="no time zone"),
        pytest.param("windows: [{days: [Funday]}]", "Funday", id="no day"),
        pytest.param("loops: {maxRounds: 0}", "maxRounds", id="no round at all"),
    ],
)
def test_mistakes_are_refused_with_their_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        reader.parse(f"{text}\n{PROFILE}", "policy.yaml")
    assert words in str(refused.value)
    assert "policy.yaml:1" in str(refused.value)
