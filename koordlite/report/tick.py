"""One tick of the agent as the reports see it: what was there, what was decided, what was done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY
from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.model.picture.usage import Pressure, Use
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, Faults, FileTrouble, ForeignWrite, NRIState, Pause, Reaction, WatchState
from koordlite.report import present
from koordlite.report.present import CPUCell, Figures, OwnedUse


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Figures):
    """Everything a report may say about one tick. CPU in millicores, memory in bytes; None is unknown."""

    wall: float = 0.0
    """Seconds since the epoch, for people only."""
    node: str = ""
    """Name of the node."""
    status: str = "observing"
    """One word: enforcing, observing, paused, degraded."""
    because: str = ""
    """The reason for a degraded status."""
    node_memory: int | None = None
    be_policy: str = "cpuset"
    """cpuset or cfsQuota, by which best effort is limited."""
    be_cpuset: str = ""
    ls_pool: str = ""
    be_pool: str = ""
    schemata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By resctrl group: `L3:0=f;1=f MB:0=50;1=50`."""
    cache_use: tuple[OwnedUse, ...] = ()
    """Cache and memory bandwidth of classes and pods, as last measured."""
    cpus: tuple[CPUCell, ...] = ()
    decisions: tuple[Decision, ...] = ()
    modes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Strategy → off, observe or enforce."""
    applied: tuple[AppliedStep, ...] = ()
    foreign: tuple[ForeignWrite, ...] = ()
    troubles: tuple[FileTrouble, ...] = ()
    """Places where writes were refused, or another program writes as well, since the start of the run."""
    pressure: Mapping[str, Mapping[str, Pressure]] = dataclasses.field(default_factory=dict)
    """By subject (`node`, `besteffort`, `pod/NAMESPACE/NAME`), then `cpu`, `memory`, `io`."""
    numa_memory: Mapping[str, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    """Bytes in use by subject and NUMA node."""
    node_percentiles: Mapping[int, Use] = dataclasses.field(default_factory=dict)
    """Percent → use of the node that this percentage of the samples of the averaging time does not exceed."""
    problems: tuple[Problem, ...] = ()
    slo: SLO = dataclasses.field(default_factory=SLO)
    """The settings in force, for `explain config`."""
    ages: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Seconds since each input was last confirmed."""
    watches: tuple[WatchState, ...] = ()
    """Watches that keep inputs from an API server up to date."""
    tick_seconds: float = 0.0
    """Cost of this tick."""
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
    picture: Snapshot | None = dataclasses.field(default=None, repr=False, compare=False)
    """The whole picture that the tick judged; None when there was none."""


def build(
    snapshot: Snapshot,
    decisions: Sequence[Decision],
    *,
    applied: Sequence[AppliedStep] = (),
    foreign: Sequence[ForeignWrite] = (),
    modes: Mapping[str, str],
    started: float = 0.0,
    wall: float = 0.0,
    tick_seconds: float = 0.0,
    because: str = "",
    pause: Pause | None = None,
) -> Tick:
    """The tick that `snapshot` was the picture of; `started` is the snapshot time of the first tick.

    A text in `because` says that the agent is degraded, and why.
    """
    enforced = [decision for decision in decisions if modes.get(decision.strategy) == "enforce"]
    done = present.landed(enforced, {step.place: step.ok for step in applied})
    cpus = present.best_effort_cpus(snapshot, done)
    numbers = present.figures(snapshot, decisions, done, cpus, modes, time=snapshot.time - started)
    return dataclasses.replace(
        _seen(snapshot),
        wall=wall,
        status="degraded" if because else "paused" if pause else _status(modes),
        because=because,
        **dataclasses.asdict(numbers),
        be_cpuset=str(cpus or EMPTY),
        ls_pool=present.shared_pool(snapshot, keys.LS_SHARED_POOLS, decisions),
        be_pool=present.shared_pool(snapshot, keys.BE_SHARED_POOLS, decisions),
        schemata=present.schemata_lines(snapshot, done),
        cpus=tuple(present.cpu_map(snapshot, cpus or EMPTY)),
        decisions=tuple(decisions),
        modes=dict(modes),
        applied=tuple(applied),
        foreign=tuple(foreign),
        tick_seconds=tick_seconds,
        pause=pause,
    )


def _seen(snapshot: Snapshot) -> Tick:
    """The tick as it was before anything was decided."""
    node = snapshot.usage.node
    return Tick(
        node=snapshot.node.name if snapshot.node else "",
        node_memory=node.memory if node else None,
        be_policy="cpuset" if snapshot.slo.threshold.cpu_suppress_policy == "cpuset" else "cfsQuota",
        cache_use=present.cache_uses(snapshot),
        pressure=present.by_subject(snapshot, snapshot.pressure),
        numa_memory=present.by_subject(snapshot, snapshot.numa_memory),
        node_percentiles=snapshot.node_percentiles,
        problems=snapshot.problems,
        slo=snapshot.slo,
        ages=dict(snapshot.ages),
        watches=snapshot.watches,
        picture=snapshot,
    )


def _status(modes: Mapping[str, str]) -> str:
    return "enforcing" if "enforce" in modes.values() else "observing"
