"""docs/migrate-from-koordlet.md on an emulated node against an API server: koordlet's traces in, ours out, and back."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import cyaml
import msgspec
import pytest
from apiserver import ApiServer
from koordletnode import Left, same

from koordlite import adopt, config
from koordlite.agent import Agent
from koordlite.apply import restore
from koordlite.cli import machine
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.settings import PublishSettings
from koordlite.lab.cluster.cluster import SandboxCluster
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, Topology

CRDS = pathlib.Path(__file__).parents[2] / "manifests/crds"
BATCH = "kubernetes.io/batch-cpu"


class Fleet:
    """A node that koordlet left, in a cluster whose manager still writes batch resources."""

    def __init__(self, left: Left, server: ApiServer, folder: pathlib.Path) -> None:
        self.left, self.server, self.folder = left, server, folder
        crds = ("noderesourcetopologies.yaml", "koordinator/nodemetrics.yaml")
        server.objects.load(*[cyaml.safe_load((CRDS / name).read_text()) for name in crds])
        for name in ("koordinator-system", "ns"):
            server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for path in sorted(left.node.folder.glob("*.yaml")):
            made = cyaml.safe_load(path.read_text())
            if made["kind"] == "Node":
                for amounts in made["status"].values():
                    amounts[BATCH] = "1234"  # koord-manager's.
            if made["kind"] == "Pod":
                made["spec"]["containers"][0]["image"] = "x"
            server.objects.load(made)
        server.objects.load(
            {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "node-a"}}
        )

    def settings(self, *, manager: bool) -> config.Settings:
        text = f'publish: {{nodeResources: {"manager" if manager else "agent"}, nodeMetric: "on", events: false}}\n'
        chosen = config.parse(f"agent: {{node: node-a}}\ncluster: {{kubelet: 'off'}}\n{text}", "x")
        return config.one_writer(config.with_modes(chosen, "enforce"))

    @contextlib.contextmanager
    def cluster(self, settings: config.Settings) -> Iterator[SandboxCluster]:
        """The node's cluster, as the command opens it."""
        path = self.folder / "kubeconfig"
        path.write_text(self.server.kubeconfig())
        args = argparse.Namespace(kubeconfig=str(path), context=None)
        sandbox = self.left.node.sandbox
        topology = Topology((CPU(0, 0, 0, 0),), ())
        opened = machine.open_cluster(args, settings, files=sandbox.files, topology=topology, stop=threading.Event())
        assert isinstance(opened, KubeCluster)
        try:
            yield self._with_koordlet(SandboxCluster(opened, sandbox), settings)
        finally:
            opened.stop()

    def _with_koordlet(self, cluster: SandboxCluster, settings: config.Settings) -> SandboxCluster:
        """koordlet goes on: the emulated kubelet takes what the server adds to a pod for a change of it."""
        node = self.left.node
        quiet = config.one_writer(msgspec.structs.replace(settings, publish=PublishSettings(node_resources="manager")))
        with node.journal() as journal:
            agent = Agent(self.left.host, cluster, quiet, journal)
            for _ in range(10):
                agent.tick()
                node.sandbox.advance(1.0)
        (node.state / "journal.json").unlink()
        self.left.left = self.left.files()
        return cluster

    def picture(self, cluster: SandboxCluster) -> Snapshot:
        """What an observing agent sees."""
        agent = Agent(self.left.host, cluster, config.with_modes(config.default(), "observe"))
        self.left.node.ticks(agent, 2)
        assert agent.snapshot is not None
        return agent.snapshot

    def batch(self) -> Any:
        held = self.server.objects.get("Node", "node-a", api_version="v1")
        assert held is not None
        return held["status"]["allocatable"].get(BATCH)


@pytest.fixture
def fleet(left: Any, tmp_path: pathlib.Path) -> Iterator[Fleet]:
    with ApiServer() as server:
        yield Fleet(left("small"), server, tmp_path)


def test_koordlets_traces_in_ours_out_and_back(fleet: Fleet) -> None:
    left, settings = fleet.left, fleet.settings(manager=True)
    host = left.host
    with fleet.cluster(settings) as cluster, left.node.journal() as journal:
        # Step 2: adopt, then enforce.
        found = adopt.recognise(fleet.picture(cluster), settings.strategies, with_node=False)
        adopt.seed(host, journal, found.traces)
        assert left.files() == left.left, "adopting writes nothing"
        agent = Agent(host, cluster, settings, journal)
        agent.take_over()
        assert left.files() == left.left, "limits stay in force between the two agents"
        for _ in range(5):
            agent.tick()
            left.node.sandbox.advance(1.0)
        assert fleet.batch() == "1234", "the manager's amounts are left alone"
        # The way back: what kubelet alone would have.
        steps = restore(host, journal, cluster)
        assert all(step.ok for step in steps)
        same(left, left.files(), left.before)
        assert fleet.batch() == "1234"


def test_after_the_last_pool_the_agent_writes_the_resources_and_gives_them_back(fleet: Fleet) -> None:
    left, settings = fleet.left, fleet.settings(manager=False)
    host = left.host
    with fleet.cluster(settings) as cluster, left.node.journal() as journal:
        found = adopt.recognise(fleet.picture(cluster), settings.strategies)
        adopt.seed(host, journal, found.traces)
        agent = Agent(host, cluster, settings, journal)
        for _ in range(5):
            agent.tick()
            left.node.sandbox.advance(1.0)
        assert fleet.batch() not in (None, "1234")
        agent.put_back()
        assert fleet.batch() is None
        same(left, left.files(), left.before)
