"""The NUMA nodes among the zones of a NodeResourceTopology."""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.model import nrt
from koordlite.model.defaults import MOST_NUMA_NODES, NUMA_NODES
from koordlite.model.errors import Problem
from koordlite.model.wire import objects

_DO = "its reporter has to write it again; the node's NUMA nodes count as unknown until then"


def numa_nodes(
    zones: Iterable[objects.Zone] | None, owner: str, problems: list[Problem], *, most: int = NUMA_NODES
) -> dict[int, objects.Zone]:
    """The zones of type Node that are called `node-<id>`, by id, ascending. Of two with one name the first counts; more
    than `most` are not used at all. Either is a problem of `owner`."""
    found: dict[int, objects.Zone] = {}
    for zone in zones or ():
        number = nrt.numa_node_of_zone(zone.name) if zone.type == "Node" else None
        if number is None:
            continue
        if number in found:
            problems.append(Problem(owner, "zones", zone.name, "two zones have this name", _DO))
        else:
            found[number] = zone
    if len(found) > most:
        why = f"there are more NUMA nodes than the {most} that are judged here"
        do = f"raise --max-numa-nodes (at most {MOST_NUMA_NODES}) where the machine has so many; they count as unknown"
        problems.append(Problem(owner, "zones", str(len(found)), why, do))
        return {}
    return dict(sorted(found.items()))
