"""Templates: pods in groups that share what their owner wrote, in the order of the picture."""

from __future__ import annotations

import ast
import copy
import pathlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from descheduler.arguments.common import LabelSelector, Namespaces
from descheduler.framework import PodView, View
from descheduler.picture.templates import Template, grouped, pods_of
from descheduler.rules.pod_filter import select_groups
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects as wire

Object = dict[str, Any]


def names(pods: list[PodView]) -> list[str]:
    return [one.pod.name for one in pods]


def templates(view: View) -> list[Template]:
    return [template for group in view.groups for template in group.templates]


def three_on_two_nodes(cluster: Any) -> list[Object]:
    for name in "ab":
        cluster.node(name)
    return [cluster.pod(name, node) for name, node in (("z", "a"), ("x", "b"), ("y", "b"))]


def test_replicas_are_one_template_in_the_order_of_the_picture(cluster: Any) -> None:
    three_on_two_nodes(cluster)
    (template,) = templates(cluster.view())
    assert names(template.pods) == ["z", "x", "y"]
    assert (template.first.pod.namespace, template.first.pod.name) == ("default", "z")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda p: p["metadata"].update(namespace="other"), id="namespace"),
        pytest.param(lambda p: p["metadata"].update(labels={"a": "b"}), id="labels"),
        pytest.param(lambda p: p["metadata"]["ownerReferences"][0].update(name="other"), id="owners"),
        pytest.param(lambda p: p["spec"]["containers"][0].update(image="other"), id="images"),
        pytest.param(lambda p: p["spec"].update(affinity={"podAntiAffinity": {}}), id="affinity"),
        pytest.param(lambda p: p["spec"].update(nodeSelector={"a": "b"}), id="node selector"),
        pytest.param(lambda p: p["spec"].update(tolerations=[{"operator": "Exists"}]), id="tolerations"),
        pytest.param(
            lambda p: p["spec"].update(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone"}]), id="spread"
        ),
    ],
)
def test_a_pod_that_differs_in_one_part_is_of_another_template(cluster: Any, change: Callable[[Object], None]) -> None:
    change(three_on_two_nodes(cluster)[1])
    assert sorted(names(one.pods) for one in templates(cluster.view())) == [["x"], ["z", "y"]]


def test_annotations_priority_and_status_make_no_template(cluster: Any) -> None:
    odd = three_on_two_nodes(cluster)[0]
    odd["metadata"]["annotations"] = {"a": "b"}
    odd["spec"]["priority"] = 7
    odd["status"]["phase"] = "Pending"
    assert len(templates(cluster.view())) == 1


def test_pods_of_several_templates_come_in_the_order_of_the_picture(cluster: Any) -> None:
    for name in "ab":
        cluster.node(name)
    for name, node, owner in (("p3", "a", "one"), ("p1", "b", "one"), ("p4", "a", "two"), ("p2", "b", "two")):
        cluster.pod(name, node, owner=owner)
    view = cluster.view()
    found = templates(view)
    assert len(found) == 2
    assert pods_of(found) == list(view.pods())
    assert pods_of(reversed(found)) == list(view.pods())
    assert pods_of(()) == []


def test_pods_that_share_nothing_are_templates_of_their_own(cluster: Any) -> None:
    three_on_two_nodes(cluster)
    objects = [
        msgspec.convert(copy.deepcopy(msgspec.to_builtins(p.object)), wire.PodObject) for p in cluster.view().pods()
    ]
    apart = [PodView(pod_reader.from_wire(obj), obj, obj.spec.node_name, None) for obj in objects]
    found = [template for group in grouped(apart).values() for template in group.templates]
    assert [names(one.pods) for one in found] == [["z"], ["x"], ["y"]]
    assert pods_of(found) == apart


@pytest.mark.parametrize(
    ("nodes", "namespaces", "selector", "expected"),
    [
        pytest.param("ab", Namespaces(), None, ["z", "x", "y", "o"], id="everything"),
        pytest.param("b", Namespaces(), None, ["x", "y", "o"], id="pods of some nodes"),
        pytest.param("a", Namespaces(exclude=("default",)), None, [], id="a template without such pods is none"),
        pytest.param("ab", Namespaces(include=("other",)), None, ["o"], id="a namespace"),
        pytest.param("ab", Namespaces(exclude=("other",)), None, ["z", "x", "y"], id="all namespaces but one"),
        pytest.param("ab", Namespaces(), LabelSelector(match_labels={"a": "b"}), ["o"], id="labels"),
    ],
)
def test_templates_that_a_plugin_looks_at(
    cluster: Any, nodes: str, namespaces: Namespaces, selector: LabelSelector | None, expected: list[str]
) -> None:
    three_on_two_nodes(cluster)
    cluster.pod("o", "b", labels={"a": "b"})["metadata"]["namespace"] = "other"
    view = cluster.view()
    found = select_groups(view, [view.nodes[name] for name in nodes], namespaces, selector)
    assert [name for group in found for one in group.templates for name in names(one.pods)] == expected


def test_pods_of_one_template_have_its_key_and_others_have_another(cluster: Any) -> None:
    three_on_two_nodes(cluster)
    cluster.pod("o", "b", labels={"a": "b"})
    keys = {one.pod.name: one.template for one in cluster.view().pods()}
    assert keys["z"] == keys["x"] == keys["y"] != keys["o"]


def test_pods_that_differ_in_labels_alone_share_the_rest_of_their_template(cluster: Any) -> None:
    for name in "xyz":
        cluster.node(name)
        cluster.pod(name, name, labels={"app": "a", "pod-index": name})
    cluster.pod("o", "x", labels={"app": "a"}, cpu="7")
    pods = {one.pod.name: one for one in cluster.view().pods()}
    templates = {name: pod.template for name, pod in pods.items()}
    assert templates["x"] is not templates["y"]
    assert templates["x"].spec is templates["y"].spec is templates["z"].spec
    assert templates["o"].spec is not templates["x"].spec
    assert [pods[name].pod.labels["pod-index"] for name in "xyz"] == ["x", "y", "z"]
    assert pods["x"].object.spec.containers is pods["y"].object.spec.containers


def test_no_module_knows_objects_by_their_addresses() -> None:
    sources = (pathlib.Path(__file__).parents[3] / "descheduler").rglob("*.py")
    calls = [
        (path.name, node.lineno)
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and node.id == "id" and isinstance(node.ctx, ast.Load)
    ]
    assert calls == []


def test_a_group_follows_its_pods_and_forgets_labels_that_are_gone(cluster: Any) -> None:
    cluster.node("a")
    for number in range(4):
        cluster.pod(f"p{number}", "a", labels={"app": "x", "own": str(number)})
    pods = list(cluster.view().pods())
    before = grouped(pods)
    (group,) = before.values()
    assert sorted(group.by_label("own")) == ["0", "1", "2", "3"]
    assert (names(list(group.pods)), group.counts(_parity)) == (["p0", "p1", "p2", "p3"], {"0": 2, "1": 2})
    (after,) = grouped((), pods[:2], before).values()
    assert [pod.pod.name for pod in after.pods] == ["p2", "p3"]
    assert after.counts(_parity) == {"0": 1, "1": 1}
    (odd,) = grouped((), pods[::2], before).values()
    assert odd.counts(_parity) == {"1": 2}
    assert (group.nodes, group.crowded) == ({"a"}, {"a"})
    (last,) = grouped((), pods[1:], before).values()
    assert (last.nodes, last.crowded) == ({"a"}, set())
    assert after.first is pods[2]
    assert {value: names(one.pods) for value, (one,) in after.by_label("own").items()} == {"2": ["p2"], "3": ["p3"]}
    assert sorted(group.by_label("own")) == ["0", "1", "2", "3"]
    assert grouped((), (), before) is before
    assert grouped((), pods, before) == {}


def _parity(pod: PodView) -> str:
    return str(int(pod.pod.name[1:]) % 2)
