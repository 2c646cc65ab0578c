"""What is written to the cluster, how often, and what a refusal says."""

from __future__ import annotations

import errno
import time

import pytest
from apibench import NODE, Bench, until
from apiserver import Fault

from koordlite.changes.published import (
    NodeAnnotationChange,
    NodeConditionChange,
    NodeResourceChange,
    TopologyChange,
    TopologyLabelChange,
    ZoneResourceChange,
    ZonesChange,
)
from koordlite.kube.client.access import ApiUnreachable
from koordlite.model.errors import InputError
from koordlite.model.wire.objects import Zone, ZoneResource

BATCH = "kubernetes.io/batch-cpu"


def test_batch_resources_go_into_capacity_and_allocatable_and_out_again(bench: Bench) -> None:
    cluster = bench.cluster()
    cluster.publish([NodeResourceChange(BATCH, 5000), NodeAnnotationChange("ours", "2")])
    node = bench.node()
    assert (node["status"]["capacity"][BATCH], node["status"]["allocatable"][BATCH]) == ("5k", "5k")
    assert node["metadata"]["annotations"] == {"theirs": "1", "ours": "2"}
    seen = cluster.view().node
    assert seen is not None, "our own write is seen at once"
    assert (seen.status.allocatable or {})[BATCH] == "5k"
    cluster.publish([NodeResourceChange(BATCH, None), NodeAnnotationChange("ours", None)])
    node = bench.node()
    assert BATCH not in node["status"]["capacity"]
    assert node["metadata"]["annotations"] == {"theirs": "1"}
    assert node["status"]["capacity"]["cpu"] == "8"


def test_a_condition_comes_beside_those_of_others_changes_and_goes(bench: Bench) -> None:
    cluster, kubelets = bench.cluster(), bench.node()["status"].get("conditions") or []
    for value in ("True", "False"):
        cluster.publish([NodeConditionChange("CPUContention", value, "Why", "words", "2026-01-02T03:04:05Z")])
        (ours,) = [each for each in bench.node()["status"]["conditions"] if each not in kubelets]
        assert (ours["type"], ours["status"], ours["reason"], ours["message"]) == (
            "CPUContention",
            value,
            "Why",
            "words",
        )
        assert ours["lastTransitionTime"].startswith("2026-01-02T03:04:05")
    cluster.publish([NodeConditionChange("CPUContention", None), NodeResourceChange(BATCH, 5000)])
    node = bench.node()
    assert (node["status"].get("conditions") or [], node["status"]["capacity"][BATCH]) == (kubelets, "5k")


def test_what_stands_already_is_written_once_a_minute_at_most(bench: Bench) -> None:
    cluster = bench.cluster()
    for _ in range(20):
        cluster.publish([NodeResourceChange(BATCH, 5000)])
    assert bench.asked("patch") == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "nodes/status"),
        (409, "who else writes"),
        (422, "which field"),
        (401, "credentials"),
        (500, "check the API server"),
    ],
)
def test_a_refusal_says_what_to_do_and_is_not_repeated_each_tick(bench: Bench, status: int, words: str) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(verb="patch", resource="nodes/status", status=status, times=None))
    for _ in range(5):
        with pytest.raises(InputError, match=words):
            cluster.publish([NodeResourceChange(BATCH, 5000)])
    assert bench.asked("patch", "nodes/status") == 1


def test_a_node_that_is_gone_meanwhile_is_no_error(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(verb="watch", resource="nodes", status=503, times=None))
    assert cluster.view().node is not None
    bench.server.faults.add(Fault(verb="patch", resource="nodes/status", status=404, times=1))
    cluster.publish([NodeResourceChange(BATCH, 5000)])
    assert bench.asked("patch", "nodes/status") == 1
    cluster.publish([NodeResourceChange(BATCH, 5000)])
    assert bench.node()["status"]["allocatable"][BATCH] == "5k", "and when it is back, it is written again"


def test_a_node_made_again_is_told_as_such(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(verb="watch", status=503, times=None))
    bench.server.cut_connections()
    bench.server.objects.remove("Node", "n1")
    bench.server.objects.load(NODE)
    with pytest.raises(InputError, match="the Node was made again under this name"):
        cluster.publish([NodeResourceChange(BATCH, 5000)])


def test_a_hanging_server_holds_a_tick_up_for_half_a_second_only(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(verb="patch", resource="nodes/status", delay_seconds=1.0))
    started = time.monotonic()
    with pytest.raises(ApiUnreachable) as caught:
        cluster.publish([NodeResourceChange(BATCH, 5000)])
    assert time.monotonic() - started < 0.95
    assert caught.value.errno == errno.EINPROGRESS

    def accepted() -> bool:
        try:
            cluster.publish([NodeResourceChange(BATCH, 5000)])
        except ApiUnreachable:
            return False
        return True

    until(accepted)
    assert bench.asked("patch") == 1


def test_a_run_that_was_asked_to_stop_waits_for_its_last_write(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.stop.set()
    bench.server.faults.add(Fault(verb="patch", resource="nodes/status", delay_seconds=1.0))
    cluster.publish([NodeResourceChange(BATCH, 5000)])
    assert bench.node()["status"]["capacity"][BATCH] == "5k"


ZONES = ZonesChange(
    (Zone(name="node-0", type="Node", resources=(ZoneResource("cpu", "8", "8", "8"),)),), ("SingleNUMANodePodLevel",)
)


def test_a_missing_topology_object_is_made_and_owned_by_the_node(bench: Bench) -> None:
    cluster = bench.cluster()
    cluster.publish([ZONES, TopologyChange("note", "text"), TopologyLabelChange("l", "v")])
    made = bench.topology()
    assert made is not None
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["uid"] == bench.node()["metadata"]["uid"]
    # Kubernetes 1.36 with OwnerReferencesPermissionEnforcement: "cannot set blockOwnerDeletion", 403.
    assert not owner.get("blockOwnerDeletion")
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Koordinator", "l": "v"}
    assert made["metadata"]["annotations"] == {"note": "text"}
    assert made["zones"][0]["resources"][0]["allocatable"] == "8"
    seen = cluster.view().topology
    assert seen is not None
    assert seen.zones == ZONES.zones


def test_topology_changes_touch_nothing_of_others(bench: Bench) -> None:
    bench.server.objects.load(
        {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "n1", "annotations": {"theirs": "1"}, "labels": {"x": "y"}},
            "attributes": [{"name": "nfd", "value": "1"}],
            "zones": [
                {
                    "name": "node-0",
                    "type": "Node",
                    "parent": "socket-0",
                    "costs": [{"name": "node-0", "value": 10}],
                    "resources": [{"name": "gpu", "capacity": 1, "allocatable": 1, "available": 1}],
                },
                {"name": "socket-0", "type": "Socket"},
            ],
        }
    )
    cluster = bench.cluster()
    cluster.publish([ZONES, TopologyChange("note", "text"), TopologyLabelChange("x", None)])
    held = bench.topology()
    assert held is not None
    assert held["metadata"]["annotations"] == {"theirs": "1", "note": "text"}
    assert not held["metadata"].get("labels")
    assert held["attributes"] == [{"name": "nfd", "value": "1"}]
    zone = held["zones"][0]
    assert (zone["parent"], zone["costs"]) == ("socket-0", [{"name": "node-0", "value": 10}])
    assert [resource["name"] for resource in zone["resources"]] == ["cpu", "gpu"]
    assert held["zones"][1]["name"] == "socket-0"
    assert bench.asked("update") == 0


def test_topology_that_is_as_it_should_be_is_not_written(bench: Bench) -> None:
    cluster = bench.cluster()
    for _ in range(5):
        cluster.publish([ZONES, TopologyChange("note", "text")])
    assert (bench.asked("create", "noderesourcetopologies"), bench.asked("patch", "noderesourcetopologies")) == (1, 0)


def test_a_conflict_over_zones_is_settled_by_looking_again(bench: Bench) -> None:
    cluster = bench.cluster()
    cluster.publish([ZONES])
    bench.server.faults.add(Fault(verb="patch", resource="noderesourcetopologies", status=409))
    batch = ZoneResource(BATCH, "3k", "3k", "3k")
    cluster.publish([ZoneResourceChange("node-0", BATCH, batch)])
    held = bench.topology()
    assert held is not None
    assert [resource["name"] for resource in held["zones"][0]["resources"]] == ["cpu", BATCH]


def test_a_topology_object_that_somebody_removed_is_made_again(bench: Bench) -> None:
    cluster = bench.cluster()
    cluster.publish([TopologyChange("note", "1")])
    bench.server.objects.remove("NodeResourceTopology", "n1", api_version="topology.node.k8s.io/v1alpha2")
    cluster.publish([TopologyChange("note", "2")])
    held = bench.topology()
    assert held is not None
    assert held["metadata"]["annotations"] == {"note": "2"}


def test_one_refused_object_does_not_keep_the_other_from_being_written(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(verb="patch", resource="nodes/status", status=403, times=None))
    with pytest.raises(InputError, match="node/n1"):
        cluster.publish([NodeResourceChange(BATCH, 5000), TopologyChange("note", "1")])
    assert bench.topology() is not None
