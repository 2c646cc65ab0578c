"""Publish what best-effort pods may request on this node and in its NUMA zones: batch-cpu and batch-memory.

The formulas are `formulas.allocatable.allocatable.batch` and `formulas.allocatable.numa_shares.batch`; usage is a
mean over the window the ConfigMap asks for. Every term stands in the decisions' evidence under the formula's own
name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from koordlite.changes.published import NodeAnnotationChange, ZoneResourceChange
from koordlite.formulas.allocatable import allocatable, node_sync, numa_shares
from koordlite.formulas.allocatable.allocatable import Terms
from koordlite.formulas.allocatable.numa_shares import MILLI, ZoneTerms
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture import node_notes
from koordlite.model.quantity import Quantity
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.model.wire.objects import Zone, ZoneResource
from koordlite.strategies.shared import offer
from koordlite.strategies.shared.offer import Evidence

NEW_CONTAINERS = "none"
NEEDS_NODE = "node"
RESOURCES = (keys.BATCH_CPU, keys.BATCH_MEMORY)
PUBLISHES = RESOURCES
ALIASES = ("allocatable",)
SUBJECTS = ("batch-cpu", "batch-memory")
OVERVIEW = ("best effort may request", "allocatable")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `beAllocatable`. Thresholds and policies come from the ConfigMap key `colocation-config`."""


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide about each of the two resources, and about each NUMA zone that is published."""
    nothing = offer.withheld(snapshot, RESOURCES)
    yield from nothing
    if nothing or snapshot.average.node is None:
        return
    shared = offer.common_terms(snapshot, snapshot.average.node, offered_to=allocatable.BATCH_AND_BELOW)
    cpu, memory = allocatable.batch(
        capacity=allocatable.amounts(snapshot.node.capacity),
        colocation=snapshot.slo.colocation,
        sums=allocatable.pod_sums(pods=snapshot.pods, usage=snapshot.average.pods),
        system=shared.system,
        host_apps=shared.host_apps,
        reserved=shared.reserved,
    )
    yield from _node(snapshot, cpu, memory)
    yield from _zones(snapshot, shared)


def _node(snapshot: NodeSnapshot, cpu: Terms, memory: Terms) -> Iterator[Decision]:
    offered, free = node_sync.prepared(
        thousandths={keys.BATCH_CPU: cpu.result * 1000, keys.BATCH_MEMORY: memory.result * 1000},
        ratio=_ratio(snapshot),
        allocated={name: amount.value for name, amount in snapshot.notes.third_party.items()},
    )
    ratio = _ratio(snapshot)
    amounts: dict[str, tuple[int | None, Evidence]] = {}
    for resource, terms in ((keys.BATCH_CPU, cpu), (keys.BATCH_MEMORY, memory)):
        evidence: Evidence = {"result": terms.result, **_terms(terms), "policy": terms.policy}
        evidence |= {"normalization_ratio": ratio} if resource == keys.BATCH_CPU and ratio > 1 else {}
        whole, remainder = offered[resource] or 0, free[resource] or 0
        if remainder != whole:
            evidence |= {"offered": whole, "third_party": whole - remainder, "left": remainder}
        amounts[resource] = free[resource], evidence
    # Third parties are told how much there is before their own share is taken off.
    origin = {keys.ORIGIN_ALLOCATABLE: node_notes.encode_origin(offered)}
    texts = node_sync.metadata_changes(current=snapshot.node.annotations, target=origin)
    besides = {keys.BATCH_CPU: [NodeAnnotationChange(key, text) for key, text in texts.items()]}
    yield from offer.published(snapshot, "BatchAllocatable", amounts, besides)


def _ratio(snapshot: Snapshot) -> float:
    """Worth of a CPU, as the Node says."""
    return snapshot.notes.cpu_normalization or 1.0


def _terms(terms: Terms, unit: str = "", *, parts: int = 1) -> Evidence:
    """The formula's terms, and the bound that acts on their difference: the cap below it, or nothing where the others
    take more. `unit` ends the names where the subject does not say it, `parts` of the terms make one."""
    difference = terms.capacity - terms.margin - terms.system - terms.hp
    named = {
        "capacity": terms.capacity,
        "margin": terms.margin,
        "system": terms.system,
        "hp": terms.hp,
        "node_reserved": terms.node_reserved,
        "system_used": terms.system_used,
        "hp_used": terms.hp_used,
        "hp_request": terms.hp_request,
        "hp_max_used_request": terms.hp_max_used_request,
        "cap": terms.cap,
        "lacking": -difference if difference < 0 else None,
        "limited_to": terms.cap if difference >= 0 and terms.cap is not None and terms.cap < difference else None,
    }
    return {f"{name}{unit}": amount // parts for name, amount in named.items() if amount is not None}


def _zones(snapshot: Snapshot, shared: offer.CommonTerms) -> Iterator[Decision]:
    sizes, unreadable = numa_shares.sizes(snapshot.published.zones)
    worked_out = numa_shares.batch(
        zones=sizes,
        colocation=snapshot.slo.colocation,
        pods=snapshot.pods,
        usage=snapshot.average.pods,
        measured=shared.system + shared.host_apps,
        reserved=shared.reserved,
    )
    by_name = {f"node-{terms.node}": terms for terms in worked_out}
    for zone in snapshot.published.zones:
        if zone.name in by_name:
            yield _zone(snapshot, zone, by_name[zone.name])
            continue
        # A zone that is offered nothing gives back what it once was offered.
        threshold = snapshot.slo.colocation.resource_diff_threshold
        changes = _zone_changes(node_sync.zone_changes(zones=(zone,), target={}, threshold=threshold))
        why = unreadable.get(zone.name, "no NUMA node, or without CPU and memory")
        yield Decision(f"zone/{zone.name}", "release" if changes else "skip", "NoZoneSize", {"why": why}, changes)


def _zone_changes(resources: Mapping[tuple[str, str], ZoneResource | None]) -> tuple[ZoneResourceChange, ...]:
    return tuple(ZoneResourceChange(*where, value) for where, value in resources.items())


def _zone(snapshot: Snapshot, zone: Zone, terms: ZoneTerms) -> Decision:
    cpu = node_sync.multiplied(thousandths=terms.cpu.result * 1000, ratio=_ratio(snapshot))
    parts = {
        keys.BATCH_CPU: Quantity.of_milli(cpu),
        keys.BATCH_MEMORY: Quantity.of_milli(terms.memory.result),
    }
    places = {name: ZoneResourceChange(zone.name, name, None).place for name in RESOURCES}
    written = [time for place in places.values() if (time := snapshot.published.last_sync.get(place)) is not None]
    update_seconds = snapshot.slo.colocation.update_time_threshold_seconds
    resources = node_sync.zone_changes(
        zones=(zone,),
        target={zone.name: parts},
        threshold=snapshot.slo.colocation.resource_diff_threshold,
        # Long since this zone was written in this run: small differences are written too.
        is_time=not written or snapshot.time - max(written) > update_seconds,
    )
    standing = {place: snapshot.published.zone_resource(zone.name, name) for name, place in places.items()}
    settling = offer.settling(snapshot, standing)
    changes = () if settling else _zone_changes(resources)
    evidence: Evidence = {
        "result_milli": terms.cpu.result,
        "result_bytes": terms.memory.result // MILLI,
        **_terms(terms.cpu, "_milli"),
        **_terms(terms.memory, "_bytes", parts=MILLI),
        "cpu_policy": terms.cpu.policy,
        "memory_policy": terms.memory.policy,
        **settling,
    }
    reason = "UseWindowFilling" if settling else "ZoneAllocatable"
    return Decision(f"zone/{zone.name}", "set" if changes else "hold", reason, evidence, changes)
