"""The cluster of an emulated node: somebody else's objects, and the status the sandbox's own kubelet reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from koordlite.model.decision import ClusterChange
from koordlite.ports import Cluster, ClusterView
from koordlite.sandbox.sandbox import Sandbox


class SandboxCluster:
    """`ports.Cluster`: every view brings the sandbox in line with the pods of `cluster` first."""

    def __init__(self, cluster: Cluster, sandbox: Sandbox) -> None:
        self._cluster, self._sandbox = cluster, sandbox

    def view(self) -> ClusterView:
        """The objects of the cluster, with node and pods in the status that the emulated kubelet reports."""
        view = self._cluster.view()
        problems = self._sandbox.sync(view.pods, view.node)
        node, wrong = self._sandbox.reported_node(view.node) if view.node else (None, ())
        return dataclasses.replace(
            view,
            node=node,
            pods=self._sandbox.reported(view.pods),
            kubelet=self._sandbox.kubelet_state(view.kubelet),
            problems=view.problems + problems + wrong,
        )

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Passed on."""
        self._cluster.publish(changes)
