"""One round of the agent as the reports see it: what was there, what was decided, what was done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property

from koordlite.model import keys
from koordlite.model.change import Change
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Pressure, Usage
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, Faults, FileTrouble, ForeignWrite, NRIState, Pause, Reaction
from koordlite.model.topology import Topology
from koordlite.report import present
from koordlite.report.present import CPUCell, Figures, OwnedUse
from koordlite.resctrl.values import Resctrl

UNSEEN = Snapshot(
    time=0.0,
    taken_at="",
    node=None,
    slo=SLO(),
    topology=Topology((), ()),
    reserved=ResolvedReservation(),
    system_qos=SystemQoS(),
    kubelet=Kubelet(),
    layout=Layout(2, "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort"),
    pods=(),
    places={},
    cgroups={},
    usage=Usage(None, {}, {}),
    average=Usage(None, {}, {}),
    resctrl=Resctrl(),
    published=Published({}, {}),
)
"""The picture of a round that had none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tick:
    """A round, whole. What follows from it is worked out once, when a report first asks: of most rounds nobody sees the
    map of the CPUs."""

    time: float = 0.0
    """Seconds since the run started, simulated seconds in a sandbox."""
    wall: float = 0.0
    """Seconds since the epoch, for people only."""
    snapshot: Snapshot = dataclasses.field(default=UNSEEN, repr=False, compare=False)
    """What was judged."""
    decisions: tuple[Decision, ...] = ()
    modes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Strategy → off, observe or enforce."""
    applied: tuple[AppliedStep, ...] = ()
    applied_before: tuple[AppliedStep, ...] = dataclasses.field(default=(), repr=False)
    """Of a round before its time: what was written since the picture of the last tick, and still holds."""
    foreign: tuple[ForeignWrite, ...] = ()
    troubles: tuple[FileTrouble, ...] = ()
    """Places where writes were refused, or another program writes as well, since the start of the run."""
    problems: tuple[Problem, ...] = ()
    because: str = ""
    """The reason for a degraded status."""
    tick_seconds: float = 0.0
    """Cost of this round."""
    woken: bool = False
    """A round before its time, because of a surge of latency-sensitive use."""
    reaction: Reaction = dataclasses.field(default_factory=Reaction)
    """The reaction between two ticks."""
    nri: NRIState = dataclasses.field(default_factory=NRIState)
    """What a runtime that asks by NRI was answered."""
    unrestored: int = 0
    """Places that an earlier run changed, and that this one could not put back when it started."""
    restored: int = 0
    """Places that were given back in this round what was there before: paused, or enforced no more."""
    faults: Faults = dataclasses.field(default_factory=Faults)
    """Rounds that a fault of the agent itself has ended, this one or earlier ones of this run."""
    pause: Pause | None = None
    """The pause during which nothing is written, where one was requested."""

    @cached_property
    def status(self) -> str:
        """One word: enforcing, observing, paused, degraded."""
        if self.because or self.pause:
            return "degraded" if self.because else "paused"
        return "enforcing" if "enforce" in self.modes.values() else "observing"

    @cached_property
    def node(self) -> str:
        """Name of the node."""
        return self.snapshot.node.name if self.snapshot.node else ""

    @cached_property
    def landed(self) -> Sequence[Change]:
        """Changes that are in force."""
        enforced = [decision for decision in self.decisions if self.modes.get(decision.strategy) == "enforce"]
        return present.landed(enforced, {step.place: step.ok for step in (*self.applied_before, *self.applied)})

    @cached_property
    def best_effort(self) -> CPUSet | None:
        """CPUs that best-effort containers may run on; None when their group cannot be read."""
        return present.best_effort_cpus(self.snapshot, self.landed)

    @cached_property
    def figures(self) -> Figures:
        """The numbers that are drawn over time."""
        return present.figures(self.snapshot, self.decisions, self.landed, self.best_effort, self.modes, time=self.time)

    @cached_property
    def ls_pool(self) -> str:
        """CPUs that latency-sensitive pods share."""
        return present.shared_pool(self.snapshot, keys.LS_SHARED_POOLS, self.decisions)

    @cached_property
    def be_pool(self) -> str:
        """CPUs that best-effort pods share."""
        return present.shared_pool(self.snapshot, keys.BE_SHARED_POOLS, self.decisions)

    @cached_property
    def schemata(self) -> Mapping[str, str]:
        """By resctrl group: `L3:0=f;1=f MB:0=50;1=50`."""
        return present.schemata_lines(self.snapshot, self.landed)

    @cached_property
    def cache_use(self) -> tuple[OwnedUse, ...]:
        """Cache and memory bandwidth of classes and pods, as last measured."""
        return present.cache_uses(self.snapshot)

    @cached_property
    def cpus(self) -> tuple[CPUCell, ...]:
        """Every CPU with its owner."""
        return tuple(present.cpu_map(self.snapshot, self.best_effort or EMPTY))

    @cached_property
    def pressure(self) -> Mapping[str, Mapping[str, Pressure]]:
        """By subject (`node`, `besteffort`, `pod/NAMESPACE/NAME`), then `cpu`, `memory`, `io`."""
        return present.by_subject(self.snapshot, self.snapshot.pressure)

    @cached_property
    def numa_memory(self) -> Mapping[str, Mapping[int, int]]:
        """Bytes in use by subject and NUMA node."""
        return present.by_subject(self.snapshot, self.snapshot.numa_memory)
