"""`koordlite crane assign`: the result for a pod that is bound, from a folder and from an API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from tinyapi import Reply, Request, kubeconfig, serving

from koordlite import cli
from koordlite.model import keys
from koordlite.model.pod import crane

POLICY = {"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"}


def zone(name: str, cpus: int) -> dict[str, Any]:
    return {"name": name, "type": "Node", "resources": {"allocatable": {"cpu": str(cpus)}}}


TOPOLOGY = {
    "apiVersion": "topology.crane.io/v1alpha1",
    "kind": "NodeResourceTopology",
    "metadata": {"name": "node-a"},
    "craneManagerPolicy": POLICY,
    "zones": [zone("node0", 4), zone("node1", 8)],
}


def pod(name: str, cpus: str, node: str = "node-a", **notes: str) -> dict[str, Any]:
    amounts = {"cpu": cpus}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"u-{name}", "annotations": notes},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


def result(**zones: int) -> str:
    found = [{"name": n, "type": "Node", "resources": {"capacity": {"cpu": str(c)}}} for n, c in zones.items()]
    return json.dumps(found)


def assign(folder: Path, *objects: dict[str, Any], name: str = "ns/a") -> int:
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    return cli.main(["crane", "assign", name, "--cluster", str(folder)])


def test_a_manifest_without_a_namespace_is_in_default(tmp_path: Path) -> None:
    bound = pod("a", "3")
    del bound["metadata"]["namespace"]
    assert assign(tmp_path, TOPOLOGY, bound, name="default/a") == 0


def test_the_emptiest_numa_node_is_chosen_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = pod("b", "2", **{keys.CRANE_TOPOLOGY_RESULT: result(node1=6)})
    assert assign(tmp_path, TOPOLOGY, pod("a", "3"), other) == 0
    out = capsys.readouterr().out
    assert "all on node0; node0 has 4 of 4 cpu free, node1 has 2 of 8 cpu free" in out
    assert '[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"3"}}}]' in out


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([TOPOLOGY, pod("a", "9")], "node(s) had insufficient resource of NUMA node"),
        ([pod("a", "2")], "node(s) failed to get NRT"),
        ([TOPOLOGY, pod("a", "1500m")], "no container asks for whole CPUs"),
        ([{**TOPOLOGY, "craneManagerPolicy": {**POLICY, "cpuManagerPolicy": "None"}}, pod("a", "2")], "is None"),
    ],
)
def test_a_pod_that_gets_none_is_told_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]], said: str
) -> None:
    assert assign(tmp_path, *objects) == 1
    assert said in capsys.readouterr().out


def test_a_result_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = result(node1=2)
    assert assign(tmp_path, TOPOLOGY, pod("a", "2", **{keys.CRANE_TOPOLOGY_RESULT: text})) == 0
    assert f"which stays: {text}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("objects", "name", "said"),
    [
        ([TOPOLOGY], "ns/a", "there is no such pod"),
        ([TOPOLOGY, pod("a", "2", node="")], "ns/a", "it is on no node yet"),
        ([TOPOLOGY, pod("a", "2")], "a", "write namespace/name"),
        ([{**TOPOLOGY, "zones": 1}, pod("a", "2")], "ns/a", "correct the manifest"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]], name: str, said: str
) -> None:
    assert assign(tmp_path, *objects, name=name) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("write", "patched"), [("--dry-run", False), ("--write", True)])
def test_only_write_writes_and_only_to_this_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: str, patched: bool
) -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/api/v1/pods":
            assert request.query["fieldSelector"] == "spec.nodeName=node-a"
            return Reply(body={"metadata": {"resourceVersion": "1"}, "items": [pod("a", "2"), pod("b", "2")]})
        return Reply(body=TOPOLOGY if "topology.crane.io" in request.path else pod("a", "2"))

    with serving(answer) as api:
        config = str(kubeconfig(tmp_path / "kubeconfig", api.url))
        assert cli.main(["crane", "assign", "ns/a", write, "--kubeconfig", config]) == 0
    asked = api.asked("PATCH")
    assert bool(asked) == patched
    for request in asked:
        assert request.path == "/api/v1/namespaces/ns/pods/a"
        assert request.body["metadata"]["uid"] == "u-a", "a pod made anew under this name is not meant"
        assert crane.decode_result(request.body["metadata"]["annotations"][keys.CRANE_TOPOLOGY_RESULT]) == {1: 2}
    assert "all on node1" in capsys.readouterr().out


VALUES = some.recursive(some.none() | some.integers() | some.text(max_size=8), some.lists).map(json.dumps)


@given(some.text(max_size=60) | VALUES)
def test_any_text_of_a_result_is_read_or_refused(text: str) -> None:
    try:
        zones = crane.decode_result(text)
    except ValueError:
        return
    assert all(node >= 0 and cpus >= 0 for node, cpus in zones.items())
