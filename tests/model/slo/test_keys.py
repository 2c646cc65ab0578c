"""Every key of the ConfigMap: what holds, and where it came from."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.slo import config, qos
from koordlite.model.slo.qos import CPUQOS, MemoryQOS, ResourceQOS
from koordlite.model.slo.settings import SLO, Colocation, CPUBurst, System, collect_policy

QOS, SYSTEM, THRESHOLD = "resource-qos-config", "system-config", "resource-threshold-config"
MINE = {"matchLabels": {"pool": "batch"}}


def effective(data: Any, labels: Any = None, annotations: Any = None, previous: SLO | None = None) -> SLO:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}
    return config.effective(
        texts, labels={"pool": "batch"} | (labels or {}), annotations=annotations or {}, previous=previous
    )


def in_layers(key: str, cluster: dict[str, Any], group: dict[str, Any]) -> dict[str, Any]:
    grouped = {"nodeSelector": MINE, **group}
    if key in ("colocation-config", "cpu-normalization-config", "resource-amplification-config"):
        return {key: {**cluster, "nodeConfigs": [grouped]}}
    return {key: {"clusterStrategy": cluster, "nodeStrategies": [grouped]}}


@pytest.mark.parametrize(
    ("key", "attribute", "cluster", "group", "held"),
    [
        (
            "cpu-burst-config",
            "cpu_burst",
            {"policy": "auto", "cpuBurstPercent": 500},
            {"cpuBurstPercent": 100, "policy": ""},
            {"policy": "auto", "cpu_burst_percent": 100, "cfs_quota_burst_percent": 300},
        ),
        (
            SYSTEM,
            "system",
            {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "10G", "schedFeatures": {"A": True, "B": True}},
            {"watermarkScaleFactor": 150, "schedFeatures": {"B": False}},
            {
                "min_free_kbytes_factor": 100,
                "watermark_scale_factor": 150,
                "total_network_bandwidth": Quantity.parse("10G"),
                "sched_features": {"A": True, "B": False},
            },
        ),
        (
            "cpu-normalization-config",
            "cpu_normalization",
            {"enable": True, "defaultRatio": 1.1},
            {"ratioModel": {"X 1": {"baseRatio": 1.5}}},
            {"enable": True, "default_ratio": 1.1},
        ),
        (
            "resource-amplification-config",
            "resource_amplification",
            {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5, "memory": 1.2}},
            {"resourceAmplificationRatio": {"cpu": 1}},
            {"enable": True, "resource_amplification_ratio": {"cpu": 1.0, "memory": 1.2}},
        ),
        (
            "colocation-config",
            "colocation",
            {"midReclaimMode": "static", "midUnallocatedPercent": 20, "extensions": {"x": 1}},
            {"midUnallocatedPercent": 0, "extensions": {"y": [2]}},
            {"mid_reclaim_mode": "static", "mid_unallocated_percent": 0, "extensions": {"x": 1, "y": [2]}},
        ),
    ],
)
def test_a_group_lies_over_the_cluster(key: str, attribute: str, cluster: Any, group: Any, held: Any) -> None:
    found = effective(in_layers(key, cluster, group))
    part = getattr(found, attribute)
    assert {name: getattr(part, name) for name in held} == held
    assert not found.problems


@pytest.mark.parametrize(
    ("key", "given", "path"),
    [
        ("cpu-burst-config", {"cpuBurstPercent": 10_001}, "cpuBurstPercent"),
        ("cpu-burst-config", {"cfsQuotaBurstPercent": 99}, "cfsQuotaBurstPercent"),
        ("cpu-burst-config", {"cfsQuotaBurstPeriodSeconds": -2}, "cfsQuotaBurstPeriodSeconds"),
        (SYSTEM, {"minFreeKbytesFactor": 0}, "minFreeKbytesFactor"),
        (SYSTEM, {"watermarkScaleFactor": 401}, "watermarkScaleFactor"),
        (SYSTEM, {"memcgReapBackGround": 2}, "memcgReapBackGround"),
        (QOS, {"lsClass": {"cpuQOS": {"groupIdentity": 3}}}, "lsClass.cpuQOS.groupIdentity"),
        (QOS, {"cgroupRoot": {"memoryQOS": {"wmarkMinAdj": 51}}}, "cgroupRoot.memoryQOS.wmarkMinAdj"),
        (QOS, {"systemClass": {"memoryQOS": {"wmarkScalePermill": 0}}}, "systemClass.memoryQOS.wmarkScalePermill"),
        (THRESHOLD, {"cpuEvictTimeWindowSeconds": 0}, "cpuEvictTimeWindowSeconds"),
        (THRESHOLD, {"allocatableEvictPriorityThreshold": 8000}, "allocatableEvictPriorityThreshold"),
        (THRESHOLD, {"memoryEvictLowerPercent": 70}, ""),
        (THRESHOLD, {"cpuEvictBESatisfactionUpperPercent": 20, "cpuEvictBESatisfactionLowerPercent": 30}, ""),
    ],
)
def test_ranges_of_the_webhook_hold_for_cluster_and_group(key: str, given: Any, path: str) -> None:
    refused = effective({key: {"clusterStrategy": given}})
    assert key in refused.kept
    assert refused.problems[0].field == f"{key}.clusterStrategy{f'.{path}' if path else ''}"
    left = effective({key: {"clusterStrategy": {}, "nodeStrategies": [{"nodeSelector": {}, **given}]}})
    assert not left.kept
    assert left.problems[0].field == f"{key}.nodeStrategies[0]{f'.{path}' if path else ''}"
    assert "the cluster's strategy holds" in left.problems[0].do
    assert (left.cpu_burst, left.system, left.threshold) == (CPUBurst(), System(), SLO().threshold)


def test_one_end_of_a_pair_alone_is_accepted() -> None:
    found = effective({THRESHOLD: {"clusterStrategy": {"memoryEvictThresholdPercent": 80}}})
    assert found.threshold.memory_evict_threshold_percent == 80
    assert not found.problems


def test_a_class_that_is_on_has_its_defaults_below_what_is_written() -> None:
    given = {"lsrClass": {"cpuQOS": {"enable": True}}, "beClass": {"memoryQOS": {"enable": True, "wmarkRatio": 80}}}
    held = effective({QOS: {"clusterStrategy": given}}).resource_qos
    assert held.lsr_class.cpu_qos == CPUQOS(enable=True, group_identity=2, core_expeller=True)
    assert held.be_class.memory_qos == MemoryQOS(enable=True, wmark_ratio=80, wmark_scale_permill=20, wmark_min_adj=50)
    assert held.ls_class == ResourceQOS().ls_class


def test_a_part_that_is_off_is_reset_whatever_is_written_and_its_origin_says_so() -> None:
    found = effective({QOS: {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": False, "groupIdentity": -1}}}}})
    assert found.resource_qos == ResourceQOS()
    assert found.origins == {
        "resourceQOS.beClass.cpuQOS.enable": "cluster",
        "resourceQOS.beClass.cpuQOS.groupIdentity": "off: enable is false",
    }


def test_system_class_and_root_are_never_reset() -> None:
    root = {"blkioQOS": {"blocks": [{"name": "vda", "type": "device", "ioCfg": {"readIOPS": 5}}]}}
    given = {"systemClass": {"cpuQOS": {"groupIdentity": 1}}, "cgroupRoot": root}
    held = effective({QOS: {"clusterStrategy": given}}).resource_qos
    assert held.system_class.cpu_qos.group_identity == 1
    assert held.cgroup_root.blkio_qos.blocks[0].io_cfg.read_iops == 5


def test_a_list_of_a_group_takes_the_place_of_the_clusters() -> None:
    blocks = [{"name": "a", "type": "device", "ioCfg": {"readIOPS": 1}}, {"name": "b"}]
    cluster, group = ({"cgroupRoot": {"blkioQOS": {"blocks": each}}} for each in (blocks, [{"name": "c"}]))
    held = effective(in_layers(QOS, cluster, group)).resource_qos.cgroup_root.blkio_qos.blocks
    assert held == (qos.Block(name="c"),)


@pytest.mark.parametrize(
    ("text", "bandwidth", "problems"),
    [("99M", "99M", 0), ("", "10G", 0), ("fast", "10G", 1)],
    ids=["a node knows best", "no text", "one that cannot be read is reported"],
)
def test_bandwidth_of_a_node(text: str, bandwidth: str, problems: int) -> None:
    data = {SYSTEM: {"clusterStrategy": {"totalNetworkBandwidth": "10G", "minFreeKbytesFactor": 7}}}
    found = effective(data, annotations={keys.NETWORK_BANDWIDTH: text})
    assert found.system.total_network_bandwidth == Quantity.parse(bandwidth)
    assert found.system.min_free_kbytes_factor == 7
    assert len(found.problems) == problems


@pytest.mark.parametrize(
    ("label", "enabled", "problems"), [("true", True, 0), ("F", False, 0), ("{]", False, 1), ("", False, 1)]
)
def test_normalization_of_a_node(label: str, enabled: bool, problems: int) -> None:
    found = effective({}, labels={keys.CPU_NORMALIZATION_ENABLED: label})
    assert found.cpu_normalization.enable is enabled
    assert len(found.problems) == problems


def test_a_node_in_two_groups_is_reported() -> None:
    groups = [{"name": "one", "nodeSelector": MINE}, {"nodeSelector": {}, "cpuSuppressThresholdPercent": 1}]
    found = effective({THRESHOLD: {"nodeStrategies": groups}})
    assert found.threshold == SLO().threshold
    assert found.problems[0].field == f"{THRESHOLD}.nodeStrategies[1].nodeSelector"
    assert "node strategy one" in found.problems[0].why


def test_the_last_good_document_is_read_for_the_node_as_it_is_today() -> None:
    good = {
        THRESHOLD: {"clusterStrategy": {"enable": True}, "nodeStrategies": [{"nodeSelector": MINE, "enable": False}]}
    }
    held = effective(good)
    elsewhere = config.effective({THRESHOLD: "{"}, labels={"pool": "web"}, annotations={}, previous=held)
    assert (held.threshold.enable, elsewhere.threshold.enable) == (False, True)
    assert elsewhere.kept == {THRESHOLD: "the last good values stay in force"}
    assert len(elsewhere.problems) == 1


def test_a_key_that_is_gone_is_not_kept() -> None:
    held = effective({THRESHOLD: {"clusterStrategy": {"enable": True}}})
    gone = effective({}, previous=held)
    assert (gone.threshold.enable, gone.kept) == (False, {})
    assert not effective({THRESHOLD: "{"}, previous=gone).threshold.enable


def test_usage_is_measured_as_the_strategy_asks_while_it_is_on() -> None:
    asked = Colocation(enable=True, metric_aggregate_duration_seconds=60)
    off = msgspec.structs.replace(asked, enable=False)
    assert collect_policy(asked) is asked
    assert collect_policy(off).metric_aggregate_duration_seconds == 300
