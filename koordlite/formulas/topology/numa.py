"""Violations of promises about CPUs and NUMA nodes by running containers: promise, fact and topology in, violations
out.

Rules (docs/formulas.md, "NUMA promises"): nobody upstream judges running pods, so these are ours. A promise comes from
kubelet's CPU and topology manager, or from the schedulers of Koordinator, Crane or Volcano; a container of the shared
pool has none, and may span NUMA nodes by design.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.topology import Topology

Severity = Literal["hard", "fixable", "exposed"]
"""hard: only a move cures it; fixable: the agent writes the cpuset again; exposed: it may go wrong, report only."""

WHOLE_POD = "*"
"""Stands for the container where a violation is the pod's as a whole."""


class Violation(msgspec.Struct, frozen=True):
    """A promise that does not hold. `evidence` has the facts in the words of the rule."""

    container: str
    reason: str
    severity: Severity
    evidence: Mapping[str, int | float | str] = msgspec.field(default_factory=dict)


class MemoryThresholds(msgspec.Struct, frozen=True):
    """Remote memory counts when it is both many bytes and a good part: a few stray pages are normal."""

    ratio: float = 0.10
    bytes: int = 64 * 2**20


ReservedCPUs = tuple[str, CPUSet, bool]
"""Owner of reserved CPUs, the CPUs, and whether they are kept also from containers of the shared pool."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Facts by which the pods of one node are judged: agent, descheduler and pages ask here."""

    topology: Topology
    policy: str
    """Policy of kubelet's topology manager; empty: not known."""
    cpu_manager_policy: str
    memory: MemoryThresholds = MemoryThresholds()

    def of_container(
        self, container: ContainerPlacement, reservations: Iterable[ReservedCPUs] = ()
    ) -> Iterator[Violation]:
        """Promises to one container that do not hold, and reserved CPUs that it uses."""
        yield from container_violations(container, self.topology, self.memory)
        for owner, reserved, strict in reservations:
            wrong = reserved_use(container, owner=owner, reserved=reserved, strict=strict)
            if wrong:
                yield wrong

    def of_whole(self, placed: Iterable[ContainerPlacement], asked_policy: str) -> Iterator[Violation]:
        """Violation by a pod as a whole, of which `placed` are the containers."""
        together = pod_spans(placed, self.topology)
        mismatch = policy_mismatch(
            policy=asked_policy, node_policy=self.policy, cpu_manager_policy=self.cpu_manager_policy
        )
        yield from filter(None, (together, mismatch))

    def of_pod(
        self, placed: Sequence[ContainerPlacement], *, asked_policy: str, reservations: Sequence[ReservedCPUs] = ()
    ) -> Iterator[Violation]:
        """Everything wrong with one pod."""
        for container in placed:
            yield from self.of_container(container, reservations)
        yield from self.of_whole(placed, asked_policy)


def promised_nodes(container: ContainerPlacement, topology: Topology) -> frozenset[int]:
    """NUMA nodes the container was promised: those named, else those of its promised CPUs where these bind."""
    if container.promised_nodes:
        return frozenset(container.promised_nodes)
    binding = container.single_numa or container.source == "koordinator"
    return topology.numa_of(container.promised_cpus) if binding else frozenset()


def container_violations(
    container: ContainerPlacement, topology: Topology, memory: MemoryThresholds
) -> Iterator[Violation]:
    """Everything wrong with one container: CPUs first, then memory, then devices."""
    if container.source == "none":
        return
    yield from _cpu_violations(container, topology)
    allowed = allowed_nodes(container, topology)
    if allowed:
        yield from _memory_violations(container, allowed, memory)
        remote = [device.id for device in container.devices if device.numa >= 0 and device.numa not in allowed]
        if remote:
            yield Violation(container.container, "DeviceRemote", "hard", {"devices": ",".join(remote)})


def allowed_nodes(container: ContainerPlacement, topology: Topology) -> frozenset[int]:
    """Nodes its memory and devices should come from: the promised ones, else that of its CPUs; empty when the CPUs
    span nodes and nothing says which of them would be right."""
    promised = promised_nodes(container, topology)
    if promised:
        return promised
    here = topology.numa_of(container.cpuset)
    bound = container.single_numa or container.exclusive
    return here if bound and len(here) == 1 else frozenset()


def _cpu_violations(container: ContainerPlacement, topology: Topology) -> Iterator[Violation]:
    outside = container.cpuset - container.promised_cpus
    if container.promised_cpus and outside:
        evidence = {"cpus": str(outside), "promised": str(container.promised_cpus)}
        yield Violation(container.container, "CPUOutsideAssignment", _cpu_severity(container), evidence)
    reason, nodes = _misalignment(container, container.cpuset, topology)
    if reason:
        # Writing the promised CPUs again is no cure where these are misplaced themselves.
        stays = container.promised_cpus and _misalignment(container, container.promised_cpus, topology)[0]
        promised = node_list(promised_nodes(container, topology))
        evidence = {"nodes": node_list(nodes), **({"promised": promised} if reason == "CPUWrongNUMA" else {})}
        yield Violation(container.container, reason, "hard" if stays else _cpu_severity(container), evidence)


def _misalignment(
    container: ContainerPlacement, cpus: CPUSet, topology: Topology
) -> tuple[Literal["CPUSpansNUMA", "CPUWrongNUMA", ""], frozenset[int]]:
    """Violation by `container` on `cpus`, and the NUMA nodes that make it so."""
    here, promised = topology.numa_of(cpus), promised_nodes(container, topology)
    if container.single_numa and len(here) > 1:
        return "CPUSpansNUMA", here
    return ("CPUWrongNUMA", here - promised) if promised and here - promised else ("", frozenset())


def _cpu_severity(container: ContainerPlacement) -> Severity:
    """Kubelet writes its cpusets itself, so only a restart cures them; the others our agent writes, until it fails."""
    return "hard" if container.source == "kubelet" or container.fix_failed else "fixable"


def _memory_violations(
    container: ContainerPlacement, allowed: frozenset[int], thresholds: MemoryThresholds
) -> Iterator[Violation]:
    remote, total = remote_memory(container.memory_by_numa, allowed)
    if total and remote >= thresholds.bytes and remote / total > thresholds.ratio:
        evidence = {"remoteRatio": round(remote / total, 3), "remoteBytes": remote, "totalBytes": total}
        yield Violation(container.container, "RemoteMemory", "hard", {**evidence, "nodes": node_list(allowed)})
    spill = container.mems.ids - allowed
    if container.single_numa and spill:
        yield Violation(container.container, "MemsSpanNUMA", "exposed", {"nodes": node_list(spill)})


def remote_memory(bytes_by_node: Mapping[int, int], allowed: frozenset[int]) -> tuple[int, int]:
    """(bytes on nodes that are not allowed, all bytes)."""
    return sum(used for node, used in bytes_by_node.items() if node not in allowed), sum(bytes_by_node.values())


def pod_spans(containers: Iterable[ContainerPlacement], topology: Topology) -> Violation | None:
    """A pod promised to one NUMA node as a whole, whose containers are each alone fine but together span nodes."""
    sets = [topology.numa_of(c.cpuset) for c in containers if c.single_numa and c.scope == "pod"]
    nodes = frozenset[int]().union(*sets)
    if len(nodes) < 2 or any(len(one) > 1 for one in sets):
        return None
    return Violation(WHOLE_POD, "PodSpansNUMA", "hard", {"nodes": node_list(nodes)})


def policy_mismatch(*, policy: str, node_policy: str, cpu_manager_policy: str) -> Violation | None:
    """A pod that asks for a topology manager policy (annotation `volcano.sh/numa-topology-policy`) on a node where
    kubelet runs another one, or whose CPU manager aligns nothing. Empty words mean nothing was asked, or is known.

    `node` in the evidence is what stands in the way: the other policy, or `cpu-manager-none`.
    """
    if policy in ("", "none") or not node_policy or not cpu_manager_policy:
        return None
    if cpu_manager_policy == "static" and policy == node_policy:
        return None
    node = node_policy if cpu_manager_policy == "static" else f"cpu-manager-{cpu_manager_policy}"
    evidence = {
        "pod": policy,
        "node": node,
        "topologyManagerPolicy": node_policy,
        "cpuManagerPolicy": cpu_manager_policy,
    }
    return Violation(WHOLE_POD, "PolicyMismatch", "hard", evidence)


def reserved_use(
    container: ContainerPlacement, *, owner: str, reserved: CPUSet, strict: bool = True
) -> Violation | None:
    """A container on CPUs kept for something else.

    An exclusive container stays there until it moves. A shared one follows its pool, so the agent cures it; where the
    owner does not keep shared containers off (`strict` false: kubelet without strict-cpu-reservation) it is no
    violation at all. Crane's agent takes reserved CPUs out of any container that asks for it.
    """
    overlap = container.cpuset & reserved
    if not overlap or not (container.exclusive or strict):
        return None
    stays = container.exclusive and owner != "crane"
    severity: Severity = "hard" if stays or container.fix_failed else "fixable"
    evidence = {"owner": owner, "cpus": str(overlap), "reserved": str(reserved)}
    return Violation(container.container, "UsesReservedCPU", severity, evidence)


def node_list(nodes: Iterable[int]) -> str:
    """NUMA node ids as people read them: `0-1,4`."""
    return str(CPUSet(nodes))
