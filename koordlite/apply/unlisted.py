"""What an earlier run published and no journal lists any more.

A journal on tmpfs ends with the boot; the Node and its NodeResourceTopology do not. The API server keeps for each field
who wrote it last, so offers that were never taken back are known by their writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from koordlite import strategies
from koordlite.changes.published import NodeAnnotation, NodeResource, ZoneAmount
from koordlite.formulas.allocatable.node_sync import ZONE_RESOURCES
from koordlite.formulas.topology.other_writer import OURS
from koordlite.model import keys
from koordlite.model.entry import Entry
from koordlite.model.wire import objects
from koordlite.ports import ClusterView


def entries(view: ClusterView) -> Iterator[Entry]:
    """Entries that remove what this program wrote last of the Node and the zones, under the strategy that publishes it.

    Whoever offered the same before us would offer it again: an amount that nobody renews is not put back.
    """
    owners = {name: rule.name for rule in strategies.discover() for name in rule.publishes}
    owners[keys.ORIGIN_ALLOCATABLE] = owners[keys.BATCH_CPU]
    node, topology = view.node, view.topology
    if isinstance(node, objects.WrittenNodeObject):
        ours = tuple(_ours(node.metadata.managed_fields or ()))
        amounts, notes = _members(ours, "f:status", "f:allocatable"), _members(ours, "f:metadata", "f:annotations")
        for name in sorted(amounts & owners.keys() & (node.status.allocatable or {}).keys()):
            yield NodeResource(resource=name, previous=None, strategy=owners[name])
        for key in sorted(notes & owners.keys() & (node.metadata.annotations or {}).keys()):
            yield NodeAnnotation(key=key, previous=None, strategy=owners[key])
    if isinstance(topology, objects.WrittenNRTObject):
        if not any("f:zones" in fields for fields in _ours(topology.metadata.managed_fields or ())):
            return
        for zone in topology.zones or ():
            for resource in zone.resources or ():
                if resource.name in ZONE_RESOURCES:
                    yield ZoneAmount(
                        zone=zone.name, resource=resource.name, previous=None, strategy=owners[resource.name]
                    )


def _ours(written: Iterable[objects.ManagedFields]) -> Iterator[dict[str, Any]]:
    return (each.fields for each in written if each.manager == OURS)


def _members(written: Iterable[dict[str, Any]], part: str, name: str) -> set[str]:
    """The keys that one of the writes names in a map of the object."""
    parts = (fields.get(part) for fields in written)
    maps = (each.get(name) for each in parts if isinstance(each, dict))
    return {key.removeprefix("f:") for each in maps if isinstance(each, dict) for key in each}
