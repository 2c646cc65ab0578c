"""Where a pod would fit, and what each other node says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from descheduler.fit.search import FitSearch, Search
from descheduler.framework import PodView, View
from koordlite.model.nrt import ContainerPlacement

Place = Callable[..., ContainerPlacement]


def find(view: View, name: str) -> PodView:
    return next(pod for pod in view.pods() if pod.pod.name == name)


def search(cluster: Any, name: str = "p", selector: str = "") -> Search:
    view = cluster.view()
    return FitSearch(view).search(find(view, name), selector, each=True)


@pytest.fixture
def pair(cluster: Any) -> Any:
    """Pod p on node a; node b could take it."""
    cluster.node("a")
    cluster.target = cluster.node("b", labels={"zone": "x"})
    cluster.p = cluster.pod("p", "a", cpu="4")
    return cluster


def test_an_empty_node_takes_it(pair: Any) -> None:
    assert [place.node for place in search(pair).places] == ["b"]


def change(obj: dict[str, Any], path: str, value: object) -> None:
    *parents, last = path.split(".")
    for key in parents:
        obj = obj.setdefault(key, {})
    obj[last] = value


@pytest.mark.parametrize(
    ("on", "path", "value", "why"),
    [
        pytest.param("target", "spec.unschedulable", True, "node is not schedulable", id="cordoned"),
        pytest.param(
            "target", "status.conditions", [{"type": "Ready", "status": "False"}], "node is not ready", id="not ready"
        ),
        pytest.param(
            "target",
            "spec.taints",
            [{"key": "gpu", "effect": "NoSchedule"}],
            "pod does not tolerate the taint gpu:NoSchedule",
            id="tainted",
        ),
        pytest.param(
            "p", "spec.nodeSelector", {"zone": "y"}, "pod node selector does not match the node label", id="selector"
        ),
        pytest.param("target", "status.allocatable.cpu", "3", "insufficient cpu", id="too few CPUs"),
        pytest.param("target", "status.allocatable.memory", "1Mi", "insufficient memory", id="too little memory"),
        pytest.param("target", "status.allocatable.pods", "0", "insufficient pods", id="no slot"),
        pytest.param(
            "target",
            "metadata.annotations",
            {"node.koordinator.sh/reservation": '{"resources":{"cpu":"13"}}'},
            "insufficient cpu",
            id="what is reserved is not free",
        ),
    ],
)
def test_what_a_node_says(pair: Any, on: str, path: str, value: object, why: str) -> None:
    change(getattr(pair, on), path, value)
    found = search(pair)
    assert (found.places, found.by_node) == ((), {"b": why})


def test_the_evictors_node_selector_counts(pair: Any) -> None:
    assert search(pair, selector="zone=x").places
    assert search(pair, selector="zone!=x").by_node == {"b": "outside the evictor's nodeSelector"}


@pytest.mark.parametrize(
    ("wanted", "used", "taken"),
    [
        pytest.param({"hostPort": 80}, {"hostPort": 80}, True, id="the same port"),
        pytest.param({"hostPort": 80}, {"hostPort": 81}, False, id="another port"),
        pytest.param({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False, id="another protocol"),
        pytest.param(
            {"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False, id="other addresses"
        ),
        pytest.param({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, True, id="all addresses take each"),
    ],
)
def test_host_ports(pair: Any, wanted: dict[str, object], used: dict[str, object], taken: bool) -> None:
    pair.p["spec"]["containers"][0]["ports"] = [wanted]
    pair.pod("q", "b")["spec"]["containers"][0]["ports"] = [used]
    assert (search(pair).places == ()) is taken


def anti(app: str, key: str = "kubernetes.io/hostname", **more: object) -> dict[str, object]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("own", "others", "blocked"),
    [
        pytest.param(anti("q"), None, True, id="its own term, a pod on the node"),
        pytest.param(anti("other"), None, False, id="its own term, no such pod"),
        pytest.param(None, anti("p"), True, id="the other pod's term against it"),
        pytest.param(anti("q", "zone"), None, True, id="within the zone"),
        pytest.param(anti("q", "rack"), None, False, id="nodes without the label are in no domain"),
        pytest.param(anti("q", namespaces=["elsewhere"]), None, False, id="other namespaces"),
    ],
)
def test_anti_affinity_both_ways(
    pair: Any, own: dict[str, object] | None, others: dict[str, object] | None, blocked: bool
) -> None:
    pair.p["metadata"]["labels"] = {"app": "p"}
    pair.p["spec"]["affinity"] = own
    pair.pod("q", "b", labels={"app": "q"})["spec"]["affinity"] = others
    assert (search(pair).places == ()) is blocked


def test_a_zone_is_more_than_one_node(pair: Any) -> None:
    pair.node("c", labels={"zone": "x"})
    pair.pod("q", "c", labels={"app": "q"})
    pair.p["spec"]["affinity"] = anti("q", "zone")
    assert search(pair).places == ()


def pinned_pair(cluster: Any, **pod: Any) -> Any:
    """A pod with CPUs of its own on node a, and node b with a topology report."""
    for node in "ab":
        cluster.node(node)
        cluster.report(node)
    cluster.pinned("p", "a", "6-9", **pod)
    return cluster


def test_a_numa_promise_is_kept_on_one_node_or_in_place(cluster: Any) -> None:
    found = search(pinned_pair(cluster, single=True))
    assert [(p.node, p.here, [zone for zone, _ in p.bookings]) for p in found.places] == [
        ("b", False, [0]),
        ("a", True, [0]),
    ]


def test_a_pod_without_a_promise_is_not_offered_its_own_node(pair: Any) -> None:
    assert "a" not in [place.node for place in search(pair).places]


@pytest.mark.parametrize(
    ("others", "zones"),
    [
        pytest.param(["0-3"], [0], id="four of eight are left on node 0"),
        pytest.param(["0-4"], [1], id="three are not enough, node 1 has eight"),
        pytest.param(["0-4", "8-12"], [], id="no single node has four left"),
    ],
)
def test_pinned_cpus_of_others_are_not_free(cluster: Any, others: list[str], zones: list[int]) -> None:
    pinned_pair(cluster, single=True)
    for number, cpus in enumerate(others):
        cluster.pinned(f"q{number}", "b", cpus)
    found = search(cluster)
    assert [zone for place in found.places if place.node == "b" for zone, _ in place.bookings] == zones
    if not zones:
        why = found.by_node["b"]
        assert why.startswith("Koordinator's scheduler would refuse it: Unaligned NUMA Hint cause cpu prefer [11]")


def test_reserved_cpus_are_not_free(cluster: Any) -> None:
    pinned_pair(cluster, single=True)
    cluster.objects[2]["metadata"]["annotations"]["node.koordinator.sh/reservation"] = '{"reservedCPUs":"0-4"}'
    place = next(place for place in search(cluster).places if place.node == "b")
    assert [zone for zone, _ in place.bookings] == [1]


def test_a_node_nobody_reports_on_cannot_keep_a_promise(cluster: Any) -> None:
    pinned_pair(cluster, single=True)
    cluster.node("c")
    assert search(cluster).by_node["c"] == "the node's NUMA nodes are not reported"


def test_cpus_of_its_own_may_come_from_two_nodes_when_nothing_else_was_promised(cluster: Any) -> None:
    pinned_pair(cluster)
    cluster.pinned("q", "b", "0-4,8-12")
    place = next(place for place in search(cluster).places if place.node == "b")
    assert [zone for zone, _ in place.bookings] == [0, 1]


def test_a_guaranteed_pod_must_pass_kubelets_admission(cluster: Any) -> None:
    for node, policy in (("a", "None"), ("b", "SingleNUMANodePodLevel")):
        cluster.node(node)
        cluster.report(node, policy=policy)
    cluster.pod("p", "a", cpu="9")
    assert search(cluster).by_node == {"b": "no single NUMA node is free: cannot align pod"}


def test_restricted_admits_only_what_needs_no_more_numa_nodes_than_on_an_empty_machine(cluster: Any) -> None:
    for node, policy in (("a", "None"), ("b", "RestrictedPodLevel")):
        cluster.node(node)
        cluster.report(node, policy=policy)
    cluster.pinned("first", "b", "0-4")
    cluster.pinned("second", "b", "8-12")
    cluster.pod("p", "a", cpu="4")
    assert search(cluster).by_node == {"b": "kubelet would not admit it: cannot align pod"}


def test_an_app_container_has_to_fit_where_its_init_container_would_be(cluster: Any) -> None:
    for node, policy in (("a", "None"), ("b", "SingleNUMANodeContainerLevel")):
        cluster.node(node)
        cluster.report(node, policy=policy)
    cluster.pinned("first", "b", "0-4")
    pod = cluster.pod("p", "a", cpu="4")
    assert search(cluster).places
    resources = {key: {"cpu": "2", "memory": "1Gi"} for key in ("requests", "limits")}
    pod["spec"]["initContainers"] = [{"name": "init", "resources": resources}]
    assert search(cluster).by_node == {"b": "no single NUMA node is free: cannot align container"}


def test_promised_memory_of_others_is_not_free(cluster: Any) -> None:
    pinned_pair(cluster, single=True, memory="20Gi")
    cluster.pinned("q", "b", "0-1", single=True, memory="20Gi")
    place = next(place for place in search(cluster).places if place.node == "b")
    assert [zone for zone, _ in place.bookings] == [1]


def test_a_bind_policy_is_kept_elsewhere_or_the_pod_does_not_fit(cluster: Any) -> None:
    pinned_pair(cluster)
    b = next(each for each in cluster.objects if each["kind"] == "Node" and each["metadata"]["name"] == "b")
    b["metadata"]["labels"] = {"node.koordinator.sh/cpu-bind-policy": "SpreadByPCPUs"}
    notes = next(each for each in cluster.objects if each["metadata"]["name"] == "p")["metadata"]["annotations"]
    notes["scheduling.koordinator.sh/resource-spec"] = '{"requiredCPUBindPolicy":"FullPCPUs"}'
    why = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    assert search(cluster).by_node["b"] == f"Koordinator's scheduler would refuse it: {why}"


def test_ten_pods_never_count_on_one_free_place(cluster: Any) -> None:
    cluster.node("a", cpu="64")
    cluster.node("b", cpu="4")
    for number in range(10):
        cluster.pod(f"p{number}", "a", cpu="4")
    view = cluster.view()
    fit = FitSearch(view)
    moved = 0
    for pod in view.pods():
        found = fit.search(pod)
        if found.places:
            fit.move(pod, found.places[0])
            moved += 1
    assert moved == 1


def test_cpus_a_plan_has_given_away_are_not_free_again(cluster: Any) -> None:
    for node in "ab":
        cluster.node(node, cpu="64")
        cluster.report(node)
    for number, cpus in enumerate(("0-5", "8-13", "6-7,14-15")):
        cluster.pinned(f"p{number}", "a", cpus, single=True, cpu="6")
    view = cluster.view()
    fit = FitSearch(view)
    zones = []
    for pod in view.pods():
        place = next((place for place in fit.search(pod).places if place.node == "b"), None)
        if place:
            fit.move(pod, place)
            zones += [zone for zone, _ in place.bookings]
    assert zones == [0, 1]


def test_a_new_start_in_place_counts_the_pods_own_cpus_as_free(cluster: Any) -> None:
    cluster.node("a", cpu="8")
    cluster.report("a")
    cluster.pinned("p", "a", "0-3,8-11", single=True, cpu="8")
    assert [(place.node, place.here) for place in search(cluster).places] == [("a", True)]


def test_what_leaves_makes_room(cluster: Any) -> None:
    cluster.node("a", cpu="4")
    cluster.node("b", cpu="4")
    cluster.pod("p", "a", cpu="4")
    cluster.pod("q", "b", cpu="4")
    view = cluster.view()
    fit = FitSearch(view)
    assert not fit.search(find(view, "p")).places
    fit.leave(find(view, "q"))
    assert fit.search(find(view, "p")).places


def test_the_emptier_node_comes_first_and_names_decide_ties(cluster: Any) -> None:
    for node in ("a", "d", "c", "b"):
        cluster.node(node)
    cluster.pod("p", "a")
    cluster.pod("q", "b")
    assert [place.node for place in search(cluster).places] == ["c", "d", "b"]


def test_the_sentence_counts_answers(cluster: Any) -> None:
    cluster.node("a")
    for node in "bc":
        cluster.node(node, cpu="1")
    cluster.node("d")["spec"]["unschedulable"] = True
    cluster.pod("p", "a")
    assert search(cluster).sentence == "2 × insufficient cpu, 1 × node is not schedulable"
