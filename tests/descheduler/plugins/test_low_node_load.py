"""Pods leave nodes that are too full by measured use, once they have been so for long enough."""

from __future__ import annotations

from typing import Any

import handles
import pytest

from descheduler.framework import Verdict, View
from descheduler.plugins import low_node_load as plugin
from descheduler.utilization.load_args import Config
from koordlite.model import keys
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict

AT_ONCE = "anomalyCondition: {consecutiveAbnormalities: 1}\n"
BOUNDS = "highThresholds: {cpu: 50}\nlowThresholds: {cpu: 30}\n"
LATER = "2026-01-01T12:{:02}:00Z"


@pytest.fixture
def loaded(cluster: Any) -> Any:
    """Node a uses 8 of its 10 CPUs in eight pods that request little; b uses 1, c 4."""
    for name, pods in (("a", 8), ("b", 1), ("c", 4)):
        cluster.node(name, cpu="10")
        for number in range(pods):
            cluster.pod(f"{name}{number}", name, cpu="100m")
        metric(cluster, name, {f"{name}{number}": "1" for number in range(pods)})
    return cluster


def metric(cluster: Any, node: str, pods: dict[str, str], system: str = "0", at: str = "2026-01-01T12:00:00Z") -> Any:
    listed = [
        {"namespace": "default", "name": name, "podUsage": {"resources": {"cpu": cpu}}} for name, cpu in pods.items()
    ]
    usage = {"systemUsage": {"resources": {"cpu": system}}, "nodeUsage": {"resources": {"cpu": "9"}}}
    status = {"updateTime": at, "nodeMetric": usage, "podsMetric": listed}
    return cluster.add({"kind": "NodeMetric", "metadata": {"name": node}, "status": status})


def talk(view: View, text: str, remembered: object = None, **answers: Verdict) -> tuple[list[str], list[str], object]:
    return handles.talk(plugin, view, strict.load(text, Config, "args.yaml"), answers, remembered)


def test_pods_leave_until_the_node_uses_little_enough(loaded: Any) -> None:
    assert talk(loaded.view(), AT_ONCE + BOUNDS)[:2] == (["a0", "a1", "a2"], [])


@pytest.mark.parametrize(
    ("more", "notes"),
    [
        pytest.param("highThresholds: {cpu: 80}\n", ["NoNodeTooFull"], id="at the threshold is not above it"),
        pytest.param(
            "highThresholds: {cpu: 50}\nlowThresholds: {cpu: 5}\n", ["NoUnderutilizedNode"], id="nobody has room"
        ),
        pytest.param(BOUNDS + "numberOfNodes: 3\n", ["TooFewUnderutilizedNodes"], id="too few have room"),
    ],
)
def test_why_nothing_is_done(loaded: Any, more: str, notes: list[str]) -> None:
    assert talk(loaded.view(), AT_ONCE + more)[:2] == ([], notes)


def test_what_did_not_go_is_not_subtracted(loaded: Any) -> None:
    kept = talk(loaded.view(), AT_ONCE + BOUNDS, a0=Verdict(evicted=False, reason="MinReplicas"))
    assert kept[0] == ["a1", "a2", "a3"]


def test_the_pod_that_alone_is_enough_goes_first(cluster: Any) -> None:
    for name in "ab":
        cluster.node(name, cpu="10")
    for name in ("small", "right", "large"):
        cluster.pod(name, "a", cpu="100m")
    metric(cluster, "a", {"small": "1", "right": "2", "large": "4"})
    metric(cluster, "b", {})
    assert talk(cluster.view(), AT_ONCE + BOUNDS)[0] == ["right"]


def test_lower_bands_go_before_what_cures_better(loaded: Any) -> None:
    for obj in loaded.objects:
        if obj["kind"] == "Pod" and obj["metadata"]["name"] == "a7":
            obj["metadata"]["labels"] = {keys.PRIORITY_CLASS: "koord-batch"}
    assert talk(loaded.view(), AT_ONCE + BOUNDS)[0] == ["a7", "a0", "a1"]


@pytest.mark.parametrize(
    ("at", "expiry", "judged"),
    [
        pytest.param("2026-01-01T11:57:01Z", "", True, id="just within three minutes"),
        pytest.param("2026-01-01T11:57:00Z", "", False, id="three minutes old"),
        pytest.param("2026-01-01T11:00:00Z", "nodeMetricExpirationSeconds: null\n", True, id="any age will do"),
    ],
)
def test_old_measurements_do_not_count(cluster: Any, at: str, expiry: str, judged: bool) -> None:
    for name in "ab":
        cluster.node(name, cpu="10")
    cluster.pod("p", "a", cpu="100m")
    metric(cluster, "a", {"p": "4"}, system="4", at=at)
    metric(cluster, "b", {})
    gone, notes, _ = talk(cluster.view(), AT_ONCE + BOUNDS + expiry)
    assert (gone == ["p"]) is judged
    assert ("UsageUnknown" in notes) is not judged


def test_a_pod_leaves_only_for_a_node_that_takes_it(loaded: Any) -> None:
    node = next(o for o in loaded.objects if o["kind"] == "Node" and o["metadata"]["name"] == "b")
    node["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
    assert talk(loaded.view(), AT_ONCE + BOUNDS)[0] == []
    assert talk(loaded.view(), AT_ONCE + BOUNDS + "nodeFit: false\n")[0] == ["a0", "a1", "a2"]


def test_what_is_considered_and_refused_books_no_room(loaded: Any) -> None:
    """Node b takes four more; were room booked for each pod that is looked at, none would be left for the last."""
    refused = {f"a{number}": Verdict(evicted=False, reason="MinReplicas") for number in range(5)}
    assert talk(loaded.view(), AT_ONCE + BOUNDS, **refused)[0] == ["a5", "a6", "a7"]


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("evictableNamespaces: {exclude: [default]}\n", []),
        ("podSelectors: [{name: x, selector: {matchLabels: {app: none}}}]\n", []),
        ("dryRun: true\n", ["a0", "a1", "a2"]),
    ],
    ids=["namespaces", "selectors", "a dry run names as many as would go"],
)
def test_whose_pods_may_leave(loaded: Any, text: str, gone: list[str]) -> None:
    assert talk(loaded.view(), AT_ONCE + BOUNDS + text)[0] == gone


def test_a_high_threshold_without_a_low_one_counts(loaded: Any) -> None:
    assert talk(loaded.view(), AT_ONCE + "highThresholds: {cpu: 50}\n")[0] == ["a0", "a1", "a2"]


def test_prod_pods_leave_where_they_use_too_much_together(loaded: Any) -> None:
    text = AT_ONCE + "highThresholds: {cpu: 90}\nlowThresholds: {cpu: 30}\nprodHighThresholds: {cpu: 60}\n"
    for obj in loaded.objects:
        if obj["kind"] == "Pod" and obj["metadata"]["name"] == "a0":
            obj["metadata"]["labels"] = {keys.PRIORITY_CLASS: "koord-batch"}
    assert talk(loaded.view(), text)[0] == ["a1"]


def test_the_node_reservation_is_taken_off_raw_allocatable_too(loaded: Any) -> None:
    for obj in loaded.objects:
        if obj["kind"] == "Node" and obj["metadata"]["name"] == "c":
            notes = {keys.RAW_ALLOCATABLE: '{"cpu": "10"}', keys.RESERVATION: '{"resources": {"cpu": "3"}}'}
            obj["metadata"]["annotations"] = notes
    assert talk(loaded.view(), AT_ONCE + BOUNDS)[0][-1] == "c0"


@pytest.mark.parametrize(
    "raw", ["[" * 100_000, '{"cpu": "1", "memory": "lots"}', "[]"], ids=["nested", "partly", "list"]
)
def test_raw_allocatable_counts_as_a_whole_or_not_at_all(loaded: Any, raw: str) -> None:
    for obj in loaded.objects:
        if obj["kind"] == "Node":
            obj["metadata"]["annotations"] = {keys.RAW_ALLOCATABLE: raw}
    assert talk(loaded.view(), AT_ONCE + BOUNDS)[0] == ["a0", "a1", "a2"]


def test_a_pool_has_its_own_thresholds_and_its_nodes_are_judged_once(loaded: Any) -> None:
    loaded.objects[0]["metadata"]["labels"]["pool"] = "x"
    pools = "nodePools: [{name: x, nodeSelector: {matchLabels: {pool: x}}, highThresholds: {cpu: 95}}]\n"
    assert talk(loaded.view(), AT_ONCE + BOUNDS + pools)[0] == []


def test_a_node_must_be_too_full_several_times_in_a_row(loaded: Any) -> None:
    text = BOUNDS + "anomalyCondition: {consecutiveAbnormalities: 3, timeout: 10m}\n"
    memory: object = None
    said = []
    for minute in range(4):
        gone, notes, memory = talk(
            loaded.view(LATER.format(minute)), text + "nodeMetricExpirationSeconds: 900\n", memory
        )
        said.append(gone or notes)
    assert said == [["TooFullTooBriefly"], ["TooFullTooBriefly"], ["a0", "a1", "a2"], ["TooFullTooBriefly"]]


def test_a_quiet_cycle_in_between_starts_the_count_anew(loaded: Any) -> None:
    text = "anomalyCondition: {consecutiveAbnormalities: 2}\nnodeMetricExpirationSeconds: 900\n"
    high, quiet = text + BOUNDS, text + "highThresholds: {cpu: 90}\nlowThresholds: {cpu: 5}\n"
    memory = None
    for minute, config in enumerate((high, quiet, high)):
        gone, _, memory = talk(loaded.view(LATER.format(minute)), config, memory)
        assert gone == []


@pytest.mark.parametrize(
    "text",
    [
        "highThresholds: {cpu: -1}",
        "highThresholds: {cpu: 10}\nlowThresholds: {cpu: 20}",
        "highThresholds: {cpu: 10}\nprodHighThresholds: {cpu: 20}",
        "prodHighThresholds: {cpu: 10}\nprodLowThresholds: {cpu: 20}",
        "nodePools: [{highThresholds: {cpu: 10}, lowThresholds: {cpu: 20}}]",
        "numberOfNodes: -1",
        "nodeMetricExpirationSeconds: 0",
        "anomalyCondition: {consecutiveNormalities: 0}",
        "evictableNamespaces: {include: [a], exclude: [b]}",
        "detectorCacheTimeout: soon",
    ],
)
def test_arguments_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        strict.load(text, Config, "args.yaml")


def test_each_field_of_a_pool_is_inherited_or_kept_by_itself() -> None:
    text = """
highThresholds: {cpu: 75}
lowThresholds: {cpu: 35, example.com/x: 10}
anomalyCondition: {consecutiveNormalities: 4}
nodePools:
- name: A
- {name: B, highThresholds: {memory: 90}, resourceWeights: {cpu: 3}, anomalyCondition: {consecutiveAbnormalities: 2}}
- {name: C, lowThresholds: {}, useDeviationThresholds: true}
"""
    a, b, c, top = strict.load(text, Config, "args.yaml").pools
    weights, low = {"cpu": 1, "memory": 1, "example.com/x": 1}, {"cpu": 35, "example.com/x": 10}
    shown = [
        (p.high_thresholds, p.low_thresholds, p.resource_weights, p.anomaly_condition.consecutive_abnormalities)
        for p in (a, b, c, top)
    ]
    assert shown == [
        ({"cpu": 75}, low, weights, 5),
        ({"memory": 90}, low, {"cpu": 3}, 2),
        ({"cpu": 75}, {}, weights, 5),
        ({"cpu": 75}, low, weights, 5),
    ]
    assert {p.anomaly_condition.consecutive_normalities for p in (a, b, c, top)} == {4}
    assert [p.use_deviation_thresholds for p in (a, b, c, top)] == [False, False, True, False]


def test_the_timeout_of_the_top_level_is_not_taken_by_a_pool_with_its_own_condition() -> None:
    text = "anomalyCondition: {timeout: 2m}\nnodePools: [{anomalyCondition: {consecutiveAbnormalities: 2}}]\n" + BOUNDS
    pool, top = strict.load(text, Config, "args.yaml").pools
    assert (pool.anomaly_condition.timeout, top.anomaly_condition.timeout) == (None, "2m")


@pytest.mark.parametrize(
    ("first", "gone"),
    [
        pytest.param(95, ["a0", "a1", "a2"], id="the next pool compares it too"),
        pytest.param(70, ["a0"], id="a pool before relieves it"),
    ],
)
def test_a_node_in_two_pools(loaded: Any, first: int, gone: list[str]) -> None:
    """Both pools select all nodes. The first one relieves a down to 70 %, or does not find it too full."""
    every = "nodeSelector: {matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}"
    text = f"""
nodePools:
- {{{every}, highThresholds: {{cpu: {first}}}, lowThresholds: {{cpu: 30}}}}
- {{{every}, highThresholds: {{cpu: 50}}, lowThresholds: {{cpu: 30}}}}
"""
    assert talk(loaded.view(), AT_ONCE + text)[0] == gone


def test_selectors_without_a_selector_choose_everybody(loaded: Any) -> None:
    assert talk(loaded.view(), AT_ONCE + BOUNDS + "podSelectors: [{name: x}]\n")[0] == ["a0", "a1", "a2"]


def test_a_pool_takes_what_it_leaves_out_from_the_level_above() -> None:
    text = BOUNDS + "anomalyCondition: {timeout: 2m}\nnodePools: [{name: x, lowThresholds: {cpu: 10}}]\n"
    config = strict.load(text, Config, "args.yaml")
    pool, top = config.pools
    assert (pool.name, dict(pool.high_thresholds), dict(pool.low_thresholds)) == ("x", {"cpu": 50}, {"cpu": 10})
    assert pool.resource_weights == {"cpu": 1, "memory": 1}
    assert pool.anomaly_condition.timeout == "2m"
    assert pool.anomaly_condition.consecutive_abnormalities == 5
    assert top.high_thresholds == {"cpu": 50}
