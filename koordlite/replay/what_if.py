"""A recorded node under other settings: what the rules would have seen, had their earlier answers been carried out.

Use is as it was recorded: what work would have used that was never allowed to run is unknown. What follows from
decisions moves with them: values in cgroups, what strategies remember, batch amounts of the Node, pods that were
evicted. The rest (resctrl, disks, kernel settings) is seen as recorded. What happened to the recorded agent happens to
this one: a pause, a restart, a refusal of the very same change. So the same settings lead to the same course.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.eviction import EvictPod
from koordlite.changes.published import NodeResourceChange, ZoneResourceChange
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.memory import Memory
from koordlite.model.picture.groups import Cgroup, Original
from koordlite.model.picture.published import Published
from koordlite.model.place import Place
from koordlite.model.settings import Mode, StrategySettings
from koordlite.model.slo import config as slo_config
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.record.round_record import RoundRecord

T = TypeVar("T")


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """The changed settings."""

    settings: Mapping[str, StrategySettings] | None = None
    """Sections of strategies; None: those of the record."""
    modes: Mapping[str, Mode] = msgspec.field(default_factory=dict)
    """By strategy, over all else."""
    config: Mapping[str, str] | None = None
    """data of the ConfigMap slo-controller-config; None: what is in the record."""
    threshold: Mapping[str, object] = msgspec.field(default_factory=dict)
    """Single fields of `resource-threshold-config`, over all else."""


class Course:
    """The node as it would have gone on. Moments go in in their order."""

    def __init__(self, other: Other) -> None:
        self._other = other
        self._recorded: Snapshot | None = None
        """The picture before, as recorded."""
        self._held: dict[Place, CPUSet | int] = {}
        """Places in cgroups that hold a value of ours."""
        self._found: dict[Place, Original] = {}
        self._remembered: dict[str, Memory] = {}
        self._amounts: dict[str, int | None] = {}
        self._synced: dict[Place, float] = {}
        self._evicted: set[str] = set()
        """Pods, by uid, that this course evicted."""
        self._let_go: set[str] = set()
        """Pods, by uid, that the recorded agent evicted."""
        self._gone: set[str] = set()
        """Pods that this course evicted first: how long they would have lingered is unknown."""
        self._last: dict[Place, Change] = {}
        """What was last written of all else, by place."""
        self._slo: tuple[object, SLO] | None = None
        self._chosen: tuple[object, Mapping[str, StrategySettings]] | None = None

    def snapshot(self, moment: RoundRecord) -> RoundRecord:
        """`moment` as the rules would have seen it."""
        snapshot = moment.snapshot
        if self._recorded is None or _of_another(snapshot, self._recorded):
            self._begin(snapshot)
        self._recorded = snapshot
        self._let_go |= snapshot.evicted.keys()
        snapshot = self._without_evicted(snapshot)
        snapshot = dataclasses.replace(
            snapshot,
            slo=self._settings_of(snapshot),
            cgroups=self._cgroups(snapshot),
            found={**{p: f for p, f in snapshot.found.items() if not isinstance(f.value, CPUSet | int)}, **self._found},
            ours=(snapshot.ours - snapshot.found.keys()) | self._held.keys(),
            remembered=dict(self._remembered),
            published=self._published(snapshot.published),
            evicted={uid: at for uid, at in snapshot.evicted.items() if uid in self._evicted},
        )
        return msgspec.structs.replace(moment, snapshot=snapshot, settings=self._sections(moment.settings))

    def carried_out(self, moment: RoundRecord, decisions: Iterable[Decision]) -> list[Change]:
        """Take in what was decided on `moment` (one of `snapshot`); gives the changes that would have been made."""
        done: list[Change] = []
        refused = _refused(moment)
        self._let_go |= {change.uid for change in landed(moment) if isinstance(change, EvictPod)}
        for decision in decisions:
            if decision.remember is not None:
                self._remembered[decision.strategy] = decision.remember
            section = moment.settings.get(decision.strategy)
            if section is not None and section.mode == "enforce" and not moment.still:
                asked = (change for change in decision.changes if refused.get(change.place) != change)
                done += (c for c in asked if self._carry_out(c, decision.strategy, moment.snapshot))
        if moment.released:
            self._give_back()
            self._amounts.clear()
        return done

    def _begin(self, snapshot: Snapshot) -> None:
        """It goes on from where the record, or another agent in it, begins."""
        self._give_back()
        for place, found in snapshot.found.items():
            value = _value(snapshot, place)
            if value is not None:
                self._held[place], self._found[place] = value, found
        self._remembered = dict(snapshot.remembered)
        self._synced = dict(snapshot.published.last_sync)

    def _carry_out(self, change: Change, strategy: str, snapshot: Snapshot) -> bool:
        if isinstance(change, CgroupChange):
            self._write(change, strategy, snapshot)
        elif isinstance(change, NodeResourceChange):
            self._amounts[change.resource] = change.value
            self._synced[change.place] = snapshot.time
        elif isinstance(change, EvictPod):
            return self._evict(change)
        else:
            return self._stated(change, snapshot.time)
        return True

    def _evict(self, change: EvictPod) -> bool:
        """True the first time. A pod that is evicted on both courses lingers as recorded."""
        if change.uid in self._evicted:
            return False
        self._evicted.add(change.uid)
        if change.uid not in self._let_go:
            self._gone.add(change.uid)
        return True

    def _give_back(self) -> None:
        self._held.clear()
        self._found.clear()
        self._last.clear()

    def _stated(self, change: Change, time: float) -> bool:
        """True for a write: the picture shows these as recorded, so the same is asked for in every round."""
        if isinstance(change, ZoneResourceChange):
            self._synced[change.place] = time
        again = self._last.get(change.place) == change
        self._last[change.place] = change
        return not again

    def _write(self, change: CgroupChange, strategy: str, snapshot: Snapshot) -> None:
        before = _value(snapshot, change.place)
        if before is not None:
            self._found.setdefault(change.place, Original(before, strategy))
        self._held[change.place] = change.value
        if change.gives_back:
            self._found.pop(change.place, None)
            self._held.pop(change.place)

    def _cgroups(self, snapshot: Snapshot) -> Mapping[str, Cgroup]:
        """Take back what the recorded agent wrote, and put what this one would have written in its place."""
        values: dict[Place, CPUSet | int] = {place: found.value for place, found in snapshot.found.items()}
        values |= self._held
        cgroups = dict(snapshot.cgroups)
        for place, value in values.items():
            if place.kind is not cgroup.PLACE:
                continue
            group, field = place.parts
            if group in cgroups:
                cgroups[group] = _with(cgroups[group], field, value)
        return cgroups

    def _published(self, published: Published) -> Published:
        amounts = {**published.node_resources, **self._amounts}
        return msgspec.structs.replace(published, node_resources=amounts, last_sync=dict(self._synced))

    def _without_evicted(self, snapshot: Snapshot) -> Snapshot:
        if not self._gone:
            return snapshot
        pods = tuple(pod for pod in snapshot.pods if pod.uid not in self._gone)
        usage = msgspec.structs.replace(snapshot.usage, pods=self._staying(snapshot.usage.pods))
        return dataclasses.replace(snapshot, pods=pods, places=self._staying(snapshot.places), usage=usage)

    def _staying(self, by_uid: Mapping[str, T]) -> Mapping[str, T]:
        return {uid: each for uid, each in by_uid.items() if uid not in self._gone}

    def _sections(self, recorded: Mapping[str, StrategySettings]) -> Mapping[str, StrategySettings]:
        """The same object as long as the record's is."""
        if self._chosen is None or self._chosen[0] is not recorded:
            base, modes = self._other.settings or recorded, self._other.modes
            sections = {n: dataclasses.replace(s, mode=modes[n]) if n in modes else s for n, s in base.items()}
            self._chosen = recorded, sections
        return self._chosen[1]

    def _settings_of(self, snapshot: Snapshot) -> SLO:
        """Settings of the node by the other ConfigMap. It is read again when the node's own metadata change."""
        node, other = snapshot.node, self._other
        labels, notes = (node.labels, node.annotations) if node else ({}, {})
        base = snapshot.slo
        if other.config is not None:
            key = (labels, notes)
            if self._slo is None or self._slo[0] != key:
                self._slo = key, slo_config.effective(other.config, labels=labels, annotations=notes)
            base = self._slo[1]
        if not other.threshold:
            return base
        threshold = msgspec.structs.replace(base.threshold, **other.threshold)
        return msgspec.structs.replace(base, threshold=threshold)


def _of_another(snapshot: Snapshot, before: Snapshot) -> bool:
    """Tell whether a restarted agent took the picture `snapshot`: what the one before it knew is forgotten."""
    recalls = snapshot.remembered.keys() >= before.remembered.keys()
    synced = snapshot.published.last_sync.keys() >= before.published.last_sync.keys()
    return not (recalls and synced)


def _refused(moment: RoundRecord) -> Mapping[Place, Change]:
    """Refused writes of the recorded agent, by place."""
    places = {step.place for step in moment.applied if not step.ok}
    changes = (change for decision in moment.decisions for change in decision.changes)
    return {change.place: change for change in changes if change.place in places}


def _value(snapshot: Snapshot, place: Place) -> CPUSet | int | None:
    if place.kind is not cgroup.PLACE:
        return None
    group, field = place.parts
    found = snapshot.cgroups.get(group)
    return None if found is None else cgroup.present(found, field)


def _with(cgroup: Cgroup, field: str, value: CPUSet | int) -> Cgroup:
    """Keep the recorded effective CPUs of a set that is empty (v2: the parent's counts)."""
    if isinstance(value, CPUSet):
        return msgspec.structs.replace(cgroup, cpuset=value, effective=value or cgroup.effective)
    if field == "cpu.quota":
        return msgspec.structs.replace(cgroup, quota_us=value)
    return msgspec.structs.replace(cgroup, values={**cgroup.values, field: value})


def landed(moment: RoundRecord) -> list[Change]:
    """The changes of the recorded round that were carried out."""
    ok = {step.place for step in moment.applied if step.ok}
    return [change for decision in moment.decisions for change in decision.changes if change.place in ok]
