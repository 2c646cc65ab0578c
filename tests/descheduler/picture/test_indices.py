"""Indices of pods by labels and of nodes by rules: the same answers as asking each one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from descheduler.framework import NodeView, PodView
from descheduler.picture import node_index
from descheduler.picture.node_index import NodeIndex
from descheduler.picture.templates import LabelIndex, grouped
from koordlite.model import label_selectors, node, node_selectors
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects as wire

keys, values = st.sampled_from("ab"), st.sampled_from("xyz")
labels = st.dictionaries(keys, values)
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Odd"])
lines = st.builds(
    lambda key, operator, chosen: wire.LabelRequirement(key=key, operator=operator, values=tuple(chosen)),
    keys,
    operators,
    st.lists(values, max_size=2),
)
selector = st.builds(
    lambda plain, more: wire.LabelSelector(match_labels=plain, match_expressions=tuple(more)),
    labels,
    st.lists(lines, max_size=2),
)
terms = st.builds(lambda more: wire.NodeSelectorTerm(match_expressions=tuple(more)), st.lists(lines, max_size=2))
by_name = st.builds(
    lambda name: wire.NodeSelectorTerm(
        match_fields=(wire.LabelRequirement(key="metadata.name", operator="In", values=(name,)),)
    ),
    st.sampled_from(["n0", "n1"]),
)
taints = st.builds(lambda key, effect: wire.Taint(key=key, effect=effect), keys, st.sampled_from(["NoSchedule", "X"]))


def pods_with(all_labels: list[dict[str, str]]) -> list[PodView]:
    metas = (wire.ObjectMeta(name=f"p{i}", uid=f"p{i}", labels=one) for i, one in enumerate(all_labels))
    objects = [wire.PodObject(metadata=meta) for meta in metas]
    return [PodView(pod_reader.from_wire(obj), obj, "n", None) for obj in objects]


def preferring(preferred: tuple[wire.PreferredNodes, ...]) -> PodView:
    affinity = wire.Affinity(node_affinity=wire.NodeAffinity(preferred=preferred))
    obj = wire.PodObject(metadata=wire.ObjectMeta(name="p", uid="p"), spec=wire.PodSpec(affinity=affinity))
    return PodView(pod_reader.from_wire(obj), obj, "n", None)


def nodes_with(all_labels: list[dict[str, str]], all_taints: list[list[wire.Taint]]) -> list[NodeView]:
    made = []
    for number, one in enumerate(all_labels):
        spec = wire.NodeSpec(taints=tuple(all_taints[number]) if number < len(all_taints) else None)
        obj = wire.NodeObject(metadata=wire.ObjectMeta(name=f"n{number}", labels=one), spec=spec)
        made.append(NodeView(node.from_wire(obj), obj))
    return made


@given(st.lists(labels, max_size=8), selector)
def test_the_index_of_labels_finds_what_the_selector_selects(
    all_labels: list[dict[str, str]], wanted: wire.LabelSelector
) -> None:
    pods = pods_with(all_labels)
    found = LabelIndex(list(grouped(pods).values())).select(wanted)
    assert {p.uid for p in found} == {p.uid for p in pods if label_selectors.labels_match(wanted, p.pod.labels)}
    assert len(found) == len({p.uid for p in found})


def test_a_missing_selector_selects_nobody() -> None:
    assert LabelIndex(list(grouped(pods_with([{"a": "x"}])).values())).select(None) == []


@given(st.lists(labels, min_size=1, max_size=6), labels, st.lists(terms | by_name, max_size=2) | st.none())
def test_nodes_that_labels_allow(all_labels: list[dict[str, str]], plain: dict[str, str], required: Any) -> None:
    affinity = wire.Affinity(
        node_affinity=wire.NodeAffinity(
            required=None if required is None else wire.NodeSelector(node_selector_terms=tuple(required))
        )
    )
    spec = wire.PodSpec(node_selector=plain, affinity=affinity)
    nodes = nodes_with(all_labels, [])
    expected = {n.name for n in nodes if node_selectors.node_matches(spec, n.name, n.node.labels)}
    assert NodeIndex(nodes).allowed_by_labels(spec) == expected


@given(st.lists(st.lists(taints, max_size=2), min_size=1, max_size=6), st.sampled_from(["", "a", "b"]))
def test_nodes_that_tolerations_allow(all_taints: list[list[wire.Taint]], key: str) -> None:
    nodes = nodes_with([{}] * len(all_taints), all_taints)
    tolerations = (wire.Toleration(key=key, operator="Exists"),) if key else ()
    expected = {n.name for n in nodes if not node_selectors.untolerated(n.object.spec.taints or (), tolerations)}
    assert NodeIndex(nodes).allowed_by_taints(tolerations) == expected


@given(
    st.lists(labels, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 100), terms | by_name), max_size=3),
)
def test_weights_are_the_sum_of_terms_that_match(
    all_labels: list[dict[str, str]], written: list[tuple[int, wire.NodeSelectorTerm]]
) -> None:
    preferred = tuple(wire.PreferredNodes(weight=weight, preference=term) for weight, term in written)
    nodes = nodes_with(all_labels, [])
    weights = NodeIndex(nodes).weights(preferring(preferred))
    expected = {n.name: node_index.weight(preferred, n) for n in nodes}
    assert weights.most == max(expected.values())
    assert {n.name: weights.of(n) for n in nodes} == expected
    for least in (0, *expected.values()):
        assert {n.name for n in weights.above(least)} == {name for name, value in expected.items() if value > least}


def test_an_empty_preference_matches_no_node() -> None:
    preferred = (wire.PreferredNodes(weight=7),)
    nodes = nodes_with([{"a": "x"}], [])
    assert NodeIndex(nodes).weights(preferring(preferred)).of(nodes[0]) == 0
