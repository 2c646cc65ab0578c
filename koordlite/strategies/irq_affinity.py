"""Keep interrupts of devices off the CPUs that pods have alone.

A pod with CPUs of its own (LSE and LSR by Koordinator, kubelet's static policy, a DRA driver, Crane) still loses them
for the time that the kernel handles interrupts there. The CPUs of each interrupt are those that were found, less the
exclusive ones; what cannot be moved stays, and is named. The rule is ours.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.changes.system import INTERRUPT, IRQChange
from koordlite.formulas.cpu import irq as formula
from koordlite.model import cpuset, keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.irqs import DEFAULT
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Memory, Mode, StrategySettings
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot, recalled

NAME = "irqAffinity"
NEW_CONTAINERS = "none"
RETRY_SECONDS = 600.0
"""Time until an interrupt whose move the kernel refused is tried again: vectors of a CPU may have become free."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `irqAffinity`."""

    mode: Mode = "off"
    """off: not judged at all. observe: judged and reported, nothing is written. enforce: judged, reported, written."""
    keep: str = ""
    """Devices whose interrupts stay where they are, as patterns with blanks between them (`*mlx5* *nvme*`): by chip
    and name as in /proc/interrupts."""
    default_mask: bool = True
    """Keep interrupts that are set up later off exclusive CPUs as well (`default_smp_affinity`)."""


class Refusal(msgspec.Struct, frozen=True):
    """A move that the kernel refused."""

    device: str
    why: str
    at: float
    """Time of the refusal, by `Snapshot.time`."""


class IRQMemory(Memory, frozen=True):
    """State that one round leaves for the next."""

    refused: Mapping[str, Refusal] = msgspec.field(default_factory=dict)
    """Refusals by number of the interrupt."""


def reads(_slo: SLO, _pods: Sequence[Pod]) -> tuple[str, ...]:
    """The interrupts."""
    return ("irqs",)


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about the node, and about each interrupt that is moved, cannot be, or goes back."""
    if not snapshot.irqs:
        yield Decision("node", "skip", "NoIRQFiles")
        return
    exclusive = _exclusive(snapshot) & snapshot.topology.cpuset
    before, refused = recalled(snapshot, NAME, IRQMemory).refused, dict[str, Refusal]()
    for number, irq in snapshot.irqs.items():
        # The move was refused not long ago, or a moment ago.
        refusal, why = before.get(number), snapshot.refused_writes.get(INTERRUPT.place(number))
        if refusal and refusal.device == irq.device and snapshot.time - refusal.at < RETRY_SECONDS:
            refused[number] = refusal
        elif why:
            refused[number] = Refusal(irq.device, why, snapshot.time)
    decisions = [
        decision
        for number in snapshot.irqs
        for decision in _irq(snapshot, config, number, exclusive=exclusive, refusal=refused.get(number))
    ]
    on_exclusive = sum(irq.rate(exclusive) for irq in snapshot.irqs.values())
    evidence: dict[str, int | float | str] = {"irqs": len(snapshot.irqs), "per_second": round(on_exclusive, 1)}
    if exclusive:
        evidence["cpuset"] = str(exclusive)
    reason = "IRQsKeptOff" if exclusive else "NoExclusiveCPUs"
    yield Decision("node", "hold", reason, evidence, remember=IRQMemory(refused))
    yield from decisions


def _exclusive(snapshot: Snapshot) -> CPUSet:
    """CPUs that pods have alone, but for pods that want their interrupts there."""
    wanting = {pod.uid for pod in snapshot.pods if pod.annotations.get(keys.KEEP_IRQS) == "true"}
    pinned = (
        pod.resource_status.cpuset
        for pod in snapshot.pods
        if pod.active and pod.raw_qos in (QoSClass.LSE, QoSClass.LSR) and pod.uid not in wanting
    )
    by_kubelet = (each.cpus for each in snapshot.kubelet.pod_cpus if each.uid not in wanting)
    own = cpuset.union(pod.resource_status.cpuset for pod in snapshot.pods if pod.uid in wanting)
    return cpuset.union([*pinned, *by_kubelet, snapshot.crane.owned - own])


def _irq(
    snapshot: Snapshot, config: Config, number: str, *, exclusive: CPUSet, refusal: Refusal | None
) -> Iterator[Decision]:
    irq = snapshot.irqs[number]
    before = snapshot.found.get(INTERRUPT.place(number))
    original, is_ours = irq.cpus, False
    if before is not None and before.strategy == NAME and isinstance(before.value, CPUSet):
        original, is_ours = before.value, True
    target = original
    stays = any(fnmatch.fnmatchcase(irq.device, pattern) for pattern in config.keep.split())
    if config.default_mask if number == DEFAULT else not stays:
        near = cpuset.union(node.cpus for node in snapshot.topology.nodes if node.cpus & original)
        target = formula.target(original, exclusive=exclusive, near=near, online=snapshot.topology.cpuset)
    subject = f"irq/{number}"
    evidence: dict[str, int | float | str] = {"device": irq.device, "found": str(original), "cpuset": str(target)}
    numbers = {**evidence, "per_second": round(irq.rate(exclusive), 1)}
    if target == original:
        if is_ours:
            change = IRQChange(number, irq.device, original, gives_back=True)
            yield Decision(subject, "release", "IRQGivenBack", evidence, (change,))
    elif refusal:
        yield Decision(subject, "skip", "IRQNotMovable", {**numbers, "why": refusal.why})
    elif is_ours or irq.effective & exclusive:
        # What the kernel has placed elsewhere anyhow is left alone.
        changes = () if irq.cpus == target else (IRQChange(number, irq.device, target),)
        yield Decision(subject, "set" if changes else "hold", "IRQMoved", numbers, changes)
