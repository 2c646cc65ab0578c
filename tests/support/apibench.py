"""An emulated API server, and an agent's view of it."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cyaml
from apiserver import ApiServer

from koordlite.clock import RealClock
from koordlite.kube.client import access
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.publish.events import Events
from koordlite.kube.settings import ClusterSettings
from koordlite.model.topology import CPU, Topology

BATCH = "kubernetes.io/batch-cpu"
CRD = Path(__file__).parents[2] / "manifests/crds/noderesourcetopologies.yaml"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "annotations": {"theirs": "1"}},
    "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}},
}


def pod(name: str, node: str = "n1", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", **more}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def config(**data: str) -> dict[str, Any]:
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class NoFiles:
    """A machine without kubelet's files."""

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    write = mkdir = rmdir = list = read  # type: ignore[assignment]


def until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for what another thread brings about."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came about"
        threading.Event().wait(0.01)


class Bench:
    """A server, and an agent's view of it."""

    def __init__(self, server: ApiServer, folder: Path, stack: contextlib.ExitStack) -> None:
        self.server, self._folder, self._stack = server, folder, stack
        self.stop = threading.Event()

    def api(self) -> access.Api:
        """Access to the server."""
        path = self._folder / "kubeconfig"
        path.write_text(self.server.kubeconfig())
        return access.connect(str(path), None, user_agent="test")

    def cluster(self, **settings: Any) -> KubeCluster:
        """Started, with its first answers."""
        api, clock = self.api(), RealClock()
        events = Events(api, controller="koordlite.io/agent", instance="n1", monotonic=clock.monotonic, wall=clock.wall)
        made = KubeCluster(
            api,
            ClusterSettings(**{"kubelet": "off", **settings}),
            node_name="n1",
            files=NoFiles(),
            topology=Topology((CPU(0, 0, 0, 0),), ()),
            clock=clock,
            user_agent="test",
            events=events,
            stop=self.stop,
        )
        made.start(10.0)
        self._stack.callback(made.stop)
        return made

    def asked(self, verb: str, resource: str = "") -> int:
        """How many such requests came."""
        return sum(a.verb == verb and resource in ("", a.resource) for a in list(self.server.requests))

    def node(self) -> dict[str, Any]:
        """The node as the server has it."""
        found = self.server.objects.get("Node", "n1", api_version="v1")
        assert found is not None
        return found

    def topology(self) -> dict[str, Any] | None:
        """The topology object as the server has it."""
        api_version = "topology.node.k8s.io/v1alpha2"
        return self.server.objects.get("NodeResourceTopology", "n1", api_version=api_version)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """A server with one node, two pods here and one elsewhere, and the CRD of NodeResourceTopology."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer())
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
        server.objects.load(cyaml.safe_load(CRD.read_text()), namespace, NODE)
        server.objects.load(pod("a"), pod("b"), pod("c", node="n2"), config(k="1"))
        yield Bench(server, folder, stack)
