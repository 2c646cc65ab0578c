"""What the Node says its CPUs are worth, and by how much its resources are promised over what there is."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite.changes.published import NodeAnnotationChange
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.node import Node
from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, CPUNormalization, ResourceAmplification
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import Strategy, cpu_normalization, discover, resource_amplification

XEON = CPUBasicInfo(model="Xeon", hyper_threads=True)
ON = SLO(cpu_normalization=CPUNormalization(enable=True, default_ratio=1.2))


def normalized(seen: Snapshot) -> Decision:
    (decision,) = cpu_normalization.decide(seen, cpu_normalization.Config())
    return decision


def amplified(seen: Snapshot) -> Decision:
    (decision,) = resource_amplification.decide(seen, resource_amplification.Config())
    return decision


@pytest.mark.parametrize(
    ("held", "verdict", "changes"),
    [
        pytest.param(None, "set", (NodeAnnotationChange(keys.CPU_NORMALIZATION_RATIO, "1.20"),), id="none yet"),
        pytest.param(1.2, "hold", (), id="the same"),
        pytest.param(1.205, "hold", (), id="close to it"),
        pytest.param(1.22, "set", (NodeAnnotationChange(keys.CPU_NORMALIZATION_RATIO, "1.20"),), id="another"),
    ],
)
def test_the_ratio_is_written_where_it_differs(build: Any, held: float | None, verdict: str, changes: Any) -> None:
    found = normalized(build.snapshot(slo=ON, cpu_info=XEON, notes=NodeNotes(cpu_normalization=held)))
    assert (found.verdict, found.reason, found.changes) == (verdict, "CPURatio", changes)
    assert dict(found.evidence) == {"ratio": "1.20", "model": "Xeon", "hyperThreads": "on", "turbo": "off"}


def test_switched_off_it_goes_back_to_one_where_there_was_one(build: Any) -> None:
    found = normalized(build.snapshot(cpu_info=XEON, notes=NodeNotes(cpu_normalization=1.2)))
    assert (found.verdict, found.reason) == ("set", "NormalizationDisabled")
    assert found.changes == (NodeAnnotationChange(keys.CPU_NORMALIZATION_RATIO, "1.00"),)
    assert normalized(build.snapshot(cpu_info=XEON)).changes == ()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"slo": SLO(cpu_normalization=CPUNormalization(enable=True))}, "no ratio for CPU model 'Xeon'"),
        ({"slo": ON, "cpu_info": CPUBasicInfo()}, "not known"),
        ({"node": Node(name="n", labels={keys.CPU_NORMALIZATION_ENABLED: "maybe"})}, "neither true nor false"),
    ],
    ids=["not configured", "machine not known", "bad label"],
)
def test_without_a_usable_ratio_the_node_keeps_its_own(build: Any, changes: dict[str, Any], why: str) -> None:
    found = normalized(build.snapshot(**{"cpu_info": XEON, **changes}))
    assert (found.verdict, found.reason, found.changes) == ("refuse", "NoCPURatio", ())
    assert why in str(found.evidence["why"])


def node(held: str = "") -> Node:
    return Node(name="n", annotations={keys.AMPLIFICATION_RATIO: held} if held else {})


TWICE = SLO(resource_amplification=ResourceAmplification(enable=True, resource_amplification_ratio={"memory": 2}))


@pytest.mark.parametrize(
    ("changes", "verdict", "reason", "text"),
    [
        pytest.param({"slo": TWICE}, "set", "ResourcesAmplified", '{"memory":2.00}', id="written"),
        pytest.param(
            {"slo": TWICE, "node": node(held='{"memory":2.00}')}, "hold", "ResourcesAmplified", "", id="there"
        ),
        pytest.param({"node": node(held='{"cpu":2.00}')}, "release", "NothingAmplified", None, id="removed"),
        pytest.param({}, "hold", "NothingAmplified", "", id="nothing to say"),
        pytest.param(
            {"notes": NodeNotes(cpu_normalization=1.3)}, "set", "ResourcesAmplified", '{"cpu":1.30}', id="worth of CPUs"
        ),
    ],
)
def test_ratios_are_written_where_they_differ(
    build: Any, changes: dict[str, Any], verdict: str, reason: str, text: str | None
) -> None:
    found = amplified(build.snapshot(**{"node": node(), **changes}))
    assert (found.verdict, found.reason) == (verdict, reason)
    assert found.changes == (() if text == "" else (NodeAnnotationChange(keys.AMPLIFICATION_RATIO, text),))


def test_a_ratio_below_one_leaves_what_is_there(build: Any) -> None:
    slo = SLO(resource_amplification=ResourceAmplification(enable=True, resource_amplification_ratio={"memory": 0.5}))
    found = amplified(build.snapshot(slo=slo, node=node(held="old")))
    assert (found.verdict, found.reason, found.changes) == ("refuse", "BadAmplification", ())


@pytest.mark.parametrize("rule", [rule for rule in discover() if rule.without_node], ids=lambda rule: rule.name)
def test_without_a_node_they_say_so(build: Any, rule: Strategy) -> None:
    (found,) = rule.answer(build.snapshot(node=None), rule.config())
    assert (found.verdict, found.reason) == ("skip", "NoNode")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param({}, "AmplificationNeedsWebhook", id="nobody multiplies"),
        pytest.param({"cpu": Quantity.of(8)}, "ResourcesAmplified", id="the webhook is at work"),
    ],
)
def test_ratios_without_the_webhook_come_to_nothing_and_say_so(build: Any, raw: Any, reason: str) -> None:
    settings = ResourceAmplification(enable=True, resource_amplification_ratio={"cpu": 1.5})
    held = Node(
        name="n",
        annotations={keys.AMPLIFICATION_RATIO: '{"cpu":1.50}'},
        allocatable={"cpu": Quantity.of(8), "memory": Quantity.of(1)},
    )
    seen = build.snapshot(slo=SLO(resource_amplification=settings), node=held, notes=NodeNotes(raw_allocatable=raw))
    found = amplified(seen)
    assert (found.reason, found.changes) == (reason, ())
    if not raw:
        assert found.evidence["allocatable"] == "cpu 8"
