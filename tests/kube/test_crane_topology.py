"""Crane's NodeResourceTopology: what is written of a node, and how."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cyaml
from jsonschema import Draft202012Validator
from oneobject import OneObject

from koordlite.kube.publish.background_report import BackgroundReport
from koordlite.kube.publish.node_reports import crane_topology, topology
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.node import Node
from koordlite.model.picture.crane import CraneState
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.quantity import Quantity
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects

ROOT = Path(__file__).parents[2]
MACHINE = Topology(
    tuple(CPU(n, n % 4, n % 4 // 2, n % 4 // 2) for n in range(8)),
    (
        NUMANode(0, CPUSet.parse("0-1,4-5"), 2 * 2**30, ((0, 10), (1, 21))),
        NUMANode(1, CPUSet.parse("2-3,6-7"), 2**30, ((0, 21), (1, 10))),
    ),
)
NODE = objects.NodeObject(metadata=objects.ObjectMeta(name="n1", uid="u-n1"))


def seen(*, label: str = "", reserved: str = "0", taken: str = "", enforced: bool = True, why_not: str = "") -> Any:
    crane = CraneState(enforced=enforced, why_not=why_not, reserved=CPUSet.parse(reserved), taken=CPUSet.parse(taken))
    labels = {keys.CRANE_TOPOLOGY_AWARENESS: label} if label else {}
    amounts = {"cpu": Quantity.parse("500m"), "memory": Quantity.parse("1Gi")}
    return SimpleNamespace(
        crane=crane, topology=MACHINE, node=Node(name="n1", labels=labels), kubelet=Kubelet("none", reserved=amounts)
    )


def write(server: OneObject, picture: Any, **more: Any) -> None:
    kind = crane_topology(**more)
    BackgroundReport(server, "n1", kind).write(kind.target(picture), NODE)  # type: ignore[arg-type]


def test_the_node_as_cranes_scheduler_reads_it() -> None:
    server = OneObject()
    write(server, seen(taken="2"))
    assert server.held is not None
    assert server.held["metadata"]["ownerReferences"][0]["uid"] == "u-n1"
    assert server.paths[-1] == "/apis/topology.crane.io/v1alpha1/noderesourcetopologies"
    assert {key: server.held[key] for key in server.held if key != "metadata"} == {
        "apiVersion": "topology.crane.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "craneManagerPolicy": {"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"},
        "reserved": {"cpu": "1", "memory": "1Gi"},
        "attributes": {"go.crane.io/reserved-system-cpus": "0"},
        "zones": [
            {
                "name": "node0",
                "type": "Node",
                "costs": [{"name": "node0", "value": 10}, {"name": "node1", "value": 21}],
                "resources": {
                    "capacity": {"cpu": "4", "memory": "2Gi"},
                    "allocatable": {"cpu": "3", "memory": "1Gi"},
                    "reservedCPUNums": 1,
                },
            },
            {
                "name": "node1",
                "type": "Node",
                "costs": [{"name": "node0", "value": 21}, {"name": "node1", "value": 10}],
                "resources": {"capacity": {"cpu": "4", "memory": "1Gi"}, "allocatable": {"cpu": "3", "memory": "1Gi"}},
            },
        ],
    }


def test_it_is_what_the_shipped_kind_allows() -> None:
    crd = cyaml.safe_load((ROOT / "manifests/crds/crane/noderesourcetopologies.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    server = OneObject()
    write(server, seen(), parts=True)
    Draft202012Validator(version["schema"]["openAPIV3Schema"]).validate(server.held)
    assert server.held is not None
    assert [(z["name"], z["parent"]) for z in server.held["zones"] if z["type"] == "Core"][2] == ("core2", "node1")
    assert all("resources" not in zone for zone in server.held["zones"] if zone["type"] != "Node")
    columns = [each["name"] for each in version["additionalPrinterColumns"]]
    assert columns == ["CRANE CPU MANAGER POLICY", "CRANE TOPOLOGY MANAGER POLICY", "AGE"]


def test_what_stands_is_not_written_and_what_others_wrote_stays() -> None:
    server = OneObject()
    write(server, seen())
    assert server.held is not None
    server.held["attributes"]["theirs"] = "1"
    server.held["metadata"]["labels"] = {"theirs": "2"}
    server.held["zones"][0]["attributes"] = {"theirs": "3"}
    write(server, seen())
    assert server.asked == ["GET", "POST", "GET"]
    write(server, seen(reserved="0,2"))
    assert server.asked[-2:] == ["GET", "PATCH"]
    assert server.held["attributes"] == {"go.crane.io/reserved-system-cpus": "0,2", "theirs": "1"}
    assert (server.held["metadata"]["labels"], server.held["zones"][0]["attributes"]) == (
        {"theirs": "2"},
        {"theirs": "3"},
    )


def test_the_policies_follow_kubelet_the_strategy_and_the_label() -> None:
    policies = [
        topology(seen(**given)).crane_manager_policy
        for given in ({"enforced": False}, {"why_not": "unknown"}, {"label": "false"}, {"label": "t"}, {"label": "no"})
    ]
    assert [each.cpu_manager_policy for each in policies] == ["None", "None", "Static", "Static", "Static"]
    assert [each.topology_manager_policy == "None" for each in policies] == [False, False, True, False, False]
