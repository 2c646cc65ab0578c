"""A question to the extender without a cluster: nodes, reports and pods come from a folder of manifests.

Beside the extender's answer stands what happens without it: the node that kube-scheduler would choose by the sums of
each node, and what kubelet would say there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from koordlite.kube.folder import manifest_files
from koordlite.model import keys, nrt
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import objects
from koordlite.numa.kubelet import admit as kubelet
from koordlite.numa.kubelet import requests
from koordlite.numa.kubelet.admit import KubeletNode, empty_node
from koordlite.numa.kubelet.merge import POLICIES
from koordlite.numa.nrt.filter import add
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings, Row


class Trial(msgspec.Struct, frozen=True):
    """A cluster from files, and one pod of it that is not bound."""

    extender: Extender
    pod: objects.PodObject
    bound: tuple[objects.PodObject, ...]
    """Bound pods in the order in which kubelet met them."""

    @property
    def feasible(self) -> list[Row]:
        """Nodes that have enough in all, which is what the scheduler asks the extender about."""
        shape = self.extender.cluster.shapes.of(self.pod)
        names = sorted(self.extender.cluster.nodes)
        rows = [row for name in names if (row := self.extender.cluster.row(name)) is not None]
        return [row for row in rows if all(free(row).get(name, 0) >= nano for name, nano in shape.total.items())]

    def by_extender(self) -> str:
        """The node with the extender; empty when none is left."""
        passed, _ = self.extender.filter(self.pod, [row.name for row in self.feasible])
        if len(passed) < 2:
            return passed[0] if passed else ""
        best: dict[str, float] = dict(self.extender.prioritize(self.pod, passed))
        free_parts = {row.name: _free_parts(row) for row in self.feasible}
        return max(passed, key=lambda name: (best[name], free_parts[name]))

    def kubelet(self, node: str) -> Iterator[str]:
        """Answer of kubelet there, with its numbers."""
        row = self.extender.cluster.row(node)
        state = self._state(row) if row is not None else None
        if state is None:
            yield "unknown: no report says which CPUs the node has"
            return
        admission = kubelet.admit(state, requests.of_pod(self.pod))
        if not admission.admitted:
            yield f"{admission.reason}: {admission.message}"
            yield ", ".join(f"{name} {value}" for name, value in admission.evidence.items() if value != "")
            return
        for container in admission.allocations:
            nodes = ", ".join(map(str, container.nodes)) or "any"
            yield f"admitted: container {container.container} on NUMA node {nodes}, CPUs {container.cpus or 'shared'}"

    def _state(self, row: Row) -> KubeletNode | None:
        report = row.report
        text = report.annotations.get(keys.CPU_TOPOLOGY) if report else None
        if report is None or text is None:
            return None
        topology = nrt.decode_cpu_topology(text, f"noderesourcetopology/{row.name}")
        policy = next(word for word in POLICIES if word == report.policy)
        state = empty_node(topology, policy=policy, scope="pod" if report.scope == "pod" else "container")
        for pod in self.bound:
            if pod.spec.node_name == row.name:
                state = kubelet.admit(state, requests.of_pod(pod)).node
        return state


def of_folder(folder: str, key: str, settings: JudgeSettings) -> Trial:
    """The objects of all manifests in `folder`. InputError for mistakes in them, and when the pod is not there."""
    cluster = Cluster(settings, monotonic=lambda: 0.0)
    objs = [obj for path in sorted(Path(folder).glob("*.yaml")) for obj in manifest_files.read(path)]
    all_pods = [obj for obj in objs if isinstance(obj, objects.PodObject)]
    for obj in objs:
        if isinstance(obj, objects.NodeObject):
            cluster.put_node(obj)
        elif isinstance(obj, objects.NRTObject):
            cluster.put_report(obj)
        elif isinstance(obj, objects.PodObject):
            # What the reports have counted already: kubelet has taken it.
            admitted = msgspec.structs.replace(cluster.shapes.pod(obj), started=True)
            cluster.put_cluster_pod(admitted)
    cluster.synced()
    waiting = next((pod for pod in all_pods if f"{pod.metadata.namespace}/{pod.metadata.name}" == key), None)
    if waiting is None or waiting.spec.node_name:
        why = "it is bound already" if waiting else "no manifest there has it"
        raise InputError(Problem("command line", "pod", key, why, f"name a Pod of {folder} without spec.nodeName"))
    bound = sorted(
        (pod for pod in all_pods if pod.spec.node_name), key=lambda pod: pod.metadata.creation_timestamp or ""
    )
    return Trial(Extender(cluster, wall=time.time), waiting, tuple(bound))


def lines(trial: Trial) -> Iterator[str]:
    """Both ways, and what kubelet says to each."""
    # As kube-scheduler rates by itself: most of CPU and memory left, in parts of the node.
    sums = max(trial.feasible, key=_free_parts, default=None)
    if sums is None:
        yield "no node has enough in all: kube-scheduler asks no extender then"
        return
    yield f"without the extender: {sums.name}, which has most left in all"
    yield from (f"  kubelet there: {line}" for line in trial.kubelet(sums.name))
    node = trial.by_extender()
    yield f"with the extender: {node or 'no node'}"
    if node:
        yield from (f"  kubelet there: {line}" for line in trial.kubelet(node))


def free(row: Row) -> dict[str, int]:
    """Rest of the node as a whole, in nano-units."""
    used: dict[str, int] = {}
    for pod in row.pods:
        add(used, pod.shape.total)
    return {name: amount - used.get(name, 0) for name, amount in row.allocatable.items()}


def _free_parts(row: Row) -> float:
    remaining = free(row)
    listed = [name for name in ("cpu", "memory") if row.allocatable.get(name)]
    return sum(remaining.get(name, 0) / row.allocatable[name] for name in listed)
