"""What the agent publishes is in the next view, on disk, and still there after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordlite.changes.published import NodeResourceChange, TopologyChange, TopologyLabelChange, ZonesChange
from koordlite.model.errors import InputError
from koordlite.model.wire.objects import Zone, ZoneResource

CPU = "kubernetes.io/batch-cpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where to publish."""
    return tmp_path / "published"


def allocatable(view: Any) -> dict[str, Any]:
    """The node's allocatable in a view."""
    return dict(view.node.status.allocatable)


@pytest.mark.parametrize("on_disk", [True, False])
def test_published_resources_are_in_the_next_view(desk: Any, folder: Path, on_disk: bool) -> None:
    cluster = desk.cluster(published=folder if on_disk else None)
    cluster.view()
    cluster.publish([NodeResourceChange(CPU, 4000)])
    view = cluster.view()
    assert allocatable(view) == {"cpu": 8, CPU: "4000"}
    assert view.node.status.capacity == {"cpu": 8, CPU: "4000"}
    assert folder.exists() == on_disk


def test_published_files_are_objects_others_can_read(desk: Any, folder: Path) -> None:
    cluster = desk.cluster(published=folder)
    cluster.view()
    cluster.publish([NodeResourceChange(CPU, 4000), TopologyChange("key", "value")])
    node = json.loads((folder / "node-n1.json").read_bytes())
    assert (node["kind"], node["metadata"]["name"]) == ("Node", "n1")
    assert node["status"]["allocatable"] == {"cpu": 8, CPU: "4000"}, "the node as the API server would hold it"
    topology = json.loads((folder / "noderesourcetopology-n1.json").read_bytes())
    assert (topology["kind"], topology["metadata"]["annotations"]) == ("NodeResourceTopology", {"key": "value"})
    assert sorted(path.name for path in folder.iterdir()) == ["node-n1.json", "noderesourcetopology-n1.json"]


def test_a_restart_takes_up_what_was_published(desk: Any, folder: Path) -> None:
    first = desk.cluster(published=folder)
    first.view()
    first.publish([NodeResourceChange(CPU, 4000), TopologyChange("a", "1")])
    second = desk.cluster(published=folder)
    assert allocatable(second.view())[CPU] == "4000"
    second.publish([TopologyChange("b", "2")])
    assert second.view().topology.metadata.annotations == {"a": "1", "b": "2"}


def test_a_removed_resource_is_gone_even_if_the_manifest_has_it(desk: Any, folder: Path) -> None:
    desk.write("node.yaml", f"kind: Node\nmetadata: {{name: n1}}\nstatus: {{allocatable: {{{CPU}: 7}}}}\n")
    cluster = desk.cluster(published=folder)
    assert allocatable(cluster.view()) == {CPU: 7}
    cluster.publish([NodeResourceChange(CPU, None)])
    assert allocatable(cluster.view()) == {}
    assert allocatable(desk.cluster(published=folder).view()) == {}


def test_zones_replace_ours_and_keep_what_others_put_there(desk: Any, folder: Path) -> None:
    desk.write(
        "nrt.yaml",
        "kind: NodeResourceTopology\nmetadata: {name: n1, labels: {a: b}}\nzones:\n"
        "- name: node-0\n  resources:\n  - {name: gpu, capacity: '2'}\n  - {name: cpu, capacity: '1'}\n"
        "- name: node-9\n",
    )
    cluster = desk.cluster(published=folder)
    cluster.view()
    zone = Zone(name="node-0", type="Node", resources=(ZoneResource(name="cpu", capacity="8"),))
    cluster.publish([ZonesChange((zone,), ("None",))])
    topology = cluster.view().topology
    assert [(r.name, r.capacity) for r in topology.zones[0].resources] == [("cpu", "8"), ("gpu", "2")]
    assert (len(topology.zones), topology.topology_policies, topology.metadata.labels) == (1, ("None",), {"a": "b"})


def test_a_new_object_goes_when_its_node_goes(desk: Any, folder: Path) -> None:
    desk.write("node.yaml", "kind: Node\nmetadata: {name: n1, uid: u1}\n")
    cluster = desk.cluster(published=folder)
    cluster.view()
    cluster.publish([TopologyChange("key", "value")])
    made = json.loads((folder / "noderesourcetopology-n1.json").read_bytes())
    assert made["topologyPolicies"] == ["None"]
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Koordinator"}
    assert made["metadata"]["ownerReferences"] == [
        {"kind": "Node", "name": "n1", "uid": "u1", "controller": True, "apiVersion": "v1"}
    ]


def test_a_label_comes_and_goes_and_others_stay(desk: Any, folder: Path) -> None:
    desk.write("nrt.yaml", "kind: NodeResourceTopology\nmetadata: {name: n1, labels: {a: b}}\n")
    cluster = desk.cluster(published=folder)
    cluster.view()
    cluster.publish([TopologyLabelChange("x", "true")])
    assert cluster.view().topology.metadata.labels == {"a": "b", "x": "true"}
    cluster.publish([TopologyLabelChange("x", None)])
    assert cluster.view().topology.metadata.labels == {"a": "b"}


def test_amounts_of_nothing_are_written_and_zones_of_others_stay(desk: Any, folder: Path) -> None:
    desk.write(
        "nrt.yaml",
        "kind: NodeResourceTopology\nmetadata: {name: n1}\nzones:\n"
        "- {name: socket-0, type: Socket}\n- {name: node-0, type: Node, costs: [{name: node-0, value: 10}]}\n",
    )
    cluster = desk.cluster(published=folder)
    cluster.view()
    zone = Zone(name="node-0", type="Node", resources=(ZoneResource(name="hugepages-1Gi"),))
    cluster.publish([ZonesChange((zone,), ("None",))])
    made, foreign = json.loads((folder / "noderesourcetopology-n1.json").read_bytes())["zones"]
    assert made["resources"] == [{"name": "hugepages-1Gi", "capacity": "0", "allocatable": "0", "available": "0"}]
    assert (made["costs"], foreign["name"]) == ([{"name": "node-0", "value": 10}], "socket-0")


def test_a_broken_published_file_is_named_and_left_alone(desk: Any, folder: Path) -> None:
    folder.mkdir()
    (folder / "node-n1.json").write_text("{")
    cluster = desk.cluster(published=folder)
    view = cluster.view()
    assert "node-n1.json" in str(view.problems[0])
    with pytest.raises(InputError):
        cluster.publish([NodeResourceChange(CPU, 1)])
    assert (folder / "node-n1.json").read_text() == "{"


def test_without_a_node_there_is_nobody_to_publish_for(desk: Any, folder: Path) -> None:
    (desk.folder / "node.yaml").unlink()
    cluster = desk.cluster(published=folder)
    cluster.view()
    with pytest.raises(InputError, match="no node to publish for"):
        cluster.publish([NodeResourceChange(CPU, 1)])
    cluster.publish([])


def test_a_folder_that_cannot_be_written_is_an_os_error(desk: Any, folder: Path) -> None:
    cluster = desk.cluster(published=folder)
    cluster.view()
    folder.write_text("a file in the way")
    with pytest.raises(FileExistsError):
        cluster.publish([NodeResourceChange(CPU, 1)])


def test_a_folder_that_cannot_be_read_is_a_problem(desk: Any, folder: Path) -> None:
    folder.write_text("a file in the way")
    view = desk.cluster(published=folder / "below").view()
    assert "Not a directory" in str(view.problems[0])


def test_what_could_not_be_written_is_not_in_a_later_view_either(desk: Any, folder: Path) -> None:
    cluster = desk.cluster(published=folder)
    cluster.view()
    folder.write_text("a file in the way")
    with pytest.raises(FileExistsError):
        cluster.publish([NodeResourceChange(CPU, 1)])
    folder.unlink()
    cluster.publish([TopologyChange("some/key", "text")])
    assert CPU not in allocatable(cluster.view())
    cluster.publish([NodeResourceChange(CPU, 1)])
    assert allocatable(cluster.view())[CPU] == "1"
