"""Load-aware scheduling: Koordinator's thresholds over what was measured, and what the extender makes of them."""

from __future__ import annotations

import pathlib
from typing import Any

import msgspec
import pytest

from koordlite.cli import services
from koordlite.fault_guard import SubjectFaults
from koordlite.model import times
from koordlite.model.errors import InputError
from koordlite.model.wire import metrics, objects
from koordlite.scheduler.extender import BindError
from koordlite.scheduler.judgement.load import EXPIRED, Aggregated, LoadAwareSchedulingArgs
from koordlite.scheduler.loads import LoadJudgement, Loads
from koordlite.scheduler.nominations import Victims
from koordlite.scheduler.report import documents, texts
from tests.scheduler.builders import Scene, as_object, bound, pod

NOW = 1.8e9
GIB = 2**30
CPU, MEMORY = "node(s) cpu usage exceed threshold", "node(s) memory usage exceed threshold"
SMALL = {"cpu": "100m", "memory": "100Mi"}


def node(name: str = "a", **fields: Any) -> objects.NodeObject:
    """100 CPUs and 100 GiB."""
    amounts = fields.get("allocatable", {"cpu": "100", "memory": "100Gi"})
    meta = {"name": name, "annotations": fields.get("annotations", {})}
    return msgspec.convert({"metadata": meta, "status": {"allocatable": amounts}}, objects.NodeObject)


def measured(name: str = "a", cpu: str = "10", memory: str = "10Gi", **fields: Any) -> metrics.NodeMetricObject:
    """A NodeMetric; `age` in seconds, `pods`: name → (cpu, priority), `windows`: (kind, duration) → cpu."""
    age = fields.get("age", 10.0)
    status: dict[str, Any] = {"podsMetric": []}
    if age is not None:
        status["updateTime"] = times.show(NOW - age)
    windows: dict[str, Any] = {}
    for (kind, window), used in fields.get("windows", {}).items():
        windows.setdefault(window, {})[kind] = {"resources": {"cpu": used, "memory": "1Gi"}}
    status["nodeMetric"] = {
        "nodeUsage": {"resources": {"cpu": cpu, "memory": memory}},
        "systemUsage": {"resources": {"cpu": fields.get("system", "1"), "memory": "1Gi"}},
        "aggregatedNodeUsages": [{"usage": usage, "duration": window} for window, usage in windows.items()],
    }
    for key, (used, priority) in fields.get("pods", {}).items():
        usage = {"resources": {"cpu": used, "memory": "1Gi"}}
        status["podsMetric"].append({"namespace": "ns", "name": key, "podUsage": usage, "priority": priority})
    spec = {"metricCollectPolicy": {"reportIntervalSeconds": 60}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status}, metrics.NodeMetricObject)


def judged(
    obj: Any | None = None,
    *on_node: Any,
    args: LoadAwareSchedulingArgs | None = None,
    own: objects.NodeObject | None = None,
    metric: metrics.NodeMetricObject | None = None,
) -> LoadJudgement:
    """A pod beside node `a`."""
    loads = Loads(args or LoadAwareSchedulingArgs(), wall=lambda: NOW, faults=SubjectFaults("load"))
    loads.put_node(own or node())
    loads.put_metric(metric or measured())
    for each in on_node:
        loads.put_pod(as_object(each))
    return loads.judge(as_object(obj or pod("p", **SMALL)))


def on_a(name: str, cpu: str, *, seconds_ago: float = 3600.0, **fields: Any) -> Any:
    """A pod that was bound to the node so long ago."""
    obj = bound(pod(name, cpu=cpu, memory="1Gi", **fields), "a")
    since = times.show(NOW - seconds_ago)
    obj["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
        {"type": "Initialized", "status": "True", "lastTransitionTime": since},
    ]
    return obj


# ── the filter ──


@pytest.mark.parametrize(
    ("cpu", "memory", "refusal"),
    [
        pytest.param("60", "10Gi", "", id="60.1 of 100 CPUs are within 65 %"),
        pytest.param("65", "10Gi", "", id="65.09 % are rounded to 65 %"),
        pytest.param("65415m", "10Gi", CPU, id="65.415 % and the pod's 0.085 % are rounded to 66 %"),
        pytest.param("10", "96Gi", MEMORY, id="96 of 100 GiB are above 95 %"),
    ],
)
def test_a_node_is_too_busy_above_the_thresholds_with_the_pod_counted(cpu: str, memory: str, refusal: str) -> None:
    assert judged(metric=measured(cpu=cpu, memory=memory)).refusal("a") == refusal


@pytest.mark.parametrize(
    ("limits", "estimate"),
    [
        pytest.param({"cpu": "20", "memory": "1Gi"}, 17.0, id="85 % of 20 CPUs"),
        pytest.param({}, 0.25, id="a pod that asks for nothing is taken to use a quarter of a CPU"),
    ],
)
def test_the_estimate_of_the_pod_counts(limits: dict[str, str], estimate: float) -> None:
    obj = pod("p", **SMALL)
    obj["spec"]["containers"][0]["resources"] = {"requests": limits, "limits": limits}
    just = 65.49 - estimate
    assert judged(obj, metric=measured(cpu=f"{round(just * 1000)}m")).refusal("a") == ""
    assert judged(obj, metric=measured(cpu=f"{round(just * 1000) + 20}m")).refusal("a") == CPU


def test_a_limit_above_the_request_is_what_is_estimated_and_bounds_it() -> None:
    obj = pod("p")
    obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10"}, "limits": {"cpu": "40"}}
    assert judged(obj, metric=measured(cpu="31")).refusal("a") == ""  # 31 + 34 = 65
    assert judged(obj, metric=measured(cpu="32")).refusal("a") == CPU
    twice = LoadAwareSchedulingArgs(estimated_scaling_factors={"cpu": 100})
    assert judged(obj, args=twice, metric=measured(cpu="25")).refusal("a") == ""
    assert judged(obj, args=twice, metric=measured(cpu="26")).refusal("a") == CPU


def test_batch_pods_are_estimated_by_batch_resources() -> None:
    obj = pod("p", priority=5500)
    batch = {"kubernetes.io/batch-cpu": "20000", "kubernetes.io/batch-memory": "1Gi"}
    obj["spec"]["containers"][0]["resources"] = {"requests": batch, "limits": batch}
    assert judged(obj, metric=measured(cpu="48")).refusal("a") == ""  # 48 + 17 = 65
    assert judged(obj, metric=measured(cpu="49")).refusal("a") == CPU


def test_daemons_go_everywhere() -> None:
    obj = pod("p", **SMALL)
    obj["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d"}]
    assert judged(obj, metric=measured(cpu="99")).refusal("a") == ""


@pytest.mark.parametrize(
    ("seconds_ago", "used", "refusal"),
    [
        pytest.param(30.0, None, CPU, id="not measured yet: it counts with its estimate"),
        pytest.param(3600.0, None, CPU, id="never measured: it counts with its estimate"),
        pytest.param(60.0, "1", CPU, id="bound within an interval of the measurement: what is missing to the estimate"),
        pytest.param(3600.0, "1", "", id="measured long since: what was measured"),
        pytest.param(30.0, "18", "", id="measured above its estimate: what was measured"),
    ],
)
def test_pods_the_measurement_does_not_show_count_with_their_estimate(
    seconds_ago: float, used: str | None, refusal: str
) -> None:
    pods = {"other": (used, "koord-prod")} if used else {}
    metric = measured(cpu="55", pods=pods)
    assert judged(None, on_a("other", "20", seconds_ago=seconds_ago), metric=metric).refusal("a") == refusal


def test_for_a_while_after_its_start_a_measured_pod_counts_with_its_estimate() -> None:
    metric = measured(cpu="55", pods={"other": ("1", "koord-prod")})
    other = on_a("other", "20", seconds_ago=300.0)
    assert judged(None, other, metric=metric).refusal("a") == ""
    longer = LoadAwareSchedulingArgs(estimated_seconds_after_pod_scheduled=600)
    assert judged(None, other, args=longer, metric=metric).refusal("a") == CPU
    first = LoadAwareSchedulingArgs(estimated_seconds_after_pod_scheduled=600, estimated_seconds_after_initialized=60)
    assert judged(None, other, args=first, metric=metric).refusal("a") == ""


@pytest.mark.parametrize(
    ("seconds", "refusal"),
    [
        pytest.param("600", CPU, id="as long as it says"),
        pytest.param("+600", CPU, id="with a sign, as Go reads it"),
        pytest.param("0", "", id="0 takes the place of the usual 600"),
        pytest.param("-0", "", id="0 with a sign, as Go reads it"),
        pytest.param("-1", CPU, id="below 0: the usual 600"),
        pytest.param("5.5", CPU, id="no whole number: the usual 600"),
    ],
)
def test_a_pod_may_say_how_long_its_estimate_counts(seconds: str, refusal: str) -> None:
    args = LoadAwareSchedulingArgs(
        allow_customize_estimation=True, estimated_seconds_after_pod_scheduled=0 if seconds == "+600" else 600
    )
    notes = {"scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled": seconds}
    other = on_a("other", "20", seconds_ago=300.0, annotations=notes)
    metric = measured(cpu="55", pods={"other": ("1", "koord-prod")})
    assert judged(None, other, args=args, metric=metric).refusal("a") == refusal


def test_a_pod_may_say_its_own_estimate_where_that_is_allowed() -> None:
    notes = {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu": 10}'}
    obj = pod("p", cpu="20", annotations=notes)
    assert judged(obj, metric=measured(cpu="60")).refusal("a") == CPU
    allowed = LoadAwareSchedulingArgs(allow_customize_estimation=True)
    assert judged(obj, args=allowed, metric=measured(cpu="60")).refusal("a") == ""


# ── prod pods and percentiles ──


def test_prod_pods_go_by_what_prod_pods_use() -> None:
    args = LoadAwareSchedulingArgs(prod_usage_thresholds={"cpu": 30})
    metric = measured(cpu="90", pods={"web": ("20", "koord-prod"), "crunch": ("60", "koord-batch")})
    web, crunch = on_a("web", "20", priority=9500), on_a("crunch", "0", priority=5500)
    prod, batch = pod("p", cpu="10", priority=9500), pod("p", priority=5500, **SMALL)
    assert judged(prod, web, crunch, args=args, metric=metric).refusal("a") == ""  # 20 + 8.5 of 100
    assert judged(pod("p", cpu="13", priority=9500), web, crunch, args=args, metric=metric).refusal("a") == CPU
    assert judged(batch, web, crunch, args=args, metric=metric).refusal("a") == CPU  # 90 of 100
    system = LoadAwareSchedulingArgs(prod_usage_thresholds={"cpu": 30}, prod_usage_include_sys=True)
    more = measured(cpu="90", system="5", pods={"web": ("20", "koord-prod")})
    assert judged(prod, web, args=system, metric=more).refusal("a") == CPU


def test_percentiles_take_the_place_of_the_latest_use() -> None:
    aggregated = Aggregated(usage_thresholds={"cpu": 50}, usage_aggregation_type="p95", usage_aggregated_duration="5m")
    args = LoadAwareSchedulingArgs(aggregated=aggregated)
    metric = measured(cpu="90", windows={("p95", "5m0s"): "40", ("p95", "30m0s"): "70"})
    assert judged(args=args, metric=metric).refusal("a") == ""
    longest = Aggregated(usage_thresholds={"cpu": 50}, usage_aggregation_type="p95")
    busy = judged(args=LoadAwareSchedulingArgs(aggregated=longest), metric=metric).refusal("a")
    assert busy == "node(s) cpu aggregated usage exceed threshold"


def test_a_window_that_was_not_measured_counts_all_pods_by_their_estimates() -> None:
    aggregated = Aggregated(usage_thresholds={"cpu": 50}, usage_aggregation_type="p95", usage_aggregated_duration="5m")
    args, metric = LoadAwareSchedulingArgs(aggregated=aggregated), measured(cpu="90")
    assert judged(None, on_a("other", "20"), args=args, metric=metric).refusal("a") == ""
    assert judged(None, on_a("other", "70"), args=args, metric=metric).refusal("a") != ""


def test_a_node_may_have_thresholds_of_its_own() -> None:
    notes = {"scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds": {"cpu": 90}}'}
    assert judged(own=node(annotations=notes), metric=measured(cpu="80")).refusal("a") == ""
    broken = {"scheduling.koordinator.sh/usage-thresholds": "{"}
    assert judged(own=node(annotations=broken), metric=measured(cpu="80")).refusal("a") == CPU
    other = {"scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds": {"example.com/gpu": 90}}'}
    old = measured(cpu="80", age=200.0)
    assert judged(own=node(annotations=other), metric=old).refusal("a") == "", "no argument names the resource"


@pytest.mark.parametrize("raw", ['{"cpu": "100"}', '{"cpu": 100}'], ids=["text", "number"])
def test_the_size_of_a_node_is_that_before_amplification(raw: str) -> None:
    own = node(allocatable={"cpu": "150", "memory": "100Gi"}, annotations={"node.koordinator.sh/raw-allocatable": raw})
    assert judged(own=own, metric=measured(cpu="70")).refusal("a") == CPU


# ── stale and missing measurements ──


@pytest.mark.parametrize(
    ("age", "changed", "refusal"),
    [
        (179.0, {}, CPU),
        (180.0, {}, EXPIRED),
        (180.0, {"enable_schedule_when_node_metrics_expired": True}, ""),
        (180.0, {"filter_expired_node_metrics": False}, CPU),
        (180.0, {"node_metric_expiration_seconds": 600}, CPU),
        (None, {}, EXPIRED),
    ],
)
def test_a_measurement_that_is_too_old(age: float | None, changed: dict[str, Any], refusal: str) -> None:
    judgement = judged(args=LoadAwareSchedulingArgs(**changed), metric=measured(cpu="90", age=age))
    assert judgement.refusal("a") == refusal


def test_a_node_without_measurement_is_never_refused_and_scores_nothing() -> None:
    judgement = judged()
    assert (judgement.refusal("other"), judgement.scored("other", 40)) == ("", 40)


# ── the score ──


@pytest.mark.parametrize(
    ("changed", "points"),
    [
        pytest.param({}, (79 + 89) // 2, id="(100 - 20.085) and (100 - 10.07) of 100, one weight each"),
        pytest.param({"resource_weights": {"cpu": 3, "memory": 1}}, (79 * 3 + 89) // 4, id="weights"),
        pytest.param({"dominant_resource_weight": 1}, 79, id="the scarcest alone"),
        pytest.param(
            {"dominant_resource_weight": 1, "resource_weights": {"memory": 1}},
            (79 + 89) // 2,
            id="the scarcest as well",
        ),
    ],
)
def test_what_is_left_of_a_node_is_its_score(changed: dict[str, Any], points: int) -> None:
    judgement = judged(args=LoadAwareSchedulingArgs(**changed), metric=measured(cpu="20", memory="10Gi"))
    assert judgement.scored("a", 0) == points
    assert judgement.scored("a", 1000) > judgement.scored("a", 100), "a reservation stays above all"


def test_an_old_measurement_scores_nothing() -> None:
    assert judged(metric=measured(age=200.0)).scored("a", 7) == 7


# ── the extender ──


class World(Scene):
    """Two nodes of 64 CPUs, of which one is busy."""

    def load(self, args: LoadAwareSchedulingArgs | None = None) -> World:
        self.clock.wall = NOW
        thresholds, faults = args or LoadAwareSchedulingArgs(), self.cluster.faults
        self.loads = self.extender.loads = Loads(thresholds, wall=lambda: self.clock.wall, faults=faults)
        for name, cpu in (("busy", "60"), ("idle", "4")):
            self.node(name)
            self.loads.put_node(node(name, allocatable={"cpu": "64", "memory": "256Gi"}))
            self.loads.put_metric(measured(name, cpu=cpu))
        return self


def test_nothing_is_judged_by_load_unless_it_is_asked_for() -> None:
    world = Scene()
    world.node("busy")
    assert world.extender.loads is None
    assert world.filter(pod("p"), "busy") == (["busy"], {})


def test_the_filter_refuses_and_explain_has_the_numbers() -> None:
    world = World().load()
    assert world.filter(pod("p"), "busy", "idle", "unknown") == (["idle", "unknown"], {"busy": CPU})
    document = documents.of_pod(world.extender, "ns/p")
    assert document is not None
    assert document["refused"] == {CPU: 1}
    by_node = {each["node"]: each for each in document["nodes"]}
    assert (by_node["busy"]["by"], by_node["busy"]["refusal"]) == ("loadaware", CPU)
    lines = list(texts.pod(document))
    # 60 + 2 × 85 % = 61.7 of 64
    assert any(f"busy: no, {CPU} (measured 10s ago, cpu with the pod 96 % of at most 65 %" in line for line in lines)
    assert documents.of_all(world.extender, [])["load"]["measuredNodes"] == 2


def test_the_less_busy_node_is_rated_higher_and_explain_shows_the_same_score() -> None:
    world = World().load(LoadAwareSchedulingArgs(usage_thresholds={"cpu": 100}))
    assert world.filter(pod("p", cpu="1"), "busy", "idle")[0] == ["busy", "idle"]
    scores = dict(world.extender.prioritize(as_object(pod("p", cpu="1")), ["busy", "idle"]))
    assert scores == {"busy": 0, "idle": 10}
    document = documents.of_pod(world.extender, "ns/p")
    assert document is not None
    answered = {each["node"]: each["answered"] for each in document["nodes"]}
    assert answered == scores


def test_a_pod_that_was_just_bound_counts_before_its_event_comes_and_not_when_the_binding_failed() -> None:
    world = World().load()
    first, second = pod("first", cpu="40"), pod("second", cpu="10")
    assert world.schedule(first, "busy", "idle") == "idle"
    assert world.filter(second, "idle") == ([], {"idle": CPU})  # 4 + 34 + 8.5 of 64
    world.loads.remove_pod("ns/first")
    world.filter(first, "idle")
    world.api.fail = BindError("no", is_certain=True)
    assert world.bind(first, "idle") == "no"
    assert world.filter(second, "idle")[0] == ["idle"]


def test_nobody_is_evicted_for_a_pod_where_the_measurement_refuses_it() -> None:
    world = World().load()
    victim = bound(pod("victim", cpu="60", priority=1), "busy")
    world.put(victim)
    question = {"busy": Victims(("uid-victim",))}
    assert world.extender.preempt(as_object(pod("p", cpu="60", priority=9)), question) == {}
    document = documents.of_pod(world.extender, "ns/p")
    assert document is not None
    assert f"preemption on busy: {CPU}" in document["events"]


def test_pods_that_end_or_go_free_their_node() -> None:
    world = World().load()
    other = bound(pod("other", cpu="60"), "idle")
    world.loads.put_pod(as_object(other))
    assert world.filter(pod("p"), "idle")[0] == []
    world.loads.put_pod(as_object(bound(other, "idle", phase="Succeeded")))
    assert world.filter(pod("p"), "idle")[0] == ["idle"]
    world.loads.remove_metric("busy")
    assert world.filter(pod("p"), "busy")[0] == ["busy"]


# ── the file ──


def test_the_file_takes_koordinators_names(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: LoadAwareSchedulingArgs\n"
        "usageThresholds: {cpu: 70}\nprodUsageThresholds: {cpu: 55}\nnodeMetricExpirationSeconds: 90\n"
        "aggregated: {usageThresholds: {cpu: 60}, usageAggregationType: p95, usageAggregatedDuration: 5m}\n"
    )
    read = services.load_aware(str(file))
    assert (read.usage_thresholds, read.node_metric_expiration_seconds) == ({"cpu": 70}, 90)
    assert read.thresholds.aggregation == ("p95", 300.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("usageThreshold: {cpu: 70}", "usageThreshold"),
        ("usageThresholds: {cpu: 101}", "usageThresholds.cpu"),
        ("nodeMetricExpirationSeconds: 0", "write a number at least 1"),
        ("aggregated: {usageAggregationType: p42}", "p95"),
        ("aggregated: {usageAggregatedDuration: soon}", "soon"),
        ("resourceWeights: {example.com/gpu: 1}", "estimatedScalingFactors"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: pathlib.Path, text: str, says: str) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(text + "\n")
    with pytest.raises(InputError, match=says):
        services.load_aware(str(file))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="--load-aware"):
        services.load_aware("/does/not/exist")
