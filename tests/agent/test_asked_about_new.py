"""What rules say of themselves about new containers (`NEW_CONTAINERS`) holds: to see less changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from emulated import RESCTRL, Emulated

from koordlite import fast_path, strategies
from koordlite.model.decision import Decision
from koordlite.model.snapshot import Snapshot
from koordlite.observe import fast_snapshot

Make = Callable[..., Emulated]
CLASSES = ("lsrClass", "lsClass", "beClass")
QOS = {
    name: {
        **RESCTRL[name],
        "cpuQOS": {"enable": True, "groupIdentity": -1 if name == "beClass" else 2, "schedIdle": 1},
        "memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 80, "throttlingPercent": 80},
    }
    for name in CLASSES
}


@pytest.fixture
def seen(emulate: Make) -> Snapshot:
    """A node with pods of all classes that ask for much, of which one has no group yet, and nothing written."""
    node = emulate("intel-2s-ht")
    node.raw_slo(
        {
            "resource-qos-config": {"clusterStrategy": {"policies": {"cpuPolicy": "coreSched"}, **QOS}},
            "cpu-burst-config": {"clusterStrategy": {"policy": "auto"}},
            "colocation-config": {"enable": True},
        }
    )
    for number, (qos, labels) in enumerate(
        [
            ("LS", {"koordinator.sh/core-sched-group-id": "a"}),
            ("LSR", {}),
            ("BE", {}),
            ("BE", {"koordinator.sh/core-sched-policy": "exclusive"}),
            ("LS", {}),
        ]
    ):
        node.pod(f"p{number}", qos, "500m", memory="1Gi", labels=labels)
    agent = node.agent(None, "enforce")
    agent.tick()
    assert agent.snapshot is not None
    hidden = next(pod.uid for pod in agent.snapshot.pods if pod.name == "p4")
    places = {uid: place for uid, place in agent.snapshot.places.items() if uid != hidden}
    return dataclasses.replace(agent.snapshot, places=places)


def said(rule: strategies.Strategy, seen: Snapshot, group: str) -> tuple[Decision, ...]:
    """What would be written into a group."""
    settings = {rule.name: dataclasses.replace(rule.config(), mode="enforce")}
    return fast_path.about(strategies.judge(rule, seen, settings), {group})


@pytest.mark.parametrize("rule", strategies.discover(), ids=lambda rule: rule.name)
def test_what_a_rule_does_not_see_would_change_nothing(rule: strategies.Strategy, seen: Snapshot) -> None:
    groups = [group for place in seen.places.values() for group in place.all]
    assert len(groups) > 12
    for group in groups:
        part = fast_snapshot.of_groups(seen, {group})
        if rule.new_containers == "none":
            assert said(rule, part, group) == ()
        elif rule.new_containers == "theirs":
            alone = dataclasses.replace(part, pods=tuple(pod for pod in part.pods if pod.uid in part.places))
            assert said(rule, alone, group) == said(rule, part, group)


def test_something_is_said_at_all(seen: Snapshot) -> None:
    groups = [group for place in seen.places.values() for group in place.all]
    rules = [rule for rule in strategies.discover() if rule.new_containers == "theirs"]
    speaking = {
        rule.name for rule in rules for group in groups if said(rule, fast_snapshot.of_groups(seen, {group}), group)
    }
    assert {"batchResource", "memoryQos"} <= speaking, speaking
