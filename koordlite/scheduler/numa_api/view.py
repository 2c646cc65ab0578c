"""One node by NUMA node: CPUs by owner, memory, distances, where containers run against what they were promised.

Everything comes from the node's NodeResourceTopology, which its agent writes, and from the pods bound to it. What
cannot be read is listed in `problems` and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from koordlite.formulas.topology import numa
from koordlite.formulas.topology.numa import Violation
from koordlite.model import keys, times
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.pod.qos import QoSClass
from koordlite.model.reading.go_words import STRICT_RESERVATION, is_on
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.judgement.nodes import Report, Row

STALE_SECONDS = 180.0
"""A placement that is older is not believed: three of the longest periods at which agents publish."""
State = Literal["ok", "stale", "unreadable", "no report"]
Owner = Literal["reserved", "exclusive", "shared"]


class Zone:
    """One NUMA node. Amounts are those of the report, less what is reserved for pods that it has not counted; None:
    not reported."""

    def __init__(self, number: int, report: Report, row: Row, topology: Topology) -> None:
        amounts = report.totals.get(number, {}), row.zones.get(number, {})
        self.id = number
        self.cpus = next((zone.cpus for zone in topology.nodes if zone.id == number), EMPTY)
        """Empty where the report lists no CPUs, or it has memory only."""
        self.cpu_total, self.cpu_left = (_scaled(each.get("cpu"), 10**6) for each in amounts)
        """Millicores that pods may have."""
        self.memory_total, self.memory_left = (_scaled(each.get("memory"), 10**9) for each in amounts)
        """Bytes."""
        self.distances = report.costs.get(number, {})
        """Distances to other NUMA nodes and to itself, 10 within one; empty where the report has none."""

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


class NodeView:
    """One node: its row, and what its report says, read once."""

    def __init__(self, row: Row) -> None:
        self.name, self.has_report = row.name, row.report is not None
        self.report = row.report or Report(objects.NRTObject(metadata=objects.ObjectMeta(name=row.name)))
        problems = list(self.report.problems)
        reader = self.report.reader(problems)
        self.topology, self.manager, self.placement = reader.topology, reader.cpu_manager, reader.placement
        self.containers = self.placement.containers if self.placement else ()
        self.observed = times.parse_or_none(self.placement.observed_at) if self.placement else None
        """Time at which the placement was read, in seconds since the epoch; None: there is none, or its time cannot be
        read."""
        alone = [(a.cpuset, f"{a.namespace}/{a.name}") for a in reader.allocs]
        alone += [(c.promised_cpus, f"{c.namespace}/{c.pod}") for c in self.containers if c.exclusive]
        self.exclusive = {cpu: pod for cpus, pod in alone for cpu in cpus & self.topology.cpuset}
        """CPU to the pod that has it alone."""
        by_note = (reader.reservation.reserved_cpus if reader.reservation else None) or EMPTY
        self.reserved = by_note | self.manager.reserved_cpus
        ids = sorted({*self.report.totals, *(zone.id for zone in self.topology.nodes)})
        self.zones = tuple(Zone(number, self.report, row, self.topology) for number in ids)
        rules = numa.Rules(topology=self.topology, policy=self.report.policy, cpu_manager_policy=self.manager.policy)
        self.findings = tuple(self._findings(rules, by_note, row.pods))
        self.problems = tuple(map(str, problems))
        self.pods = tuple(sorted(pod.key for pod in row.pods))
        """`namespace/name` of those that are bound to the node and have not ended."""

    def _findings(self, rules: numa.Rules, reserved: CPUSet, pods: Sequence[ClusterPod]) -> Iterator[Finding]:
        """Findings by the rules of the agent and the descheduler. A pod that has ended, that is being deleted, or that
        the API server no longer has is not judged."""
        placed: dict[str, list[ContainerPlacement]] = {}
        for container in self.containers:
            placed.setdefault(container.uid, []).append(container)
        manager = self.manager
        by_kubelet = "kubelet", manager.reserved_cpus, is_on(manager.options, STRICT_RESERVATION)
        for pod in pods:
            if not pod.ended and not pod.deleting:
                is_system = pod.shape.pod.qos_class is QoSClass.SYSTEM
                reserved_sets = (by_kubelet,) if is_system else (by_kubelet, ("koordinator", reserved, True))
                policy = pod.shape.pod.annotations.get(keys.VOLCANO_NUMA_POLICY, "") if pod.started else ""
                for wrong in rules.of_pod(placed.get(pod.uid, ()), asked_policy=policy, reservations=reserved_sets):
                    yield Finding(pod.namespace, pod.name, wrong)

    @property
    def more(self) -> int:
        """Containers that the report had no space for."""
        return (self.placement.more or 0) if self.placement else 0

    def owner(self, cpu: int) -> Owner:
        """Owner of `cpu`; `reserved` counts before `exclusive`."""
        return "reserved" if cpu in self.reserved else "exclusive" if cpu in self.exclusive else "shared"

    def age(self, now: float) -> float | None:
        """Seconds since the placement was read; None without one, infinite where its time cannot be read."""
        if self.placement is None:
            return None
        return float("inf") if self.observed is None else max(0.0, now - self.observed)

    def state(self, now: float) -> State:
        """State at `now`, in seconds since the epoch: only what is `ok` is believed."""
        if not self.has_report:
            return "no report"
        if self.problems:
            return "unreadable"
        return "stale" if (self.age(now) or 0.0) > STALE_SECONDS else "ok"


def of_row(row: Row) -> NodeView:
    """The node as the extender judges it, worked out once for this version of it."""
    return row.once("numa view", lambda: NodeView(row))


def _scaled(nano: int | None, unit: int) -> int | None:
    return None if nano is None else nano // unit


def _part(total: int | None, free: int | None) -> float | None:
    return None if not total or free is None else min(1.0, max(0.0, 1 - free / total))


def misplaced_cpus(node: NodeView) -> CPUSet:
    """CPUs of containers that something is wrong with."""
    blamed = {(each.namespace, each.pod, each.violation.container) for each in node.findings}
    whole = {(namespace, pod) for namespace, pod, container in blamed if container == numa.WHOLE_POD}
    return union(
        c.cpuset
        for c in node.containers
        if (c.namespace, c.pod) in whole or (c.namespace, c.pod, c.container) in blamed
    )
