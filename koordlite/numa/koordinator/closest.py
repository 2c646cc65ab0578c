"""NUMA nodes nearest together, where a pod needs more than one. Ours: Koordinator's scheduler reads no distances.

The order is kubelet's with `prefer-closest-numa-nodes`: first as few NUMA nodes as will do, then the smaller mean
distance over ordered pairs, then the lower ones.
"""

from __future__ import annotations

import itertools

import msgspec

from koordlite.numa.koordinator.allocate import Request
from koordlite.numa.koordinator.hints import masks
from koordlite.numa.koordinator.node_report import NodeState
from koordlite.numa.koordinator.take_reserved import feasible, take
from koordlite.numa.koordinator.values import Allocation, bits
from koordlite.numa.nrt import score


def distance(node: NodeState, mask: int) -> float:
    """The mean over all ordered pairs of the mask's NUMA nodes; one that the report does not give counts 255."""
    nodes = bits(mask)
    return score.distance(nodes, node.topology.distances) / len(nodes) ** 2 if nodes else 0.0


def allocation(node: NodeState, request: Request, *, uid: str) -> Allocation | None:
    """CPUs for a pod without a NUMA policy that no single NUMA node has enough of; None where one has, or where nothing
    is known of distances: then Koordinator's own choice counts.

    Its memory is not looked at: nothing binds it to NUMA nodes.
    """
    if not node.topology.distances or node.reservations:
        return None
    only = msgspec.structs.replace(
        request,
        requests={name: amount for name, amount in request.requests.items() if name == "cpu"},
        original={name: amount for name, amount in request.original.items() if name == "cpu"},
    )
    for count, same in itertools.groupby(masks(node.zones), key=int.bit_count):
        fitting = [mask for mask in same if feasible(node, only, mask)]
        if fitting:
            nearest = min(fitting, key=lambda mask: distance(node, mask))
            found = take(node, only, nearest, uid=uid) if count > 1 else None
            return msgspec.structs.replace(found, zones={}) if isinstance(found, Allocation) else None
    return None
