"""A whole plan: who goes, who is kept and why, in which order, and always the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from descheduler.cycle import planner
from descheduler.evictors import eviction_api
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.report import document
from koordlite.model.nrt import ContainerPlacement

Place = Callable[..., ContainerPlacement]
RESERVED = {"reservedCPUs": "0-1"}
POLICY = """
profiles:
- name: test
  pluginConfig:
  - name: DefaultEvictor
    args: {{nodeFit: {fit}}}
  plugins: {{deschedule: {{enabled: [NUMAAlignment, ReservedCPUs]}}}}
{more}
"""


def policy(more: str = "", fit: str = "true") -> str:
    return POLICY.format(more=more, fit=fit)


BY_CPUS = policy().replace("  plugins:", "  - {name: ReservedCPUs, args: {byQuantity: false}}\n  plugins:")


@pytest.fixture
def wrong(cluster: Any) -> Any:
    """Two nodes; on a, `first` holds the reserved CPUs 0-1."""
    cluster.node("a", reservation=RESERVED)
    cluster.report("a", reservation=RESERVED)
    cluster.node("b")
    cluster.report("b")
    cluster.pinned("first", "a", "0-3", owner="one")
    return cluster


def verdicts(plan: EvictionPlan) -> dict[str, str]:
    return {o.pod.pod.name: o.reasons[0].reason if o.reasons else f"to {o.target}" for o in plan.outcomes}


def test_a_pod_on_reserved_cpus_goes_where_it_fits(wrong: Any) -> None:
    plan = wrong.plan(policy())
    assert verdicts(plan) == {"first": "to b"}
    changes = {change.node: (change.before, change.after) for change in plan.nodes}
    before, after = changes["a"]
    assert (before.pods, after.pods, before.wrong, after.wrong) == (1, 0, 1, 0)
    assert changes["b"][1].cpu_milli == 4000


@pytest.mark.parametrize("fit", ["plan", "snapshot"])
def test_nodes_are_told_as_the_plan_leaves_them_whatever_the_fit_counts_on(wrong: Any, fit: str) -> None:
    changes = {change.node: change.after.pods for change in wrong.plan(f"fit: {fit}{policy()}").nodes}
    assert changes == {"a": 0, "b": 1}


def test_a_healthy_cluster_has_an_empty_plan(cluster: Any) -> None:
    cluster.node("a")
    cluster.report("a")
    cluster.pinned("p", "a", "2-3", single=True)
    plan = cluster.plan()
    assert (plan.outcomes, plan.nodes) == ((), ())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda c: c.objects[-1]["metadata"].update(ownerReferences=[]), "BarePod", id="a guard"),
        pytest.param(lambda c: c.objects[2]["spec"].update(unschedulable=True), "FitsNowhere", id="no other node"),
        pytest.param(
            lambda c: c.objects[-1]["status"].update(startTime="2026-01-01T11:59:00Z"), "PodTooYoung", id="too young"
        ),
    ],
)
def test_why_it_is_kept(wrong: Any, spoil: Callable[[Any], None], reason: str) -> None:
    wrong.pod("filler", "a", cpu="12")
    wrong.objects.insert(4, wrong.objects.pop())
    spoil(wrong)
    plan = wrong.plan(BY_CPUS)
    assert verdicts(plan) == {"first": reason}
    assert plan.kept_by == {reason: 1}


def test_without_a_better_home_it_stays_whatever_node_fit_says(wrong: Any) -> None:
    wrong.objects[2]["spec"]["unschedulable"] = True
    wrong.pod("filler", "a", cpu="12")
    assert verdicts(wrong.plan(BY_CPUS.replace("nodeFit: true", "nodeFit: false"))) == {"first": "FitsNowhere"}


def test_what_the_agent_cures_is_not_moved(wrong: Any, placed: Place) -> None:
    wrong.node("c")
    container = placed("loose", source="koordinator", promised_cpus="2-3", cpuset="2-5")
    wrong.report("c", containers=[container])
    wrong.pinned("loose", "c", "2-3")
    assert verdicts(wrong.plan(policy()))["loose"] == "CuredOnNode"


def test_what_may_go_wrong_is_only_reported(cluster: Any, placed: Place) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("p", cpuset="2-3", single_numa=True, mems="0-1")])
    cluster.pod("p", "a")
    assert verdicts(cluster.plan()) == {"p": "OnlyExposed"}


def test_a_limit_keeps_the_later_ones_by_name(wrong: Any) -> None:
    wrong.pinned("second", "a", "1,4-6", owner="two")
    plan = wrong.plan(policy("maxNoOfPodsToEvictTotal: 1"))
    assert verdicts(plan) == {"first": "to b", "second": "LimitTotal"}


def test_findings_need_as_many_sightings_as_the_plugin_wants(wrong: Any) -> None:
    text = policy().replace("  plugins:", "  - {name: ReservedCPUs, args: {minSightings: 3}}\n  plugins:")
    setup = reader.setup(reader.parse(text, "test"))
    view = wrong.view()
    seen = {("uid-first", "UsesReservedCPU"): 2}
    assert verdicts(planner.plan(view, setup)) == {"first": "to b"}, "one picture is all there is"
    assert verdicts(planner.plan(view, setup, {})) == {"first": "SeenTooFewTimes"}
    assert verdicts(planner.plan(view, setup, seen)) == {"first": "SeenTooFewTimes"}
    assert verdicts(planner.plan(view, setup, dict.fromkeys(seen, 3))) == {"first": "to b"}


def test_one_ripe_finding_is_enough(cluster: Any) -> None:
    cluster.node("a", reservation=RESERVED)
    cluster.report("a")
    cluster.pinned("p", "a", "0,9", single=True)
    patient = "  - {name: NUMAAlignment, args: {minSightings: 3}}\n  plugins:"
    assert verdicts(cluster.plan(policy().replace("  plugins:", patient))) == {"p": "to a"}


@pytest.mark.parametrize(
    ("change", "first"),
    [
        pytest.param(lambda p: p["spec"].update(priority=10), "low", id="the lower priority"),
        pytest.param(lambda p: p["spec"].update(priority=1), "high", id="unless it is the other way round"),
        pytest.param(
            lambda p: p["metadata"]["annotations"].update({"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}),
            "low",
            id="those that do not mind",
        ),
        pytest.param(lambda p: p["status"].update(qosClass="Burstable"), "high", id="the lesser QoS"),
        pytest.param(lambda p: p["status"].update(startTime="2026-01-01T09:00:00Z"), "high", id="the younger"),
        pytest.param(lambda p: None, "low", id="names when all is equal"),
    ],
)
def test_who_goes_first(cluster: Any, change: Callable[[Any], None], first: str) -> None:
    cluster.node("a", reservation={"reservedCPUs": "0-3"})
    cluster.report("a", reservation={"reservedCPUs": "0-3"})
    # Names sort the other way round, so that no case passes by its names.
    pods = {name: cluster.pinned(name, "a", cpus, owner=name) for name, cpus in (("high", "0-1"), ("low", "2-3"))}
    pods["low"]["metadata"]["name"] = "a-low"
    for pod in pods.values():
        pod["spec"]["priority"] = 5
    change(pods["high"])
    assert cluster.plan(policy()).evict[0].pod.pod.name.endswith(first)


def test_more_reserved_cpus_go_before_fewer(cluster: Any) -> None:
    cluster.node("a", reservation={"reservedCPUs": "0-3"})
    cluster.report("a")
    cluster.pinned("a-light", "a", "0,4", owner="x")
    cluster.pinned("z-heavy", "a", "1-3", owner="y")
    assert [o.pod.pod.name for o in cluster.plan(policy()).outcomes] == ["z-heavy", "a-light"]


def test_two_findings_against_one_pod_make_one_answer(cluster: Any) -> None:
    cluster.node("a", reservation=RESERVED)
    cluster.report("a")
    cluster.pinned("p", "a", "0,9", single=True)
    plan = cluster.plan(policy())
    assert len(plan.outcomes) == 1
    assert [f.reason for f in plan.outcomes[0].findings] == ["CPUSpansNUMA", "UsesReservedCPU"]


def test_a_second_profile_may_evict_what_the_first_kept(wrong: Any) -> None:
    wrong.objects[-1]["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    text = policy() + policy().replace("profiles:\n", "").replace("name: test", "name: bold").replace(
        "nodeFit: true", "evictDaemonSetPods: true"
    )
    plan = wrong.plan(text)
    assert [(o.profile, o.verdict, len(o.findings)) for o in plan.outcomes] == [("bold", "evict", 1)]


def test_only_nodes_in_scope_are_judged_but_all_take_pods(wrong: Any) -> None:
    wrong.objects[0]["metadata"]["labels"]["pool"] = "x"
    assert verdicts(wrong.plan(policy("nodeSelector: pool=x"))) == {"first": "to b"}
    assert verdicts(wrong.plan(policy("nodeSelector: pool=y"))) == {}


def test_a_selector_that_selects_no_node_is_told(wrong: Any) -> None:
    plan = wrong.plan("nodeSelector: role=gpu" + policy())
    assert not plan.outcomes
    assert [(note.plugin, note.reason) for note in plan.notes] == [
        ("NUMAAlignment", "NoNodeInScope"),
        ("ReservedCPUs", "NoNodeInScope"),
    ]


def test_evictions_name_their_reason_and_keep_a_pod_that_was_made_anew(wrong: Any) -> None:
    (attempt,) = eviction_api.prepare(wrong.plan(policy("gracePeriodSeconds: 30")))
    assert (attempt.pod, attempt.result) == ("default/first", "WouldEvict")
    assert attempt.request["metadata"]["annotations"] == {
        "reason": "triggered by test/ReservedCPUs: UsesReservedCPU",
        "requested-by": "sigs.k8s.io/descheduler",
    }
    assert attempt.request["deleteOptions"] == {"preconditions": {"uid": "uid-first"}, "gracePeriodSeconds": 30}


def test_the_same_picture_gives_the_same_bytes_in_whatever_order_it_was_read(wrong: Any) -> None:
    for number in range(6):
        wrong.pinned(f"p{number}", "a", f"{number},{number + 8}", single=True, owner=f"o{number}")
    texts = set()
    for seed in range(5):
        random.Random(seed).shuffle(wrong.objects)
        plan = wrong.plan()
        texts.add(document.encode(plan, eviction_api.prepare(plan)))
    assert len(texts) == 1
