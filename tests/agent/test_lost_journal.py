"""After a power loss the journal on tmpfs is gone, and what was published on the Node is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apibench
import msgspec
import pytest
from emulated import Emulated

from koordlite import cli
from koordlite.agent import Agent
from koordlite.changes.eviction import EvictPod
from koordlite.changes.published import NodeResourceChange
from koordlite.model import keys
from koordlite.model.change import ClusterChange
from koordlite.model.wire import objects
from koordlite.ports import ClusterView

FIELDS = {
    "f:metadata": {"f:annotations": {f"f:{keys.ORIGIN_ALLOCATABLE}": {}, "f:example.com/note": {}}},
    "f:status": {"f:allocatable": {f"f:{keys.BATCH_CPU}": {}, f"f:{keys.MID_CPU}": {}}},
}
THEIRS = {"f:status": {"f:allocatable": {"f:cpu": {}, f"f:{keys.BATCH_MEMORY}": {}}}}


class Written:
    """The emulated node's cluster, which says who wrote what of the Node as an API server does."""

    def __init__(self, node: Emulated) -> None:
        self._node, self.late = node, False

    def view(self) -> ClusterView:
        whole = self._node.cluster.view()
        assert whole.node
        raw = msgspec.to_builtins(whole.node)
        raw["metadata"]["managedFields"] = [{"manager": "koordlite", "operation": "Update", "fieldsV1": FIELDS}]
        made = msgspec.convert(raw, objects.WrittenNodeObject)
        return msgspec.structs.replace(whole, node=None if self.late else made)

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        self._node.cluster.publish(changes)

    def evict(self, pod: EvictPod) -> None:
        self._node.cluster.evict(pod)

    def offered(self) -> dict[str, Any]:
        node = self._node.cluster.view().node
        assert node
        amounts = node.status.allocatable or {}
        return {name: amounts[name] for name in keys.PROMISED_RESOURCES if name in amounts}


def test_a_start_takes_back_what_no_strategy_renews(emulate: Callable[[str], Emulated]) -> None:
    node = emulate("small")
    cluster = Written(node)
    node.cluster.view()
    cluster.publish([NodeResourceChange(keys.BATCH_CPU, 700), NodeResourceChange(keys.MID_CPU, 300)])
    settings = node.settings()
    off = {"midAllocatable": dataclasses.replace(settings.strategies["midAllocatable"], mode="off")}
    settings = msgspec.structs.replace(settings, strategies={**settings.strategies, **off})
    with node.journal() as journal:
        agent = Agent(node.host(), cluster, settings, journal)
        cluster.late = True
        agent.take_over()
        assert cluster.offered().keys() == {keys.BATCH_CPU, keys.MID_CPU}, "the Node has not been read yet"
        cluster.late = False
        agent.tick()
        assert cluster.offered() == {keys.BATCH_CPU: "700"}, "this one is published anew when use is known"
        agent.put_back()
        assert cluster.offered() == {}, "an offer of the lost run is no value to put back"


def test_what_was_put_back_is_not_taken_for_an_offer(emulate: Callable[[str], Emulated]) -> None:
    node = emulate("small")
    cluster = Written(node)
    node.cluster.view()
    with node.journal() as journal:
        agent = Agent(node.host(), cluster, node.settings(), journal)
        cluster.publish([NodeResourceChange(keys.MID_CPU, 300)])
        agent.take_over()
        node.ticks(agent, 3)
        agent.put_back()
    cluster.publish([NodeResourceChange(keys.MID_CPU, 300)])
    with node.journal() as journal:
        agent = Agent(node.host(), cluster, node.settings(), journal)
        agent.take_over()
        agent.put_back()
    assert cluster.offered() == {keys.MID_CPU: "300"}, "the journal is there, so this was there before us"


def test_offers_of_a_lost_journal_are_taken_back_by_restore(tmp_path: Path, capsys: Any) -> None:
    offered = {keys.BATCH_CPU: "700", keys.BATCH_MEMORY: "1Gi", "cpu": "8"}
    part = {"name": keys.BATCH_CPU, "capacity": "700", "allocatable": "700", "available": "700"}
    own = {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}
    with apibench.opened(tmp_path) as bench:
        bench.server.objects.load(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": "n9",
                    "annotations": {keys.ORIGIN_ALLOCATABLE: "{}", "example.com/note": "1"},
                    "managedFields": [
                        {"manager": "koordlite", "operation": "Update", "fieldsV1": FIELDS},
                        {"manager": "koord-manager", "operation": "Update", "fieldsV1": THEIRS},
                    ],
                },
                "status": {"capacity": offered, "allocatable": offered},
            },
            {
                "apiVersion": "topology.node.k8s.io/v1alpha2",
                "kind": "NodeResourceTopology",
                "metadata": {
                    "name": "n9",
                    "managedFields": [{"manager": "koordlite", "operation": "Update", "fieldsV1": {"f:zones": {}}}],
                },
                "zones": [{"name": "node-0", "type": "Node", "resources": [own, part]}],
            },
        )
        bench.api()
        options = [
            "--node-name",
            "n9",
            "--kubeconfig",
            str(tmp_path / "kubeconfig"),
            "--state-dir",
            str(tmp_path / "s"),
        ]
        (tmp_path / "s").mkdir()
        assert cli.main(["restore", *options, "--dry-run"]) == 0
        listed = capsys.readouterr().out
        assert f"node/{keys.BATCH_CPU}" in listed
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
            assert cli.main(["restore", *options[:2], *options[4:], "--dry-run"]) == 0
        assert capsys.readouterr().out == listed
        assert cli.main(["restore", *options]) == 0
        left = bench.server.objects.get("Node", "n9", api_version="v1")
        assert left
        assert left["status"]["allocatable"] == {keys.BATCH_MEMORY: "1Gi", "cpu": "8"}, "another program's stays"
        assert left["metadata"]["annotations"] == {"example.com/note": "1"}
        zones = bench.server.objects.get("NodeResourceTopology", "n9", api_version="topology.node.k8s.io/v1alpha2")
        assert zones
        assert [each["name"] for each in zones["zones"][0]["resources"]] == ["cpu"]
        assert cli.main(["restore", *options]) == 0, "nothing is left to take back"
