"""Bodies of the patches: only our keys, and nothing when nothing differs."""

from __future__ import annotations

from typing import Any

import pytest
from apibench import BATCH, Bench
from hypothesis import given
from hypothesis import strategies as st

from koordlite.changes.published import (
    NodeAnnotationChange,
    NodeResourceChange,
    TopologyChange,
    TopologyLabelChange,
    ZonesChange,
)
from koordlite.kube.client.access import ApiError
from koordlite.kube.publish import publisher
from koordlite.model.wire import objects


def _node(**amounts: Any) -> objects.NodeObject:
    status = objects.NodeStatus(capacity=amounts, allocatable=amounts)
    return objects.NodeObject(metadata=objects.ObjectMeta(name="n1", annotations={"k": "v"}), status=status)


@pytest.mark.parametrize(
    ("held", "wanted", "stands"),
    [
        ("5k", 5000, True),
        ("4500", 4500, True),
        (5000, 5000, True),
        ("16Gi", 17179869184, True),
        ("5k", 5001, False),
        (None, None, True),
        (None, 0, False),
        ("0", None, False),
        ("nonsense", 5, False),
    ],
)
def test_amounts_are_compared_as_amounts(held: str | int | None, wanted: int | None, stands: bool) -> None:
    node = _node(**({} if held is None else {"r": held}))
    assert NodeResourceChange("r", wanted).stands(node) is stands


@pytest.mark.parametrize(("text", "stands"), [("v", True), ("w", False), (None, False)])
def test_annotations_are_compared_as_text(text: str | None, stands: bool) -> None:
    assert NodeAnnotationChange("k", text).stands(_node()) is stands


def test_a_node_patch_holds_our_keys_only() -> None:
    changes = [NodeResourceChange("a", 5), NodeResourceChange("b", None), NodeAnnotationChange("k", None)]
    assert publisher.of_node(changes, uid="u") == {
        "metadata": {"annotations": {"k": None}, "uid": "u"},
        "status": {"capacity": {"a": "5", "b": None}, "allocatable": {"a": "5", "b": None}},
    }


def test_a_node_made_anew_under_the_name_refuses_the_patch(bench: Bench) -> None:
    body = publisher.of_node([NodeResourceChange(BATCH, 5)], uid="an-earlier-one")
    with pytest.raises(ApiError) as caught:
        bench.api().request("PATCH", "/api/v1/nodes/n1/status", body=body, content_type="application/merge-patch+json")
    assert caught.value.status == 422
    assert BATCH not in bench.node()["status"]["capacity"]


HELD = objects.NRTObject(
    metadata=objects.ObjectMeta(name="n1", resource_version="7", labels={"l": "1"}, annotations={"a": "1"}),
    topology_policies=("None",),
    zones=(objects.Zone(name="node-0", type="Node"),),
)


def test_zones_are_locked_to_the_version_they_were_made_from() -> None:
    body = publisher.of_topology(HELD, [ZonesChange((objects.Zone(name="node-1", type="Node"),), ("None",))])
    assert body["metadata"] == {"resourceVersion": "7"}
    assert [zone["name"] for zone in body["zones"]] == ["node-1"]


def test_annotations_and_labels_need_no_lock() -> None:
    body = publisher.of_topology(HELD, [TopologyChange("b", "2"), TopologyLabelChange("l", None)])
    assert body == {"metadata": {"annotations": {"b": "2"}, "labels": {"l": None}}}


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3))
def test_what_stands_already_is_an_empty_patch(notes: dict[str, str]) -> None:
    changes = [TopologyChange(key, text) for key, text in notes.items()]
    assert publisher.of_topology(publisher.after(HELD, changes), changes) == {}
