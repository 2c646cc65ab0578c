"""One round of the agent as the reports see it: what was there, what was decided, what was done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from koordlite.changes.published import TopologyChange
from koordlite.changes.resctrl import SchemataChange
from koordlite.model import cpuset, keys
from koordlite.model.change import Change
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.decision import Decision
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Pressure, Usage
from koordlite.model.place import Place
from koordlite.model.pod import resctrl_protocol
from koordlite.model.pod.qos import QoSClass
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot, pods_with_groups
from koordlite.model.status import AppliedStep, Faults, FileTrouble, ForeignWrite, NRIState, Pause, Reaction
from koordlite.model.topology import Topology
from koordlite.report import node_figures
from koordlite.report.node_figures import CPUCell, Figures, Overlay, OwnedUse
from koordlite.resctrl import schemata
from koordlite.resctrl.values import Resctrl

T = TypeVar("T")

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


class _PoolText(msgspec.Struct, frozen=True):
    cpuset: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tick:
    """A round, whole. What follows from it is worked out once, when a report first asks: of most rounds nobody sees the
    map of the CPUs."""

    time: float = 0.0
    """Seconds since the run started, simulated seconds in a sandbox."""
    wall: float = 0.0
    """Seconds since the epoch, for people only."""
    snapshot: Snapshot = dataclasses.field(default=UNSEEN, repr=False, compare=False)
    """Picture that was judged."""
    decisions: tuple[Decision, ...] = ()
    modes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Strategy → off, observe or enforce."""
    applied: tuple[AppliedStep, ...] = ()
    applied_before: tuple[AppliedStep, ...] = dataclasses.field(default=(), repr=False)
    """Writes since the picture of the last tick that still hold, in a round before its time."""
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
    """Answers to a runtime that asks by NRI."""
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
        """Changes that are in force: those whose place went well in its last write. The first claim of a place wins."""
        enforced = [decision for decision in self.decisions if self.modes.get(decision.strategy) == "enforce"]
        outcomes = {step.place: step.ok for step in (*self.applied_before, *self.applied)}
        claims: dict[Place, Change] = {}
        for change in (change for decision in enforced for change in decision.changes):
            claims.setdefault(change.place, change)
        return [change for place, change in claims.items() if outcomes.get(place)]

    @cached_property
    def after(self) -> Overlay:
        """The node with these changes."""
        return Overlay(self.snapshot, self.landed)

    @cached_property
    def best_effort(self) -> CPUSet | None:
        """CPUs that best-effort containers may run on; None when their group cannot be read."""
        return self.after.best_effort

    @cached_property
    def figures(self) -> Figures:
        """The numbers that are drawn over time."""
        return node_figures.figures(self.after, self.decisions, self.modes, time=self.time)

    @cached_property
    def ls_pool(self) -> str:
        """CPUs that latency-sensitive pods share."""
        return self._pool(keys.LS_SHARED_POOLS)

    @cached_property
    def be_pool(self) -> str:
        """CPUs that best-effort pods share."""
        return self._pool(keys.BE_SHARED_POOLS)

    def _pool(self, key: str) -> str:
        """The pool under annotation `key` as one CPU list for all zones: as decided in this round, else as published.

        An annotation that another writer broke gives `?`; the strategies say what is wrong with it.
        """
        changes = (change for decision in self.decisions for change in decision.changes)
        values = (each.value for each in changes if isinstance(each, TopologyChange) and each.key == key)
        text = next(values, self.snapshot.published.topology.get(key, ""))
        if not text:
            return ""
        try:
            pools = msgspec.json.decode(text, type=tuple[_PoolText, ...] | None) or ()
            return str(cpuset.union(CPUSet.parse(pool.cpuset) for pool in pools))
        except UNREADABLE:
            return "?"

    @cached_property
    def schemata(self) -> Mapping[str, str]:
        """Schemata by resctrl group, in the kernel's notation with one space between resources:
        `L3:0=f;1=f MB:0=50;1=50`."""
        groups = {
            name: {resource: dict(values) for resource, values in group.schemata.items()}
            for name, group in self.snapshot.resctrl.groups.items()
        }
        for change in self.landed:
            if isinstance(change, SchemataChange):
                groups.setdefault(change.group, {}).setdefault(change.resource, {}).update(change.values)
        return {
            name or "(root)": " ".join(schemata.line(resource, by_name[resource]) for resource in sorted(by_name))
            for name, by_name in groups.items()
        }

    @cached_property
    def cache_use(self) -> tuple[OwnedUse, ...]:
        """Cache and memory bandwidth of classes and of pods that have a group, as last measured; the root group belongs
        to no pod."""
        pods = {pod.uid: pod for pod in self.snapshot.pods}
        uses: list[OwnedUse] = []
        for group, by_cache in sorted(self.snapshot.resctrl.use.items()):
            pod = pods.get(resctrl_protocol.uid_of(group))
            for cache, use in sorted(by_cache.items()):
                if group in resctrl_protocol.CLASS_GROUPS:
                    uses.append(OwnedUse(group, cache, use))
                elif pod is not None:
                    uses.append(OwnedUse(str(pod.qos_class), cache, use, pod.namespace, pod.name))
        return tuple(uses)

    @cached_property
    def cpus(self) -> tuple[CPUCell, ...]:
        """Every CPU with its owner, in the order of ids; a reservation outranks a pin."""
        snapshot, best_effort = self.snapshot, self.best_effort or EMPTY
        pinned: list[tuple[CPUSet, QoSClass]] = [(pod.cpus, QoSClass.LSR) for pod in snapshot.kubelet.pod_cpus]
        pinned.append((snapshot.crane.owned, QoSClass.LSR))
        for pod in snapshot.pods:
            if pod.active and pod.raw_qos in (QoSClass.LSR, QoSClass.LSE):
                pinned.append((pod.resource_status.cpuset, pod.raw_qos))
        owners = {cpu: owner.value for cpus, owner in pinned for cpu in cpus}
        owners |= dict.fromkeys(snapshot.system_qos.exclusive_cpus, "system")
        owners |= dict.fromkeys(snapshot.reserved.cpus, "reserved")
        return tuple(
            CPUCell(cpu.id, cpu.node, owners.get(cpu.id, "LS"), cpu.id in best_effort) for cpu in snapshot.topology.cpus
        )

    @cached_property
    def pressure(self) -> Mapping[str, Mapping[str, Pressure]]:
        """Pressure by subject (`node`, `besteffort`, `pod/NAMESPACE/NAME`), then `cpu`, `memory`, `io`."""
        return self._by_subject(self.snapshot.pressure)

    @cached_property
    def numa_memory(self) -> Mapping[str, Mapping[int, int]]:
        """Bytes in use by subject and NUMA node."""
        return self._by_subject(self.snapshot.numa_memory)

    def _by_subject(self, by_group: Mapping[str, T]) -> dict[str, T]:
        """Rename groups (empty: the machine) to the words in which decisions name their subjects."""
        snapshot = self.snapshot
        subjects = {"": "node", snapshot.layout.besteffort: "besteffort"}
        if not by_group.keys() <= subjects.keys():
            subjects |= {place.group: f"pod/{pod.key}" for pod, place in pods_with_groups(snapshot)}
        return {subjects[group]: value for group, value in by_group.items() if group in subjects}
