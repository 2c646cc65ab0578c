"""What the agent publishes when the cluster is a folder: the objects the API server would hold, as JSON files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import structs

from koordlite.model import wire
from koordlite.model.decision import ClusterChange, NodeResourceChange, TopologyChange, ZonesChange
from koordlite.model.errors import InputError, Problem

Resources = dict[str, str | int | float]
T = TypeVar("T")


OURS = "published.koordlite.io/resources"
"""Annotation in the published Node that tells a later run which resources are ours; null is one we removed."""


class Published:
    """The node's extended resources and its NodeResourceTopology, on disk when there is a folder, else in memory."""

    def __init__(self, node: str, folder: Path | None) -> None:
        """Takes up what an earlier run left in `folder`; InputError when that cannot be read."""
        self._node, self._folder = node, folder
        self.resources: dict[str, int | None] = {}
        self.topology: wire.NRTObject | None = None
        if folder is not None:
            self._take_up(folder)

    def publish(
        self, changes: Iterable[ClusterChange], *, node: wire.NodeObject, topology: wire.NRTObject | None
    ) -> None:
        """Apply the changes and write the objects they touch whole; `node` and `topology` are what others wrote."""
        changes = tuple(changes)
        for change in changes:
            if isinstance(change, NodeResourceChange):
                self.resources[change.resource] = change.value
            else:
                self.topology = _changed(self.topology or topology or self._new_topology(), change)
        if self._folder is not None:
            self._write(self._folder, changes, node)

    def over_node(self, obj: wire.NodeObject) -> wire.NodeObject:
        """The node with the published resources in capacity and allocatable; the same object when there are none."""
        if not self.resources:
            return obj
        status = structs.replace(
            obj.status,
            capacity=self._over(obj.status.capacity),
            allocatable=self._over(obj.status.allocatable),
        )
        return structs.replace(obj, status=status)

    def _over(self, amounts: Resources | None) -> Resources:
        kept = {name: amount for name, amount in (amounts or {}).items() if name not in self.resources}
        return kept | {name: str(amount) for name, amount in self.resources.items() if amount is not None}

    def _new_topology(self) -> wire.NRTObject:
        return wire.NRTObject(metadata=wire.ObjectMeta(name=self._node))

    def _take_up(self, folder: Path) -> None:
        self.resources = self._read(folder / self._node_file, _resources) or {}
        self.topology = self._read(folder / self._topology_file, _topology)

    def _read(self, path: Path, decode: Callable[[bytes], T]) -> T | None:
        try:
            return decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, OSError) as error:
            do = "remove the file; until then nothing is published"
            raise InputError(Problem(str(path), "content", "", str(error), do)) from error

    def _write(self, folder: Path, changes: tuple[ClusterChange, ...], node: wire.NodeObject) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(isinstance(change, NodeResourceChange) for change in changes):
            notes = {**(node.metadata.annotations or {}), OURS: msgspec.json.encode(self.resources).decode()}
            whole = structs.replace(self.over_node(node), metadata=structs.replace(node.metadata, annotations=notes))
            _replace(folder / self._node_file, {"apiVersion": "v1", "kind": "Node", **msgspec.to_builtins(whole)})
        if self.topology is not None and any(not isinstance(change, NodeResourceChange) for change in changes):
            head = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
            _replace(folder / self._topology_file, {**head, **msgspec.to_builtins(self.topology)})

    @property
    def _node_file(self) -> str:
        return f"node-{self._node}.json"

    @property
    def _topology_file(self) -> str:
        return f"noderesourcetopology-{self._node}.json"


def _resources(raw: bytes) -> dict[str, int | None]:
    notes = msgspec.json.decode(raw, type=wire.NodeObject).metadata.annotations or {}
    return msgspec.json.decode(notes.get(OURS, "{}"), type=dict[str, int | None])


def _topology(raw: bytes) -> wire.NRTObject:
    return msgspec.json.decode(raw, type=wire.NRTObject)


def _changed(topology: wire.NRTObject, change: TopologyChange | ZonesChange) -> wire.NRTObject:
    if isinstance(change, TopologyChange):
        notes = {**(topology.metadata.annotations or {}), change.key: change.value}
        return structs.replace(topology, metadata=structs.replace(topology.metadata, annotations=notes))
    present = {zone.name: zone for zone in topology.zones or ()}
    zones = tuple(_merged(present.get(zone.name), zone) for zone in change.zones)
    return structs.replace(topology, zones=zones, topology_policies=change.policies)


def _merged(present: wire.Zone | None, wanted: wire.Zone) -> wire.Zone:
    """Resources that others put into the zone stay."""
    ours = {resource.name for resource in wanted.resources or ()}
    theirs = [resource for resource in (present.resources if present else None) or () if resource.name not in ours]
    resources = sorted([*(wanted.resources or ()), *theirs], key=lambda resource: resource.name)
    return structs.replace(wanted, resources=tuple(resources))


def _replace(path: Path, content: object) -> None:
    """Readers see the old file or the new one, never half of it."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(text + b"\n")
    os.replace(fresh, path)
