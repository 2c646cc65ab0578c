"""Writing Volcano's Numatopology of the node, on request: for clusters whose scheduler is Volcano's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.client.background import BackgroundRequests
from koordlite.model.cpuset import CPUSet, union
from koordlite.model.errors import Problem
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import numatopology, objects
from koordlite.model.wire.numatopology import (
    ContainerAllocation,
    CPUInfo,
    NumatopologyObject,
    NumatopologySpec,
    PodAllocation,
    ResourceInfo,
)

LOG = logging.getLogger(__name__)
AT_MOST_EVERY_SECONDS = 1.0
CONFIRM_SECONDS = 60.0
"""What stands is looked at again this often: another program may have written it."""
_NO_KIND = "install Volcano's CRD numatopologies.nodeinfo.volcano.sh, or set publish.numatopology: off"


def spec(seen: Snapshot) -> NumatopologySpec:
    """What the picture says of the node. Source: Volcano's resource-exporter.

    Free are all CPUs that no container has to itself, reserved ones among them, as in kubelet's shared pool.
    """
    kubelet, by_uid = seen.kubelet, {pod.uid: pod for pod in seen.pods}
    held = [pod for pod in kubelet.pod_cpus if pod.uid not in by_uid or by_uid[pod.uid].active]
    free = seen.topology.cpuset - union(pod.cpus for pod in held)
    return NumatopologySpec(
        policies={
            numatopology.CPU_POLICY: kubelet.cpu_manager_policy or "none",
            numatopology.TOPOLOGY_POLICY: kubelet.topology_manager_policy or "none",
        },
        res_reserved={"cpu": _reserved(seen)},
        numares={"cpu": ResourceInfo(allocatable=str(free), capacity=len(seen.topology.cpus))},
        cpu_detail={
            str(cpu.id): CPUInfo(numa=cpu.node, socket=cpu.socket, core=cpu.core) for cpu in seen.topology.cpus
        },
        pod_allocations=tuple(_allocation(seen, pod) for pod in sorted(held, key=lambda pod: pod.uid)) or None,
    )


def _reserved(seen: Snapshot) -> str:
    """Kubelet's reserved CPU: the listed CPUs under the static policy, else capacity − allocatable of the Node."""
    if seen.kubelet.reserved_cpus or seen.node is None:
        return str(len(seen.kubelet.reserved_cpus))
    nothing = Quantity(0)
    capacity = seen.node.capacity.get("cpu", nothing)
    allocatable = seen.notes.kubelet_allocatable(seen.node).get("cpu", capacity)
    return str(Quantity(max(0, capacity.nano - allocatable.nano)))


def _allocation(seen: Snapshot, held: PodCPUs) -> PodAllocation:
    pod = next((pod for pod in seen.pods if pod.uid == held.uid), None)
    containers: list[tuple[str, CPUSet]] = sorted(held.containers.items())
    return PodAllocation(
        uid=held.uid,
        name=pod.name if pod else "",
        namespace=pod.namespace if pod else "",
        container_allocations=tuple(
            ContainerAllocation(name=name, allocations={"cpu": str(cpus)}) for name, cpus in containers if cpus
        ),
    )


class NumatopologyReport:
    """Keeps the object as the pictures say, in the background; nothing is written while nothing changes."""

    def __init__(self, api: Api, node_name: str) -> None:
        self._api, self._name = api, node_name
        self._requests = BackgroundRequests("numatopology")
        self._wanted: NumatopologySpec | None = None
        self._asked = float("-inf")
        self._count = 0
        self.error = ""
        """Why it was not written last time; empty when it was."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What keeps the object from being written, for `status`."""
        do = "allow this identity to get, create and update numatopologies.nodeinfo.volcano.sh; it is tried again"
        return (Problem(f"numatopology/{self._name}", "spec", "", self.error, do),) if self.error else ()

    def observe(self, seen: Snapshot, *, monotonic: float, node: Callable[[], objects.NodeObject | None]) -> None:
        """Write what this picture says if it is new, or was not confirmed for a while."""
        wanted, since = spec(seen), monotonic - self._asked
        due = since >= AT_MOST_EVERY_SECONDS and wanted != self._wanted
        if not (due or since >= CONFIRM_SECONDS):
            return
        self._wanted, self._asked = wanted, monotonic
        owner = node()
        self._count += 1
        try:
            self._requests.send(self._count, self._count, lambda: self._try(wanted, owner), patience_seconds=0.0)
        except ApiUnreachable:
            return  # Under way; `_try` keeps what comes of it.

    def stop(self) -> None:
        """Write nothing more."""
        self._requests.stop()

    def _try(self, wanted: NumatopologySpec, owner: objects.NodeObject | None) -> None:
        error = ""
        try:
            self.write(wanted, owner)
        except ApiError as refused:
            error = f"{refused}; {_NO_KIND}" if refused.unknown_resource else str(refused)
        except ApiUnreachable as unreachable:
            error = str(unreachable)
        if error and error != self.error:
            LOG.warning("the Numatopology was not written: %s", error)
        self.error = error

    def write(self, wanted: NumatopologySpec, owner: objects.NodeObject | None) -> None:
        """Make the object, or replace its spec where it differs. ApiError and ApiUnreachable as of the requests."""
        path = f"{numatopology.PATH}/{self._name}"
        try:
            held = _decoded(self._api.request("GET", path).body, self._name)
        except ApiError as missing:
            if missing.status != HTTPStatus.NOT_FOUND or missing.unknown_resource or owner is None:
                raise
            self._api.request("POST", numatopology.PATH, body=_fresh(owner, wanted))
            return
        if held.spec != wanted:
            body = _body({"name": self._name, "resourceVersion": held.metadata.resource_version}, wanted)
            if held.metadata.owner_references:
                body["metadata"]["ownerReferences"] = msgspec.to_builtins(held.metadata.owner_references)
            self._api.request("PUT", path, body=body)


def _decoded(raw: bytes, name: str) -> NumatopologyObject:
    try:
        return numatopology.decode(raw)
    except msgspec.DecodeError as error:
        raise ApiError(422, "Unreadable", str(error), named=name) from error


def _fresh(node: objects.NodeObject, wanted: NumatopologySpec) -> dict[str, Any]:
    """Owned by the Node, so that it goes when the node goes."""
    name = node.metadata.name
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid, "controller": True}
    return _body({"name": name, "ownerReferences": [owner]}, wanted)


def _body(metadata: dict[str, Any], wanted: NumatopologySpec) -> dict[str, Any]:
    head = {"apiVersion": numatopology.API_VERSION, "kind": numatopology.KIND}
    return {**head, "metadata": metadata, "spec": msgspec.to_builtins(wanted)}
