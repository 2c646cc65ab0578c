"""Conflicts through the index: the same as comparing each pod with each other one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from descheduler.framework import NodeView, PodView
from descheduler.picture.templates import grouped, indices, place
from descheduler.plugins.remove_pods_violating_inter_pod_anti_affinity import Conflicts
from koordlite.model import label_selectors, node
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects as wire

ZONES = {"n0": "a", "n1": "a", "n2": "b", "n3": None}
apps = st.sampled_from(["x", "y"])
term = st.builds(
    lambda app, key, namespaces: wire.PodAffinityTerm(
        label_selector=wire.LabelSelector(match_labels={"app": app}), topology_key=key, namespaces=namespaces
    ),
    apps,
    st.sampled_from(["zone", "name"]),
    st.sampled_from([None, ("one",), ("one", "two")]),
)
pods = st.lists(
    st.tuples(st.sampled_from(list(ZONES)), st.sampled_from(["one", "two"]), apps, st.lists(term, max_size=2)),
    max_size=8,
)


def nodes() -> list[NodeView]:
    labels = {name: {"name": name, **({"zone": zone} if zone else {})} for name, zone in ZONES.items()}
    objects = [wire.NodeObject(metadata=wire.ObjectMeta(name=name, labels=one)) for name, one in labels.items()]
    return [NodeView(node.from_wire(obj), obj) for obj in objects]


def view(number: int, place: str, namespace: str, app: str, terms: list[wire.PodAffinityTerm]) -> PodView:
    anti = wire.PodAffinity(required=tuple(terms))
    spec = wire.PodSpec(node_name=place, affinity=wire.Affinity(pod_anti_affinity=anti))
    meta = wire.ObjectMeta(name=f"p{number}", namespace=namespace, uid=f"u{number}", labels={"app": app})
    obj = wire.PodObject(metadata=meta, spec=spec)
    return PodView(pod_reader.from_wire(obj), obj, place, None)


def counterparts(one: PodView, others: list[PodView]) -> set[str]:
    """Of the first term that somebody breaks."""
    labels = {n.name: n.node.labels for n in nodes()}
    affinity = one.object.spec.affinity
    assert affinity
    assert affinity.pod_anti_affinity
    for rule in affinity.pod_anti_affinity.required or ():
        key = rule.topology_key
        found = {
            other.uid
            for other in others
            if other.uid != one.uid
            and other.pod.namespace in (rule.namespaces or (one.pod.namespace,))
            and label_selectors.labels_match(rule.label_selector, other.pod.labels)
            and (
                other.node == one.node
                or (key in labels[one.node] and labels[one.node].get(key) == labels[other.node].get(key))
            )
        }
        if found:
            return found
    return set()


@given(pods, st.lists(st.integers(0, 7), max_size=3))
def test_the_index_finds_whom_a_comparison_of_all_pairs_finds(
    written: list[tuple[str, str, str, list[wire.PodAffinityTerm]]], leaving: list[int]
) -> None:
    present = [view(number, *one) for number, one in enumerate(written)]
    groups = list(grouped(sorted(present, key=place)).values())
    conflicts = Conflicts(nodes(), indices(groups), {})
    free = [group for group in groups if not conflicts.possible(group)]
    assert not any(counterparts(one, present) for group in free for one in group.pods)
    for number in [*leaving, None]:
        for one in present:
            found, expected = conflicts.of(one), counterparts(one, present)
            assert (found.count if found else 0) == len(expected)
            assert not found or found.other.uid in expected
        gone = [one for one in present if number is not None and one.uid == f"u{number}"]
        for one in gone:
            conflicts.remove(one)
            present.remove(one)
