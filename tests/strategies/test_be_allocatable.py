"""What is promised to best-effort pods, when it is published, and when it is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite import changes
from koordlite.changes.published import NodeAnnotationChange, NodeResourceChange, ZoneResourceChange
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.node import Node, ResolvedReservation
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.picture.published import Published
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, Colocation
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire.objects import Zone, ZoneResource
from koordlite.strategies import be_allocatable, discover

RULE = next(rule for rule in discover() if rule.module == "be_allocatable")

GIB = 2**30
CPU, MEMORY = f"node/{keys.BATCH_CPU}", f"node/{keys.BATCH_MEMORY}"


def decide(seen: Snapshot) -> dict[str, Decision]:
    return {d.subject: d for d in RULE.answer(seen, be_allocatable.Config())}


def published(cpu: int | None, memory: int | None, at: float | None = 999.0, zones: tuple[Zone, ...] = ()) -> Published:
    last_sync = {} if at is None else dict.fromkeys(map(changes.parse, (CPU, MEMORY)), at)
    return Published({keys.BATCH_CPU: cpu, keys.BATCH_MEMORY: memory}, {}, zones=zones, last_sync=last_sync)


def colocation(**given: Any) -> SLO:
    return SLO(colocation=Colocation(**{"enable": True, **given}))


def test_every_term_of_the_formula_is_evidence(build: Any) -> None:
    web = build.pod("web", "LS", priority=9500, requests={"cpu": Quantity.of(2)})
    found = decide(build.snapshot(pods=(web,), usage=build.used(2500, web=1500)))
    terms = {"capacity": 8000, "margin": 3200, "system": 1000, "hp": 1500, "hp_request": 2000, "policy": "usage"}
    assert terms.items() <= dict(found[CPU].evidence).items()
    assert found[CPU].evidence["result"] == 8000 - 3200 - 1000 - 1500
    assert NodeResourceChange(keys.BATCH_CPU, 2300) in found[CPU].changes
    margin = 32 * GIB * 35 // 100
    assert found[MEMORY].evidence["result"] == 32 * GIB - margin - 3 * GIB - 1 * GIB


def test_reserved_cpu_is_not_promised(build: Any) -> None:
    reserved = ResolvedReservation(CPUSet([0, 4]), {"cpu": Quantity.of(2)})
    found = decide(build.snapshot(reserved=reserved))[CPU]
    assert (found.evidence["node_reserved"], found.evidence["result"]) == (2000, 8000 - 3200 - 2000)


def test_the_node_never_promises_less_than_nothing(build: Any) -> None:
    assert decide(build.snapshot(usage=build.used(8000)))[CPU].evidence["result"] == 0


@pytest.mark.parametrize(
    ("held", "since", "verdict"),
    [
        pytest.param(None, 1.0, "set", id="a node that has none gets it"),
        pytest.param(4800, 1.0, "hold", id="the same amount is not written again"),
        pytest.param(4500, 1.0, "hold", id="a change below resourceDiffThreshold waits"),
        pytest.param(4000, 1.0, "set", id="a larger one is written at once"),
        pytest.param(4799, 301.0, "set", id="after updateTimeThresholdSeconds it is written in any case"),
    ],
)
def test_when_it_is_published(build: Any, held: int | None, since: float, verdict: str) -> None:
    memory = 32 * GIB - 32 * GIB * 35 // 100 - 4 * GIB
    found = decide(build.snapshot(published=published(held, memory, 1000.0 - since)))[CPU]
    assert (found.verdict, found.evidence["result"]) == (verdict, 4800)


def test_disabled_takes_the_resources_back(build: Any) -> None:
    seen = build.snapshot(slo=colocation(enable=False), published=published(1000, None))
    found = decide(seen)
    assert (found[CPU].verdict, found[CPU].reason) == ("release", "ColocationDisabled")
    assert found[CPU].changes == (NodeResourceChange(keys.BATCH_CPU, None),)
    assert (found[MEMORY].verdict, found[MEMORY].changes) == ("hold", ())


@pytest.mark.parametrize(
    ("age", "verdict", "reason"),
    [
        pytest.param(10.0, "hold", "NoMetrics", id="without usage the promise stands for a while"),
        pytest.param(15 * 60 + 1.0, "release", "DegradedNoMetrics", id="after degradeTimeMinutes it is taken back"),
    ],
)
def test_without_usage(build: Any, age: float, verdict: str, reason: str) -> None:
    seen = build.snapshot(usage=build.used(None), ages={"usage": age}, published=published(1000, 1000))
    assert {(d.verdict, d.reason) for d in decide(seen).values()} == {(verdict, reason)}


def test_without_a_node_it_says_so(build: Any) -> None:
    (decision,) = decide(build.snapshot(node=None)).values()
    assert (decision.verdict, decision.reason) == ("skip", "NoNode")


# ── on the way to the Node ──


def test_cpu_and_memory_are_published_together(build: Any) -> None:
    memory = 32 * GIB - 32 * GIB * 35 // 100 - 4 * GIB
    found = decide(build.snapshot(published=published(4800, memory // 2)))
    assert {d.verdict for d in found.values()} == {"set"}
    assert found[CPU].changes[0] == NodeResourceChange(keys.BATCH_CPU, 4800)


def test_a_faster_machine_offers_more_of_the_same(build: Any) -> None:
    found = decide(build.snapshot(notes=NodeNotes(cpu_normalization=1.25)))[CPU]
    assert (found.evidence["result"], found.evidence["normalization_ratio"]) == (4800, 1.25)
    assert found.changes[0] == NodeResourceChange(keys.BATCH_CPU, 6000)


def test_what_third_parties_took_is_not_offered_twice(build: Any) -> None:
    found = decide(build.snapshot(notes=NodeNotes(third_party={keys.BATCH_CPU: Quantity.of(1000)})))[CPU]
    terms = {"result": 4800, "offered": 4800, "third_party": 1000, "left": 3800}
    assert terms.items() <= dict(found.evidence).items()
    origin = '{"resources":{"kubernetes.io/batch-cpu":"4800","kubernetes.io/batch-memory":"18038862644"}}'
    assert found.changes == (
        NodeResourceChange(keys.BATCH_CPU, 3800),
        NodeAnnotationChange(keys.ORIGIN_ALLOCATABLE, origin),
    )


def test_kubelets_part_survives_an_amplification(build: Any) -> None:
    amounts = {"cpu": Quantity.of(8), "memory": Quantity.of(32 * GIB)}
    node = Node(name="node-a", capacity=amounts, allocatable={**amounts, "cpu": Quantity.of(12)})
    notes = NodeNotes(raw_allocatable={"cpu": Quantity.of(6)})
    assert decide(build.snapshot(node=node, notes=notes))[CPU].evidence["node_reserved"] == 2000


# ── zones ──


def zone(number: int, *more: ZoneResource, cpu: str = "4", name: str = "") -> Zone:
    sizes = (("cpu", cpu), ("memory", "16Gi"))
    own = tuple(ZoneResource(name=n, capacity=a, allocatable=a, available=a) for n, a in sizes)
    return Zone(name=name or f"node-{number}", type="Node", resources=(*own, *more))


def held(amount: str, name: str = keys.BATCH_CPU) -> ZoneResource:
    return ZoneResource(name=name, capacity=amount, allocatable=amount, available=amount)


def test_zones_are_offered_their_part(build: Any) -> None:
    seen = build.snapshot(usage=build.used(1000), published=published(None, None, zones=(zone(0), zone(1))))
    found = decide(seen)["zone/node-1"]
    assert (found.verdict, found.reason) == ("set", "ZoneAllocatable")
    assert {"result_milli": 4000 - 1600 - 500, "capacity_milli": 4000}.items() <= dict(found.evidence).items()
    assert found.evidence["result_bytes"] == 16 * GIB - 16 * GIB * 35 // 100 - 2 * GIB
    changes = {c.resource: c.value for c in found.changes if isinstance(c, ZoneResourceChange)}
    assert changes[keys.BATCH_CPU] == held("1900")


def test_without_zones_there_is_nothing_to_offer_them(build: Any) -> None:
    assert set(decide(build.snapshot())) == {CPU, MEMORY}


def test_a_zone_is_written_again_only_for_a_difference(build: Any) -> None:
    # A look earlier than the first write of this run is time in any case, so the second look is what counts.
    offered, memory = held("2400"), held("9019431322", keys.BATCH_MEMORY)
    zones = (zone(0, offered, memory), zone(1))
    last = {f"noderesourcetopology/zones/node-0/{keys.BATCH_CPU}": 999.0}
    seen = build.snapshot(published=Published({}, {}, zones=zones, last_sync=last))
    assert decide(seen)["zone/node-0"].verdict == "hold"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        pytest.param(zone(0, held("9"), cpu="many"), "many", id="a size nobody can read"),
        pytest.param(zone(0, held("9"), name="socket-0"), "no NUMA node", id="not a NUMA node"),
    ],
)
def test_a_zone_without_a_size_gives_back_what_it_had(build: Any, broken: Zone, why: str) -> None:
    found = decide(build.snapshot(published=published(None, None, zones=(broken, zone(1)))))[f"zone/{broken.name}"]
    assert (found.verdict, found.reason) == ("release", "NoZoneSize")
    assert why in str(found.evidence["why"])
    assert found.changes == (ZoneResourceChange(broken.name, keys.BATCH_CPU, None),)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"slo": colocation(enable=False)}, "ColocationDisabled", id="disabled"),
        pytest.param({"usage": None, "ages": {"usage": 901.0}}, "DegradedNoMetrics", id="degraded"),
    ],
)
def test_zones_give_back_when_the_node_does(build: Any, changes: dict[str, Any], reason: str) -> None:
    usage = {"usage": build.used(None)} if "usage" in changes else {}
    there = published(1000, 1000, zones=(zone(0, held("500")), zone(1)))
    found = decide(build.snapshot(**{**changes, **usage, "published": there}))
    assert {d.reason for d in found.values()} == {reason}
    assert found["zone/node-0"].changes == (ZoneResourceChange("node-0", keys.BATCH_CPU, None),)
    assert "zone/node-1" not in found


def test_what_an_earlier_run_published_stays_until_the_use_window_is_filled(build: Any) -> None:
    zone = Zone(
        name="node-0",
        type="Node",
        resources=(
            ZoneResource(name="cpu", capacity="8", allocatable="8"),
            ZoneResource(name="memory", capacity="32Gi", allocatable="32Gi"),
            ZoneResource(name=keys.BATCH_CPU, capacity="260", allocatable="260", available="260"),
            ZoneResource(name=keys.BATCH_MEMORY, capacity="1Gi", allocatable="1Gi", available="1Gi"),
        ),
    )
    standing = published(260, GIB, at=None, zones=(zone,))

    def decisions(left: float, state: Published = standing) -> dict[str, Decision]:
        return decide(build.snapshot(published=state, use_window_left_seconds=left))

    found = decisions(299.0)
    assert {(d.verdict, d.reason, d.changes) for d in found.values()} == {("hold", "UseWindowFilling", ())}
    terms = {"published": 260, "atLeastSeconds": 1, "windowLeftSeconds": 299, "result": 4800}
    assert terms.items() <= dict(found[CPU].evidence).items()
    assert {d.verdict for d in decisions(0.0).values()} == {"set"}, "the window is filled"
    first = decisions(299.0, published(None, None, at=None))
    assert first[CPU].verdict == "set", "a node that has none gets its first at once"
    own = decisions(299.0, published(260, GIB))
    assert (own[CPU].verdict, own[CPU].reason) == ("set", "BatchAllocatable"), "what this run wrote follows its use"
