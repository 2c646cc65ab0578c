"""One node by NUMA node: CPUs by owner, memory, distances, where containers run against what they were promised.

Everything comes from the node's NodeResourceTopology, which its agent writes, and from the pods bound to it. What
cannot be read is listed in `problems` and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from koordlite.formulas.topology import numa
from koordlite.formulas.topology.numa import Violation
from koordlite.model import keys, times
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.nrt import ContainerPlacement, CPUManagerPolicy
from koordlite.model.pod.qos import QoSClass
from koordlite.model.reading.go_words import STRICT_RESERVATION, is_on
from koordlite.model.topology import Topology
from koordlite.reservation.pods import KnownPod
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.judgement.reports import Report

STALE_SECONDS = 180.0
"""A placement that is older is not believed: three of the longest periods at which agents publish."""
State = Literal["ok", "stale", "unreadable", "no report"]
Owner = Literal["reserved", "exclusive", "shared"]


class Zone(msgspec.Struct, frozen=True):
    """One NUMA node. Amounts are those of the report, less what is reserved for pods that it has not counted."""

    id: int
    cpus: CPUSet
    """Empty where the report lists no CPUs, or it has memory only."""
    cpu_total: int | None
    """Millicores that pods may have; None: not reported."""
    cpu_left: int | None
    memory_total: int | None
    """Bytes."""
    memory_left: int | None
    distances: Mapping[int, int]
    """To other NUMA nodes and to itself, 10 within one; empty where the report has none."""

    @property
    def cpu_part(self) -> float | None:
        """Part of the CPUs that is taken, 0 to 1."""
        return _part(self.cpu_total, self.cpu_left)

    @property
    def memory_part(self) -> float | None:
        """Part of the memory that is taken, 0 to 1."""
        return _part(self.memory_total, self.memory_left)


class Finding(msgspec.Struct, frozen=True):
    """A promise to a pod that does not hold."""

    namespace: str
    pod: str
    violation: Violation

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.pod}"


class NodeView(msgspec.Struct, frozen=True):
    """One node."""

    name: str
    has_report: bool
    policy: str
    """Kubelet's topology manager policy."""
    scope: str
    manager: CPUManagerPolicy
    topology: Topology
    zones: tuple[Zone, ...]
    reserved: CPUSet
    exclusive: Mapping[int, str]
    """CPU to the pod that has it alone."""
    containers: tuple[ContainerPlacement, ...]
    more: int
    """Containers that the report had no space for."""
    observed: float | None
    """When the placement was read, in seconds since the epoch; None: there is none, or its time cannot be read."""
    has_placement: bool
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    pods: tuple[str, ...]
    """`namespace/name` of those that are bound to the node and have not ended."""

    def owner(self, cpu: int) -> Owner:
        """Owner of `cpu`; `reserved` counts before `exclusive`."""
        return "reserved" if cpu in self.reserved else "exclusive" if cpu in self.exclusive else "shared"

    def age(self, now: float) -> float | None:
        """Seconds since the placement was read; None without one, infinite where its time cannot be read."""
        if not self.has_placement:
            return None
        return float("inf") if self.observed is None else max(0.0, now - self.observed)

    def state(self, now: float) -> State:
        """Tell whether it can be believed at `now`, in seconds since the epoch."""
        if not self.has_report:
            return "no report"
        if self.problems:
            return "unreadable"
        return "stale" if (self.age(now) or 0.0) > STALE_SECONDS else "ok"


def of_row(row: Row) -> NodeView:
    """The node as the extender judges it, worked out once for this version of it."""
    found: NodeView = row.once("numa view", lambda: _view(row))
    return found


def _view(row: Row) -> NodeView:
    report = row.report or Report(row.name, "")
    problems = list(report.problems)
    known = report.reader(problems)
    topology, manager, placement = known.topology, known.cpu_manager, known.placement
    allocs, by_note = known.allocs, (known.reservation.reserved_cpus if known.reservation else None) or EMPTY
    containers = placement.containers if placement else ()
    exclusive = {cpu: f"{a.namespace}/{a.name}" for a in allocs for cpu in a.cpuset & topology.cpuset}
    exclusive |= {
        cpu: f"{c.namespace}/{c.pod}" for c in containers if c.exclusive for cpu in c.promised_cpus & topology.cpuset
    }
    rules = numa.Rules(topology=topology, policy=report.policy, cpu_manager_policy=manager.policy)
    return NodeView(
        name=row.name,
        has_report=row.report is not None,
        policy=report.policy,
        scope=report.scope,
        manager=manager,
        topology=topology,
        zones=tuple(_zone(number, report, row, topology) for number in _ids(report, topology)),
        reserved=by_note | manager.reserved_cpus,
        exclusive=exclusive,
        containers=containers,
        more=(placement.more or 0) if placement else 0,
        observed=times.parse_or_none(placement.observed_at) if placement else None,
        has_placement=placement is not None,
        findings=tuple(_findings(rules, manager, by_note, containers, row.pods)),
        problems=tuple(map(str, problems)),
        pods=tuple(sorted(pod.key for pod in row.pods)),
    )


def _ids(report: Report, topology: Topology) -> Sequence[int]:
    return sorted({*report.totals, *(zone.id for zone in topology.nodes)})


def _zone(number: int, report: Report, row: Row, topology: Topology) -> Zone:
    totals, left = report.totals.get(number, {}), row.zones.get(number, {})
    return Zone(
        id=number,
        cpus=next((zone.cpus for zone in topology.nodes if zone.id == number), EMPTY),
        cpu_total=_scaled(totals.get("cpu"), 10**6),
        cpu_left=_scaled(left.get("cpu"), 10**6),
        memory_total=_scaled(totals.get("memory"), 10**9),
        memory_left=_scaled(left.get("memory"), 10**9),
        distances=report.costs.get(number, {}),
    )


def _scaled(nano: int | None, unit: int) -> int | None:
    return None if nano is None else nano // unit


def _part(total: int | None, left: int | None) -> float | None:
    return None if not total or left is None else min(1.0, max(0.0, 1 - left / total))


def _findings(
    rules: numa.Rules,
    manager: CPUManagerPolicy,
    reserved: CPUSet,
    containers: Sequence[ContainerPlacement],
    pods: Sequence[KnownPod],
) -> Iterator[Finding]:
    """By the rules of the agent and the descheduler. A pod that has ended, that is being deleted, or that the API
    server no longer has is not judged."""
    placed: dict[str, list[ContainerPlacement]] = {}
    for container in containers:
        placed.setdefault(container.uid, []).append(container)
    by_kubelet = "kubelet", manager.reserved_cpus, is_on(manager.options, STRICT_RESERVATION)
    for pod in pods:
        if not pod.ended and not pod.deleting:
            is_system = pod.shape.pod.qos_class is QoSClass.SYSTEM
            kept = (by_kubelet,) if is_system else (by_kubelet, ("koordinator", reserved, True))
            asked = pod.shape.note(keys.VOLCANO_NUMA_POLICY) if pod.started else ""
            for wrong in rules.of_pod(placed.get(pod.uid, ()), asked_policy=asked, kept=kept):
                yield Finding(pod.namespace, pod.name, wrong)


def misplaced_cpus(node: NodeView) -> CPUSet:
    """CPUs of containers that something is wrong with."""
    blamed = {(each.namespace, each.pod, each.violation.container) for each in node.findings}
    whole = {(namespace, pod) for namespace, pod, container in blamed if container == numa.WHOLE_POD}
    return union(
        c.cpuset
        for c in node.containers
        if (c.namespace, c.pod) in whole or (c.namespace, c.pod, c.container) in blamed
    )
