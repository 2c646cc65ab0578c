"""Publications of an earlier run that no journal lists any more.

A journal on tmpfs ends with the boot; the Node and its NodeResourceTopology do not. The API server keeps for each field
who wrote it last, so offers that were never taken back are known by their writer.
"""

from __future__ import annotations

from collections.abc import Iterator

from koordlite import strategies
from koordlite.changes.published import NodeAnnotation, NodeCondition, NodeResource, ZoneAmount
from koordlite.formulas.allocatable.node_sync import ZONE_RESOURCES
from koordlite.formulas.topology.other_writer import OURS
from koordlite.model import keys
from koordlite.model.change import Entry
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
        ours = [each for each in node.metadata.managed_fields or () if each.manager == OURS]
        amounts = frozenset[str]().union(*(each.written("status", "allocatable") for each in ours))
        notes = frozenset[str]().union(*(each.written("metadata", "annotations") for each in ours))
        for name in sorted(amounts & owners.keys() & (node.status.allocatable or {}).keys()):
            yield NodeResource(resource=name, previous=None, strategy=owners[name])
        for key in sorted(notes & owners.keys() & (node.metadata.annotations or {}).keys()):
            yield NodeAnnotation(key=key, previous=None, strategy=owners[key])
        theirs = (each.written("status", "conditions") for each in ours)
        if any(f'"{keys.CPU_CONTENTION}"' in key for keys_written in theirs for key in keys_written):
            yield NodeCondition(type=keys.CPU_CONTENTION, strategy="cpuContention")
    if isinstance(topology, objects.WrittenNRTObject):
        writers = topology.metadata.managed_fields or ()
        if not any(each.manager == OURS and "f:zones" in each.fields for each in writers):
            return
        for zone in topology.zones or ():
            for resource in zone.resources or ():
                if resource.name in ZONE_RESOURCES:
                    yield ZoneAmount(
                        zone=zone.name, resource=resource.name, previous=None, strategy=owners[resource.name]
                    )
