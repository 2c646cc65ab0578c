"""Publish what best-effort pods may request on this node and in its NUMA zones: batch-cpu and batch-memory.

The formulas are `formulas.allocatable.allocatable.batch` and `formulas.allocatable.numa_shares.batch`; usage is a
mean over the window the ConfigMap asks for. Every term stands in the decisions' evidence under the formula's own
name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import msgspec

from koordlite.changes.published import NodeAnnotationChange, ZoneResourceChange
from koordlite.formulas.allocatable import allocatable, node_sync, numa_shares
from koordlite.formulas.allocatable.allocatable import Terms
from koordlite.formulas.allocatable.numa_shares import MILLI, ZoneTerms
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture import node_notes
from koordlite.model.picture.usage import Use
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


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Terms that the node's formula and the zones' have in common."""

    system: Use
    host_apps: Use
    reserved: Use


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """One decision for each of the two resources, and one for each NUMA zone that is published."""
    nothing = offer.withheld(snapshot, RESOURCES)
    yield from nothing
    if nothing or snapshot.average.node is None:
        return
    shared = _shared(snapshot, snapshot.average.node)
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


def _shared(snapshot: NodeSnapshot, used: Use) -> _Shared:
    average = snapshot.average
    return _Shared(
        system=allocatable.system_use(node=used, pods=average.pods.values(), host_apps=average.host_apps.values()),
        host_apps=allocatable.host_app_use(applications=snapshot.slo.host_applications, usage=average.host_apps),
        reserved=allocatable.reserved_use(
            node=snapshot.node, notes=snapshot.notes, reserved=snapshot.reserved.resources
        ),
    )


def _node(snapshot: NodeSnapshot, cpu: Terms, memory: Terms) -> Iterator[Decision]:
    offered, left = node_sync.prepared(
        thousandths={keys.BATCH_CPU: cpu.result * 1000, keys.BATCH_MEMORY: memory.result * 1000},
        ratio=_ratio(snapshot),
        taken={name: amount.value for name, amount in snapshot.notes.third_party.items()},
    )
    amounts: dict[str, tuple[int | None, Evidence]] = {
        resource: (
            left[resource],
            {
                "result": terms.result,
                **_terms(terms),
                "policy": terms.policy,
                **_on_the_way(snapshot, resource, offered[resource] or 0, left[resource] or 0),
            },
        )
        for resource, terms in ((keys.BATCH_CPU, cpu), (keys.BATCH_MEMORY, memory))
    }
    # Third parties are told how much there is before their own share is taken off.
    origin = {keys.ORIGIN_ALLOCATABLE: node_notes.encode_origin(offered)}
    texts = node_sync.metadata_changes(held=snapshot.node.annotations, wanted=origin)
    besides = {keys.BATCH_CPU: [NodeAnnotationChange(key, text) for key, text in texts.items()]}
    yield from offer.published(snapshot, "BatchAllocatable", amounts, besides)


def _on_the_way(snapshot: Snapshot, resource: str, offered: int, left: int) -> Evidence:
    """Adjustments of the result before it is published, where anything does."""
    ratio = {"normalization_ratio": _ratio(snapshot)} if resource == keys.BATCH_CPU and _ratio(snapshot) > 1 else {}
    return {**ratio, **({"offered": offered, "third_party": offered - left, "left": left} if left != offered else {})}


def _ratio(snapshot: Snapshot) -> float:
    """Worth of a CPU, as the Node says."""
    return snapshot.notes.cpu_normalization or 1.0


def _terms(terms: Terms, unit: str = "", *, parts: int = 1) -> Evidence:
    """The formula's terms; `unit` ends the names where the subject does not say it, `parts` of the terms make one."""
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
        **({} if terms.cap is None else {"cap": terms.cap}),
        **_bound(terms),
    }
    return {f"{name}{unit}": amount // parts for name, amount in named.items()}


def _bound(terms: Terms) -> Mapping[str, int]:
    """The bound that acts on the difference of the terms: the cap below it, or nothing where the others take more."""
    rest = terms.capacity - terms.margin - terms.system - terms.hp
    if rest < 0:
        return {"lacking": -rest}
    return {"limited_to": terms.cap} if terms.cap is not None and terms.cap < rest else {}


def _zones(snapshot: Snapshot, shared: _Shared) -> Iterator[Decision]:
    sizes, unreadable = numa_shares.sizes(snapshot.published.zones)
    worked_out = numa_shares.batch(
        zones=sizes,
        colocation=snapshot.slo.colocation,
        pods=snapshot.pods,
        usage=snapshot.average.pods,
        measured=allocatable.plus(shared.system, shared.host_apps),
        reserved=shared.reserved,
    )
    by_name = {f"node-{terms.node}": terms for terms in worked_out}
    for zone in snapshot.published.zones:
        if zone.name in by_name:
            yield _zone(snapshot, zone, by_name[zone.name])
        else:
            yield from _no_size(snapshot, zone, unreadable.get(zone.name, "no NUMA node, or without CPU and memory"))


def _no_size(snapshot: Snapshot, zone: Zone, why: str) -> Iterator[Decision]:
    """A zone that is offered nothing gives back what it once was offered."""
    colocation = snapshot.slo.colocation
    given_up = node_sync.zone_changes(zones=(zone,), wanted={}, threshold=colocation.resource_diff_threshold)
    changes = _zone_changes(given_up)
    yield Decision(f"zone/{zone.name}", "release" if changes else "skip", "NoZoneSize", {"why": why}, changes)


def _zone_changes(found: Mapping[tuple[str, str], ZoneResource | None]) -> tuple[ZoneResourceChange, ...]:
    return tuple(ZoneResourceChange(*where, value) for where, value in found.items())


def _zone(snapshot: Snapshot, zone: Zone, terms: ZoneTerms) -> Decision:
    cpu = node_sync.multiplied(thousandths=terms.cpu.result * 1000, ratio=_ratio(snapshot))
    parts = {
        keys.BATCH_CPU: Quantity.of_milli(cpu),
        keys.BATCH_MEMORY: Quantity.of_milli(terms.memory.result),
    }
    wanted = node_sync.zone_changes(
        zones=(zone,),
        wanted={zone.name: parts},
        threshold=snapshot.slo.colocation.resource_diff_threshold,
        is_time=_is_time(snapshot, zone),
    )
    settling = offer.settling(
        snapshot,
        {
            ZoneResourceChange(zone.name, name, None).place: snapshot.published.zone_resource(zone.name, name)
            for name in RESOURCES
        },
    )
    changes = () if settling else _zone_changes(wanted)
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


def _is_time(snapshot: Snapshot, zone: Zone) -> bool:
    """Long since this zone was written in this run: small differences are written too."""
    written = [snapshot.published.last_sync.get(ZoneResourceChange(zone.name, name, None).place) for name in RESOURCES]
    last = max((time for time in written if time is not None), default=None)
    return last is None or snapshot.time - last > snapshot.slo.colocation.update_time_threshold_seconds
