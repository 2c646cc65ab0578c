"""What best-effort pods may request on this node: batch-cpu and batch-memory, worked out and published.

The formula is `formulas.allocatable.batch`; usage is a mean over the window the ConfigMap asks for. Every term stands
in the decision's evidence under the formula's own name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.formulas import allocatable, reservation, suppress
from koordlite.model import keys
from koordlite.model.decision import Decision, NodeResourceChange
from koordlite.model.node import Node
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Snapshot, Use


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `beAllocatable`. Thresholds and policies come from the ConfigMap key `colocation-config`."""


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for each of the two resources."""
    if seen.node is None or not seen.node.capacity_milli:
        yield Decision("node", "skip", "NoNode")
    elif not seen.slo.colocation.enable:
        yield from _remove(seen, "ColocationDisabled", {})
    elif seen.average.node is None:
        yield from _degrade(seen)
    else:
        cpu, memory = _terms(seen, seen.node, seen.average.node)
        yield _publish(seen, keys.BATCH_CPU, cpu)
        yield _publish(seen, keys.BATCH_MEMORY, memory)


def _degrade(seen: Snapshot) -> Iterator[Decision]:
    """Usage is unknown: what was promised stays for a while, then it is taken back."""
    age, minutes = seen.ages.get("usage"), seen.slo.colocation.degrade_time_minutes
    evidence: dict[str, int | float | str] = {"ageSeconds": round(age or 0), "degradeTimeMinutes": minutes}
    if age is not None and allocatable.degraded(age_seconds=age, degrade_minutes=minutes):
        yield from _remove(seen, "DegradedNoMetrics", evidence)
    else:
        yield Decision("node", "hold", "NoMetrics", evidence)


def _remove(seen: Snapshot, reason: str, evidence: dict[str, int | float | str]) -> Iterator[Decision]:
    """The keys go from capacity and allocatable; a node that never had them is left alone."""
    for resource in (keys.BATCH_CPU, keys.BATCH_MEMORY):
        present = seen.published.node_resources.get(resource)
        changes = () if present is None else (NodeResourceChange(resource, None),)
        yield Decision(f"node/{resource}", "release" if changes else "hold", reason, evidence, changes)


def _terms(seen: Snapshot, node: Node, used: Use) -> tuple[allocatable.Terms, allocatable.Terms]:
    average = seen.average
    in_pods = Use(sum(u.cpu for u in average.pods.values()), sum(u.memory for u in average.pods.values()))
    in_hosts = Use(sum(u.cpu for u in average.host_apps.values()), sum(u.memory for u in average.host_apps.values()))
    by_kubelet = reservation.from_kubelet(capacity=node.capacity, allocatable=node.allocatable)
    return allocatable.batch(
        capacity=allocatable.amounts(node.capacity),
        colocation=seen.slo.colocation,
        sums=allocatable.pod_sums(pods=seen.pods, usage=average.pods),
        system=Use(_system(used.cpu, in_pods.cpu, in_hosts.cpu), _system(used.memory, in_pods.memory, in_hosts.memory)),
        host_apps=allocatable.host_app_use(applications=seen.slo.host_applications, usage=average.host_apps),
        reserved=allocatable.amounts(reservation.larger(by_kubelet, seen.reserved.resources)),
    )


def _system(node: int, pods: int, hosts: int) -> int:
    return suppress.system_use(node_milli=node, pods_milli=pods, host_apps_milli=hosts, reserved_milli=0)


def _publish(seen: Snapshot, resource: str, terms: allocatable.Terms) -> Decision:
    colocation, published = seen.slo.colocation, seen.published
    why = allocatable.must_sync(
        old=published.node_resources.get(resource),
        new=terms.result,
        threshold=colocation.resource_diff_threshold,
        since_last_seconds=None if published.last_sync is None else seen.time - published.last_sync,
        update_seconds=colocation.update_time_threshold_seconds,
    )
    evidence: dict[str, int | float | str] = {
        "result": terms.result,
        "capacity": terms.capacity,
        "margin": terms.margin,
        "system": terms.system,
        "hp": terms.hp,
        "policy": terms.policy,
        "node_reserved": terms.node_reserved,
        "system_used": terms.system_used,
        "hp_used": terms.hp_used,
        "hp_request": terms.hp_request,
        "hp_max_used_request": terms.hp_max_used_request,
        **({} if terms.cap is None else {"cap": terms.cap}),
        **({"sync": why} if why else {}),
    }
    changes = (NodeResourceChange(resource, terms.result),) if why else ()
    return Decision(f"node/{resource}", "set" if changes else "hold", "BatchAllocatable", evidence, changes)
