"""Tenants who ask by annotation for more than their class has: on every one there is a ceiling."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tenants
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.model import keys
from koordlite.report.tick import Tick
from koordlite.strategies import cpu_burst, memory_qos, oom_score, resctrl

GIB = 2**30
BATCH = {keys.BATCH_CPU: "1000", keys.BATCH_MEMORY: "8Gi"}
OFF = {"memoryQOS": {"enable": False}}
ON = {"memoryQOS": {"enable": True, "minLimitPercent": 0, "lowLimitPercent": 0}}


@pytest.fixture
def node(tmp_path: Path) -> Emulated:
    return Emulated("intel-2s-ht", tmp_path)


def play(node: Emulated, *, ticks: int = 4, **sections: Any) -> list[Tick]:
    """What an agent does; `sections` replace those of its configuration."""
    settings = node.settings()
    chosen = {name: dataclasses.replace(section, mode="enforce") for name, section in sections.items()}
    settings = msgspec.structs.replace(settings, strategies={**settings.strategies, **chosen})
    with node.journal() as journal:
        return node.ticks(Agent(node.host(), node.cluster, settings, journal), ticks)


def said(ticks: list[Tick], strategy: str, pod: str) -> Any:
    (decision,) = tenants.about(ticks[-1], strategy, f"tenant/{pod}")
    return decision


def written(ticks: list[Tick], field: str) -> list[Any]:
    """The values that were written into files of this name."""
    return [step.value for tick in ticks for step in tick.applied if field in str(step.place) and not step.error]


# ── oom_score_adj ──


@pytest.mark.parametrize("key", [keys.OOM_SCORE_ADJ, keys.OOM_SCORE_ADJ_SPEC])
@pytest.mark.parametrize(
    ("requests", "floor"),
    [
        pytest.param({}, 1000, id="besteffort"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, 997, id="burstable"),
    ],
)
def test_nobody_goes_behind_kubelets_place_before_the_oom_killer(
    node: Emulated, key: str, requests: dict[str, str], floor: int
) -> None:
    text = "-1000" if key == keys.OOM_SCORE_ADJ else '{"main": -1000}'
    tenants.create(node, "last", "LS", annotations={key: text}, requests=requests)
    decision = said(ticks := play(node), "oomScore", "last")
    assert decision.reason == "OOMScoreClipped"
    assert decision.evidence["main"] == floor
    assert "-1000" in decision.evidence["clipped"]
    assert all(int(str(value)) >= floor for value in written(ticks, "oom_score_adj"))


def test_an_operator_may_lower_the_floor_of_a_class(node: Emulated) -> None:
    tenants.create(node, "last", "LS", annotations={keys.OOM_SCORE_ADJ: "-1000"}, requests={"cpu": "1"})
    assert (
        said(play(node, oomScore=oom_score.Config(burstable_floor=-500)), "oomScore", "last").evidence["main"] == -500
    )


# ── CPU burst ──

MORE_BURST = json.dumps({"policy": "auto", "cpuBurstPercent": 10000, "cfsQuotaBurstPercent": 100000})


@pytest.mark.parametrize("allowed", [False, True])
def test_cpu_burst_is_not_switched_on_by_an_annotation(node: Emulated, allowed: bool) -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    notes = {keys.CPU_BURST: MORE_BURST}
    tenants.create(node, "fast", "LS", annotations=notes, requests={"cpu": "500m"}, limits=limits, cpu="8")
    ticks = play(node, ticks=12, cpuBurst=cpu_burst.Config(annotations_may_raise=allowed))
    quotas = written(ticks, "uid_tenant_fast") + written(ticks, "cpu.burst")
    assert bool(quotas) is allowed
    decision = said(ticks, "cpuBurst", "fast")
    assert ("policy auto → none" in decision.evidence.get("clipped", "")) is not allowed


def test_cpu_burst_is_no_larger_than_the_nodes(node: Emulated) -> None:
    strategy = {"policy": "cpuBurstOnly", "cpuBurstPercent": 200}
    node.raw_slo({"cpu-burst-config": {"clusterStrategy": strategy}})
    tenants.create(node, "fast", "LS", annotations={keys.CPU_BURST: MORE_BURST}, limits={"cpu": "1"})
    decision = said(play(node), "cpuBurst", "fast")
    assert decision.evidence["policy"] == "cpuBurstOnly"
    assert "cpuBurstPercent 10000 → 200" in decision.evidence["clipped"]


# ── memory ──

ALL = {keys.MEMORY_QOS: json.dumps({"policy": "auto", "minLimitPercent": 100, "lowLimitPercent": 100})}


def test_memory_qos_is_not_switched_on_by_an_annotation(node: Emulated) -> None:
    node.raw_slo({"resource-qos-config": {"clusterStrategy": {"beClass": OFF, "lsClass": OFF}}})
    tenants.create(node, "kept", "BE", annotations=ALL, requests=BATCH)
    ticks = play(node)
    assert said(ticks, "memoryQos", "kept").reason == "MemoryQOSNotAllowed"
    assert not written(ticks, "memory.min")


@pytest.mark.parametrize(
    ("config", "together"),
    [
        pytest.param(memory_qos.Config(), 256 * GIB // 10, id="the class's cap"),
        pytest.param(memory_qos.Config(node_protection_percent=5), 256 * GIB // 20, id="the node's cap"),
    ],
)
def test_protection_of_all_annotated_pods_has_a_cap(node: Emulated, config: memory_qos.Config, together: int) -> None:
    node.raw_slo({"resource-qos-config": {"clusterStrategy": {"beClass": ON}}})
    requests = {keys.BATCH_CPU: "1000", keys.BATCH_MEMORY: "20Gi"}
    for number in range(10):
        tenants.create(node, f"p{number}", "BE", annotations=ALL, requests=requests)
    ticks = play(node, memoryQos=config)
    decisions = [said(ticks, "memoryQos", f"p{number}") for number in range(10)]
    sums = sum(decision.evidence["min_bytes"] for decision in decisions)
    assert together - 10 <= sums <= together
    assert all(f"min_bytes {20 * GIB} →" in decision.evidence["clipped"] for decision in decisions)


# ── resctrl ──


def asks(*, cache: tuple[int, int] | None = None, percent: int | None = None) -> dict[str, str]:
    text: dict[str, Any] = {}
    if cache is not None:
        text["llc"] = {"schemata": {"range": list(cache)}}
    if percent is not None:
        text["mb"] = {"schemata": {"percent": percent}}
    return {keys.POD_RESCTRL: json.dumps(text)}


@pytest.mark.parametrize("qos", ["BE", "LSR", ""])
@pytest.mark.parametrize(
    "notes",
    [
        pytest.param(asks(cache=(0, 100), percent=100), id="everything"),
        pytest.param(asks(percent=100), id="bandwidth only, and with it the whole cache"),
        pytest.param(asks(cache=(60, 100), percent=100), id="a part beside its class's"),
    ],
)
def test_a_group_of_its_own_is_within_the_range_of_the_pods_class(node: Emulated, qos: str, notes: Any) -> None:
    """BE has 30 % of the cache and 50 % of the bandwidth here; the label of a pod in its cgroup does not matter."""
    tenants.create(node, "wide", qos, annotations=notes, requests=BATCH)
    decision = said(play(node), "resctrl", "wide")
    assert decision.evidence["MB"] == "MB:0=50;1=50"
    masks = {int(part.partition("=")[2], 16) for part in decision.evidence["L3"].removeprefix("L3:").split(";")}
    assert all(mask.bit_count() <= 4 for mask in masks)
    assert "class BE has 0-30 %" in decision.evidence["clipped"]


def test_asking_for_nothing_is_no_way_out_of_the_class(node: Emulated) -> None:
    tenants.create(node, "out", "BE", annotations={keys.POD_RESCTRL: "{}"}, requests=BATCH)
    assert said(play(node), "resctrl", "out").reason == "ClassHolds"


def test_one_namespace_does_not_take_all_groups(node: Emulated) -> None:
    for number in range(20):
        tenants.create(node, f"p{number:02}", "LS", annotations=asks(percent=20), requests={"cpu": "1"})
    tenants.create(node, "late", "LS", namespace="zoo", annotations=asks(percent=20), requests={"cpu": "1"})
    ticks = play(node, resctrl=resctrl.Config(groups_per_namespace=2))
    reasons = [said(ticks, "resctrl", f"p{number:02}").reason for number in range(20)]
    assert reasons.count("PodSchemata") == 2
    assert reasons.count("NamespaceHasItsGroups") == 18
    assert tenants.about(ticks[-1], "resctrl", "zoo/late")[0].reason == "PodSchemata"


# ── disks ──


def test_disks_of_an_annotation_are_bounded_and_answered_once(node: Emulated) -> None:
    blocks = [{"name": f"/dev/none{n}", "type": "device", "ioCfg": {"readBPS": 1}} for n in range(40)]
    notes = {keys.BLKIO_QOS: json.dumps({"blocks": blocks})}
    tenants.create(node, "disks", "LS", annotations=notes, requests={"cpu": "1"})
    found = tenants.about(play(node)[-1], "blkio", "tenant/disks")
    assert sorted(decision.reason for decision in found) == ["BlockQOS", "NoSuchDisk"]
    assert {decision.evidence.get("clipped") for decision in found} == {None, "24 more disks are left out"}
