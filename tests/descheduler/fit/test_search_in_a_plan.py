"""Fit as the plan goes on: spread, volumes, anti-affinity that moves along, and answers that are remembered."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import slices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from descheduler.fit import search
from descheduler.fit.search import FitSearch, Place
from descheduler.framework import PodView, View

ZONE = "topology.kubernetes.io/zone"


def find(view: View, name: str) -> PodView:
    return next(pod for pod in view.pods() if pod.pod.name == name)


def says(cluster: Any, name: str = "p") -> dict[str, str]:
    view = cluster.view()
    return dict(FitSearch(view).search(find(view, name), each=True).by_node)


def spread(**more: Any) -> list[dict[str, Any]]:
    one = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    return [{**one, **more}]


@pytest.fixture
def zones(cluster: Any) -> Any:
    """Nodes a, b, c in zones 1, 2, 3; two pods of app x on b, and p of app x on a."""
    for name, zone in zip("abc", "123", strict=True):
        cluster.node(name, labels={ZONE: zone})
    for name in ("q", "r"):
        cluster.pod(name, "b", labels={"app": "x"})
    cluster.p = cluster.pod("p", "a", labels={"app": "x"})
    cluster.p["spec"]["topologySpreadConstraints"] = spread()
    return cluster


UNEVEN = f"pods would be spread too unevenly over {ZONE}"


def test_a_pod_does_not_fit_where_its_kind_is_already_crowded(zones: Any) -> None:
    assert says(zones) == {"b": UNEVEN}


@pytest.mark.parametrize(
    ("constraint", "refused"),
    [
        pytest.param({"maxSkew": 3}, [], id="more skew is allowed"),
        pytest.param({"whenUnsatisfiable": "ScheduleAnyway"}, [], id="a wish is no obstacle"),
        pytest.param({"labelSelector": {"matchLabels": {"app": "y"}}}, [], id="pods of another kind do not count"),
        pytest.param({"matchLabelKeys": ["version"]}, [], id="only pods of its own version count"),
        pytest.param({"minDomains": 4}, ["b"], id="a missing domain counts as empty"),
        pytest.param({"topologyKey": "rack"}, ["b", "c"], id="nodes without the label take nothing"),
    ],
)
def test_what_a_constraint_asks(zones: Any, constraint: dict[str, Any], refused: list[str]) -> None:
    zones.p["spec"]["topologySpreadConstraints"] = spread(**constraint)
    zones.p["metadata"]["labels"]["version"] = "2"
    assert sorted(says(zones)) == refused


def test_its_own_place_does_not_count_since_it_leaves(cluster: Any) -> None:
    for name, zone in zip("abc", "112", strict=True):
        cluster.node(name, labels={ZONE: zone})
    cluster.pod("p", "a", labels={"app": "x"})["spec"]["topologySpreadConstraints"] = spread()
    assert says(cluster) == {}


def test_nodes_its_affinity_excludes_are_no_domains(zones: Any) -> None:
    """Node c is empty: were it a domain, b would be two pods ahead of it."""
    zones.p["spec"]["nodeSelector"] = {"role": "x"}
    for obj in zones.objects[:2]:
        obj["metadata"]["labels"]["role"] = "x"
    zones.pod("s", "a", labels={"app": "x"})
    zones.pod("t", "a", labels={"app": "x"})
    assert says(zones) == {"c": "pod node selector does not match the node label"}
    zones.p["spec"]["topologySpreadConstraints"] = spread(nodeAffinityPolicy="Ignore")
    assert says(zones)["b"] == UNEVEN


def test_arrivals_count_for_the_spread(zones: Any) -> None:
    zones.pod("s", "a", labels={"app": "x"})["spec"]["topologySpreadConstraints"] = spread()
    view = zones.view()
    fit = FitSearch(view)
    assert [place.node for place in fit.search(find(view, "p")).places] == ["c"]
    fit.move(find(view, "s"), Place("c"))
    assert fit.search(find(view, "p"), each=True).by_node == {"b": UNEVEN, "c": UNEVEN}


def claim(cluster: Any, *, volume: str = "", storage_class: str = "fast") -> None:
    cluster.p["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"volumeName": volume, "storageClassName": storage_class}
    cluster.add({"kind": "PersistentVolumeClaim", "metadata": {"namespace": "default", "name": "data"}, "spec": spec})


NOT_REACHED = "a volume of the pod cannot be reached from the node"


@pytest.fixture
def stateful(cluster: Any) -> Any:
    """Pod p on node a in zone 1; nodes b and c in zones 2 and 3."""
    for name, zone in zip("abc", "123", strict=True):
        cluster.node(name, labels={ZONE: zone})
    cluster.p = cluster.pod("p", "a")
    return cluster


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param({"labels": {ZONE: "1__2"}}, id="zones of the volume's labels"),
        pytest.param(
            {"terms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["1", "2"]}]}]},
            id="its node affinity",
        ),
    ],
)
def test_a_volume_is_reached_from_some_nodes_only(stateful: Any, volume: dict[str, Any]) -> None:
    claim(stateful, volume="pv")
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": volume["terms"]}}} if "terms" in volume else {}
    meta = {"name": "pv", "labels": volume.get("labels", {})}
    stateful.add({"kind": "PersistentVolume", "metadata": meta, "spec": affinity})
    assert says(stateful) == {"c": NOT_REACHED}


@pytest.mark.parametrize(("mode", "refused"), [("WaitForFirstConsumer", ["c"]), ("Immediate", [])])
def test_a_volume_that_is_made_later_is_made_where_its_class_allows(
    stateful: Any, mode: str, refused: list[str]
) -> None:
    claim(stateful)
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["1", "2"]}]}]
    found = {"metadata": {"name": "fast"}, "volumeBindingMode": mode, "allowedTopologies": allowed}
    stateful.add({"kind": "StorageClass", **found})
    assert sorted(says(stateful)) == refused


def test_a_claim_or_volume_nobody_knows_is_no_obstacle_and_is_told(stateful: Any) -> None:
    stateful.pod("q", "a")["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "lost"}}]
    (note,) = (note for note in stateful.view().notes if "volume" in note)
    assert note.startswith("1 volume claims of pods are not there, such as default/")
    stateful.objects.pop()
    claim(stateful, volume="unknown")
    assert says(stateful) == {}
    (note,) = (note for note in stateful.view().notes if "volume" in note)
    assert note.startswith("1 volumes of claims are not there, such as unknown")
    stateful.add({"kind": "PersistentVolume", "metadata": {"name": "unknown"}})
    assert not [note for note in stateful.view().notes if "volume" in note]


def anti(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def beside(*apps: str, key: str = "kubernetes.io/hostname", **more: Any) -> dict[str, Any]:
    terms = [{"labelSelector": {"matchLabels": {name: "x"}}, "topologyKey": key, **more} for name in apps]
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("labels", "affinity", "refused"),
    [
        pytest.param({}, beside("friend"), "cd", id="where a friend is"),
        pytest.param({}, beside("friend", key=ZONE), "d", id="in the zone of a friend"),
        pytest.param({}, beside("friend", "other"), "bcd", id="all terms by the same pod"),
        pytest.param({}, beside("absent"), "bcd", id="with somebody that nobody is"),
        pytest.param({"absent": "x"}, beside("absent"), "", id="the first of its own group goes anywhere"),
        pytest.param({"absent": "x"}, beside("absent", key=ZONE), "d", id="but not where the label is missing"),
        pytest.param({"friend": "x"}, beside("friend"), "cd", id="its group is elsewhere already"),
        pytest.param({}, beside("friend", namespaces=["far"]), "bcd", id="friends of another namespace"),
        pytest.param({}, beside("stranger", namespaces=["far"]), "bc", id="one of another namespace"),
        pytest.param({}, beside("stranger", namespaceSelector={}), "bc", id="in any namespace"),
    ],
)
def test_whom_a_pod_has_to_be_with(
    cluster: Any, labels: dict[str, str], affinity: dict[str, Any], refused: str
) -> None:
    """Node a has the pod, b a friend and in zone 1 as c; d has no zone, and a stranger."""
    for name, zone in (("a", {}), ("b", {ZONE: "1"}), ("c", {ZONE: "1"}), ("d", {})):
        cluster.node(name, labels=zone)
    cluster.pod("p", "a", labels=labels)["spec"]["affinity"] = affinity
    cluster.pod("f", "b", labels={"friend": "x"})
    cluster.pod("o", "d", labels={"other": "x"})
    cluster.pod("s", "d", labels={"stranger": "x"})["metadata"]["namespace"] = "far"
    found = says(cluster)
    assert sorted(found) == list(refused)
    assert all(why.startswith("no pod that its required affinity asks for is there") for why in found.values())


def test_company_that_moves_takes_the_others_along(cluster: Any) -> None:
    for name in "abc":
        cluster.node(name)
    cluster.pod("p", "a")["spec"]["affinity"] = beside("friend")
    cluster.pod("f", "b", labels={"friend": "x"})
    view = cluster.view()
    fit = FitSearch(view)
    p = find(view, "p")
    assert [place.node for place in fit.search(p).places] == ["b"]
    fit.move(find(view, "f"), Place("c"))
    assert [place.node for place in fit.search(p).places] == ["c"]


def test_rivals_that_move_block_their_new_place_and_free_the_old(cluster: Any) -> None:
    for name in "abc":
        cluster.node(name)
    for name, node in (("p", "a"), ("q", "b")):
        cluster.pod(name, node, labels={"app": "x"})["spec"]["affinity"] = anti("x")
    view = cluster.view()
    fit = FitSearch(view)
    p, q = find(view, "p"), find(view, "q")
    assert [place.node for place in fit.search(p).places] == ["c"]
    fit.move(q, Place("c"))
    assert [place.node for place in fit.search(p).places] == ["b"]


def test_two_pods_never_count_on_one_place(cluster: Any) -> None:
    cluster.node("a", cpu="8")
    cluster.node("b", cpu="3")
    for name in "pq":
        cluster.pod(name, "a", cpu="2")
    view = cluster.view()
    fit = FitSearch(view)
    fit.move(find(view, "p"), fit.search(find(view, "p")).places[0])
    assert not fit.fits(find(view, "q"))
    assert fit.search(find(view, "q"), each=True).by_node == {"b": "insufficient cpu"}


def test_a_refusal_is_remembered_until_a_node_changes(cluster: Any) -> None:
    cluster.node("a", cpu="8")
    cluster.node("b", cpu="2")
    for name, node in (("p", "a"), ("q", "a"), ("full", "b")):
        cluster.pod(name, node, cpu="2")
    view = cluster.view()
    fit = FitSearch(view)
    assert not fit.fits(find(view, "p"))
    assert not fit.fits(find(view, "q"))
    fit.leave(find(view, "full"))
    assert fit.fits(find(view, "q"))


def test_what_held_for_a_pod_on_one_node_is_asked_anew_for_one_on_another(cluster: Any) -> None:
    """Pod p is on the only node with room, so it fits nowhere else; q is like it and fits there."""
    cluster.node("a", cpu="8")
    cluster.node("b", cpu="2")
    for name, node in (("p", "a"), ("q", "b")):
        cluster.pod(name, node, cpu="2")
    view = cluster.view()
    fit = FitSearch(view)
    assert not fit.fits(find(view, "p"))
    assert fit.fits(find(view, "q"))


def test_of_many_nodes_only_enough_are_asked(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ASK_ALL", 3)
    for number in range(9):
        cluster.node(f"n{number}", cpu="1" if number == 8 else "8")
    cluster.pod("p", "n0", cpu="2")
    view = cluster.view()
    found = FitSearch(view).search(find(view, "p"))
    assert len(found.places) == search.ENOUGH
    assert found.unasked == 9 - 1 - search.ENOUGH - sum(found.why_not.values())


def test_the_pods_own_node_is_asked_when_it_is_named(cluster: Any) -> None:
    """Its resources are there already, but it must still be allowed there."""
    node = cluster.node("a", cpu="1")
    cluster.pod("p", "a", cpu="4")
    view = cluster.view()
    assert FitSearch(view).fits_on(find(view, "p"), {"a"})
    node["spec"]["unschedulable"] = True
    view = cluster.view()
    assert FitSearch(view).refusal(find(view, "p"), "a") == "node is not schedulable"


SIZES = st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=8)
MOVES = st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=8)


@settings(
    max_examples=slices.amount(40, 15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(SIZES, MOVES, st.data())
def test_remembered_answers_are_those_of_a_fresh_look(
    cluster: Any, sizes: list[str], moves: list[tuple[int, bool]], data: st.DataObject
) -> None:
    cluster.objects.clear()
    for name, cpu in (("a", "8"), ("b", "4"), ("c", "2")):
        cluster.node(name, cpu=cpu)
    for number, cpu in enumerate(sizes):
        obj = cluster.pod(f"p{number}", data.draw(st.sampled_from("abc")), cpu=cpu, labels={"app": cpu})
        obj["spec"]["affinity"] = {"3": anti("3"), "2": beside("app")}.get(cpu)
        obj["metadata"]["labels"]["app"] = "x" if number % 4 == 1 else cpu
    view = cluster.view()
    fit, pods, done = FitSearch(view), list(view.pods()), list[tuple[PodView, Place | None]]()
    for number, away in moves:
        pod = pods[number % len(pods)]
        if pod in [moved for moved, _ in done]:
            continue
        place = None if away else next(iter(fit.search(pod).places), None)
        done.append((pod, place))
        _apply(fit, pod, place)
        fresh = FitSearch(view)
        for moved, target in done:
            _apply(fresh, moved, target)
        staying = [other for other in pods if other not in [moved for moved, _ in done]]
        assert [_told(fit, other) for other in staying] == [_told(fresh, other) for other in staying]
        assert [fit.fits(other) for other in staying] == [bool(fresh.search(other).places) for other in staying]


def _told(fit: FitSearch, pod: PodView) -> tuple[object, ...]:
    found, each = fit.search(pod), fit.search(pod, each=True)
    assert found.why_not == each.why_not == Counter(each.by_node.values())
    return found.places, found.why_not, found.unasked, each.by_node


def _apply(fit: FitSearch, pod: PodView, place: Place | None) -> None:
    if place:
        fit.move(pod, place)
    else:
        fit.leave(pod)
