"""Batch resources of each NUMA node: the node's formula with each term's share in that NUMA node.

What is known only for the whole node is split evenly. CPU is in millicores, memory in thousandths of a byte, so that
splits stay exact. NUMA nodes go by their id. Source: Koordinator batchresource plugin, `calculateOnNUMALevel`,
`GetPodNUMARequestAndUsage`, `DivideResourceList`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from koordlite.formulas.allocatable import allocatable
from koordlite.formulas.allocatable.allocatable import BATCH_AND_BELOW, Sums, Terms
from koordlite.model import nrt
from koordlite.model.picture.usage import NO_USE, Use
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import Colocation
from koordlite.model.wire.objects import Zone

MILLI = 1000


class ZoneTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one NUMA node; those of memory are in thousandths of a byte."""

    node: int
    """NUMA node id."""
    cpu: Terms
    memory: Terms


def batch(
    *,
    zones: Mapping[int, Use],
    colocation: Colocation,
    pods: Iterable[Pod],
    usage: Mapping[str, Use],
    measured: Use,
    reserved: Use,
) -> tuple[ZoneTerms, ...]:
    """`allocatable.batch` for each NUMA node, in the order of ids: capacity is the zone's own, the rest is shares.

    `zones` is the allocatable of each NUMA node by id, in millicores and bytes, as everything given here. `measured` is
    the use of the system with its host applications and `reserved` what is reserved, both of the whole node and split
    evenly; pods are split by `shares`.
    """
    ids, uids = sorted(zones), set[str]()
    sums = dict.fromkeys(ids, Sums())
    for pod in pods:
        uids.add(pod.uid)
        for node, of_pod in _sums_of_pod(pod, usage.get(pod.uid), ids).items():
            sums[node] += of_pod
    for uid, used in usage.items():
        if uid not in uids:
            for node, part in shares(used, ids).items():
                sums[node] += Sums(hp_used=part, hp_max_used_request=part)
    system, reserved_shares, terms = shares(measured, ids), shares(reserved, ids), list[ZoneTerms]()
    for node in ids:
        margin = allocatable.safety_margin(capacity=zones[node], colocation=colocation)
        cap_cpu, cap_memory = allocatable.caps(capacity=zones[node], colocation=colocation)
        cpu, memory = allocatable.terms(
            capacity=Use(zones[node].cpu, zones[node].memory * MILLI),
            margin=Use(margin.cpu, margin.memory * MILLI),
            cap=(cap_cpu, None if cap_memory is None else cap_memory * MILLI),
            colocation=colocation,
            sums=sums[node],
            measured=system[node],
            reserved=reserved_shares[node],
        )
        terms.append(ZoneTerms(node=node, cpu=cpu, memory=memory))
    return tuple(terms)


def sizes(zones: Iterable[Zone]) -> tuple[dict[int, Use], dict[str, str]]:
    """CPU and memory of the NUMA zones by NUMA node id; by zone name, why another one cannot be used."""
    by_node: dict[int, Use] = {}
    unreadable: dict[str, str] = {}
    for zone in zones:
        node = nrt.numa_node_of_zone(zone.name)
        texts = {r.name: r.allocatable for r in zone.resources or () if r.name in ("cpu", "memory")}
        if node is None:
            continue
        try:
            by_node[node] = allocatable.amounts({name: Quantity.parse(text) for name, text in texts.items()})
        except ValueError as error:
            unreadable[zone.name] = str(error)
    # A topology that says nothing of CPU or memory offers no base to work on.
    is_sized = any(size != NO_USE for size in by_node.values())
    return (by_node if is_sized else {}), unreadable


def shares(amount: Use, zones: Sequence[int], nodes: Collection[int] = ()) -> dict[int, Use]:
    """⌈amount / k⌉ on each of the k NUMA nodes in `nodes` that exist, or on all of them when there is none.

    `nodes` are the ones a pod was promised. Memory comes in bytes and goes out in thousandths of a byte.
    """
    own = [node for node in zones if node in nodes] or list(zones)
    part = Use(divided(amount.cpu, len(own)), divided(amount.memory * MILLI, len(own)))
    return {node: part if node in own else NO_USE for node in zones}


def divided(milli: int, parts: int) -> int:
    """⌈milli / parts⌉ in doubles; unchanged for no parts. Source: Koordinator `DivideResourceList`."""
    return math.ceil(float(milli) / parts) if parts else milli


def _sums_of_pod(pod: Pod, used: Use | None, ids: Sequence[int]) -> dict[int, Sums]:
    if pod.priority_class in BATCH_AND_BELOW:
        return {}
    if not pod.active:
        parts = shares(used or NO_USE, ids)
        return {node: Sums(hp_used=part, hp_max_used_request=part) for node, part in parts.items()}
    promised = pod.resource_status.numa_nodes
    request = shares(Use(pod.request_milli(), pod.request_value("memory")), ids, promised)
    use = shares(used, ids, promised) if used else {}
    return {node: allocatable.charge(request=request[node], used=use.get(node), qos=pod.qos_class) for node in ids}
