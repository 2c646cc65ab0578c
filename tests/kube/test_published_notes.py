"""Annotations of the Node and resources of its zones, published into a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordlite.changes.published import (
    NodeAnnotationChange,
    NodeConditionChange,
    NodeResourceChange,
    ZoneResourceChange,
    ZonesChange,
)
from koordlite.model.wire.objects import Zone, ZoneResource

CPU = "kubernetes.io/batch-cpu"


def part(name: str, amount: str) -> ZoneResource:
    return ZoneResource(name=name, capacity=amount, allocatable=amount, available=amount)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where to publish."""
    return tmp_path / "published"


def notes(view: Any) -> dict[str, str]:
    """The node's annotations in a view."""
    return dict(view.node.metadata.annotations or {})


def test_an_annotation_is_in_the_next_view_and_goes_when_it_is_removed(desk: Any, folder: Path) -> None:
    cluster = desk.cluster(published=folder)
    before = notes(cluster.view())
    cluster.publish([NodeAnnotationChange("ours", "1")])
    assert notes(cluster.view()) == {**before, "ours": "1"}
    cluster.publish([NodeAnnotationChange("ours", None)])
    assert notes(cluster.view()) == before


def test_a_restart_takes_up_annotations_and_resources(desk: Any, folder: Path) -> None:
    first = desk.cluster(published=folder)
    first.view()
    first.publish([NodeAnnotationChange("ours", "1"), NodeResourceChange(CPU, 4000)])
    second = desk.cluster(published=folder)
    view = second.view()
    assert (notes(view)["ours"], view.node.status.allocatable[CPU]) == ("1", "4000")
    second.publish([NodeAnnotationChange("ours", None)])
    assert "ours" not in notes(desk.cluster(published=folder).view())


def test_a_condition_is_taken_up_after_a_restart_and_goes(desk: Any, folder: Path) -> None:
    first = desk.cluster(published=folder)
    first.view()
    first.publish([NodeConditionChange("CPUContention", "True")])

    def conditions(cluster: Any) -> list[tuple[str, str]]:
        return [(each.type, each.status) for each in cluster.view().node.status.conditions or ()]

    second = desk.cluster(published=folder)
    assert ("CPUContention", "True") in conditions(second)
    second.publish([NodeConditionChange("CPUContention", None)])
    assert "CPUContention" not in dict(conditions(desk.cluster(published=folder)))


def test_the_published_node_carries_them(desk: Any, folder: Path) -> None:
    cluster = desk.cluster(published=folder)
    cluster.view()
    cluster.publish([NodeAnnotationChange("ours", "1")])
    found = json.loads((folder / "node-n1.json").read_bytes())
    assert found["metadata"]["annotations"]["ours"] == "1"


def test_a_part_goes_into_its_zone_and_leaves_it(desk: Any, folder: Path) -> None:
    cluster = desk.cluster(published=folder)
    cluster.view()
    zones = tuple(Zone(name=name, type="Node", resources=(part("cpu", "4"),)) for name in ("node-0", "node-1"))
    cluster.publish([ZonesChange(zones, ("None",)), ZoneResourceChange("node-1", CPU, part(CPU, "100"))])
    shown = {zone.name: zone.resources for zone in cluster.view().topology.zones}
    assert shown == {"node-0": (part("cpu", "4"),), "node-1": (part("cpu", "4"), part(CPU, "100"))}
    cluster.publish([ZonesChange(zones, ("None",))])
    assert cluster.view().topology.zones[1].resources == (part("cpu", "4"), part(CPU, "100")), "it is not the zones'"
    cluster.publish([ZoneResourceChange("node-1", CPU, None), ZoneResourceChange("node-9", CPU, part(CPU, "1"))])
    assert cluster.view().topology.zones == zones, "a zone that is not there is not made"
