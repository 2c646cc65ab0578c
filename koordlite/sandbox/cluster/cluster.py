"""The cluster of an emulated node: given objects, and the status the sandbox's own kubelet reports."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.model.change import ClusterChange
from koordlite.ports import Cluster, ClusterView
from koordlite.sandbox.cluster.evictions import Evictions
from koordlite.sandbox.sandbox import Sandbox


class SandboxCluster:
    """`ports.Cluster`: every view brings the sandbox in line with the pods of `cluster` first."""

    def __init__(self, cluster: Cluster, sandbox: Sandbox, *, evicts: bool = False) -> None:
        """`evicts`: the cluster carries evictions out itself, as an API server does, and says when a pod is gone."""
        self._cluster, self._sandbox, self._evicts = cluster, sandbox, evicts
        self._evictions = Evictions(sandbox.clock.monotonic)

    def view(self) -> ClusterView:
        """The objects of the cluster, with node and pods in the status that the emulated kubelet reports."""
        view = self._cluster.view()
        pods = self._evictions.remaining(view.pods)
        problems = self._sandbox.sync(pods, view.node)
        node, wrong = self._sandbox.reported_node(view.node) if view.node else (None, ())
        return msgspec.structs.replace(
            view,
            node=node,
            pods=self._evictions.shown(self._sandbox.reported(pods)),
            kubelet=self._sandbox.kubelet_state(view.kubelet),
            problems=view.problems + problems + wrong,
        )

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Passed on."""
        self._cluster.publish(changes)

    def evict(self, pod: EvictPod) -> None:
        """The pod goes after its grace period, unless its annotations refuse: see `sandbox.cluster.evictions`."""
        if self._evicts:
            self._cluster.evict(pod)
            return
        pods = self._evictions.remaining(self._cluster.view().pods)
        moment = datetime.datetime.fromtimestamp(self._sandbox.clock.wall(), tz=datetime.UTC)
        self._evictions.ask(pod, pods, taken_at=moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
