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
from koordlite.model.picture.groups import Cgroup, Original
from koordlite.model.place import Place
from koordlite.model.settings import Memory, Mode, StrategySettings
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
    """Modes by strategy, over all else."""
    config: Mapping[str, str] | None = None
    """data of the ConfigMap slo-controller-config; None: what is in the record."""
    threshold: Mapping[str, object] = msgspec.field(default_factory=dict)
    """Single fields of `resource-threshold-config`, over all else."""


class Course:
    """The node as it would have gone on. Rounds go in in their order."""

    def __init__(self, other: Other) -> None:
        self._other = other
        self._recorded: Snapshot | None = None
        """The picture before, as recorded."""
        self._values: dict[Place, CPUSet | int] = {}
        """Values of ours in cgroups."""
        self._originals: dict[Place, Original] = {}
        self._memories: dict[str, Memory] = {}
        self._amounts: dict[str, int | None] = {}
        self._synced: dict[Place, float] = {}
        self._evicted: set[str] = set()
        """Pods, by uid, that this course evicted."""
        self._evicted_recorded: set[str] = set()
        """Pods, by uid, that the recorded agent evicted."""
        self._deleted: set[str] = set()
        """Pods that this course evicted first: how long they would have lingered is unknown."""
        self._last: dict[Place, Change] = {}
        """Last writes of all else, by place."""
        self._slo: tuple[object, SLO] | None = None
        self._sections_of: tuple[object, Mapping[str, StrategySettings]] | None = None

    def snapshot(self, record: RoundRecord) -> RoundRecord:
        """`record` as the rules would have seen it."""
        snapshot, before = record.snapshot, self._recorded
        # A restarted agent took the picture: what the one before it knew is forgotten.
        if before is None or not (
            snapshot.remembered.keys() >= before.remembered.keys()
            and snapshot.published.last_sync.keys() >= before.published.last_sync.keys()
        ):
            self._clear()
            for place, original in snapshot.found.items():
                value = _value(snapshot, place)
                if value is not None:
                    self._values[place], self._originals[place] = value, original
            self._memories = dict(snapshot.remembered)
            self._synced = dict(snapshot.published.last_sync)
        self._recorded = snapshot
        self._evicted_recorded |= snapshot.evicted.keys()
        originals = {p: f for p, f in snapshot.found.items() if not isinstance(f.value, CPUSet | int)}
        amounts = {**snapshot.published.node_resources, **self._amounts}
        published = msgspec.structs.replace(snapshot.published, node_resources=amounts, last_sync=dict(self._synced))
        usage, pods = snapshot.usage, snapshot.pods
        if self._deleted:
            usage = msgspec.structs.replace(usage, pods=self._staying(usage.pods))
            pods = tuple(pod for pod in pods if pod.uid not in self._deleted)
        snapshot = dataclasses.replace(
            snapshot,
            pods=pods,
            places=self._staying(snapshot.places),
            usage=usage,
            slo=self._settings_of(snapshot),
            cgroups=self._cgroups(snapshot),
            found={**originals, **self._originals},
            ours=(snapshot.ours - snapshot.found.keys()) | self._values.keys(),
            remembered=dict(self._memories),
            published=published,
            evicted={uid: at for uid, at in snapshot.evicted.items() if uid in self._evicted},
        )
        return msgspec.structs.replace(record, snapshot=snapshot, settings=self._sections(record.settings))

    def carried_out(self, record: RoundRecord, decisions: Iterable[Decision]) -> list[Change]:
        """Take in what was decided on `record` (one of `snapshot`); gives the changes that would have been made. A
        write that the recorded agent was refused is refused again."""
        done: list[Change] = []
        places = {step.place for step in record.applied if not step.ok}
        recorded = (change for decision in record.decisions for change in decision.changes)
        refused = {change.place: change for change in recorded if change.place in places}
        self._evicted_recorded |= {change.uid for change in landed(record) if isinstance(change, EvictPod)}
        for decision in decisions:
            if decision.remember is not None:
                self._memories[decision.strategy] = decision.remember
            section = record.settings.get(decision.strategy)
            if section is not None and section.mode == "enforce" and not record.still:
                changes = (change for change in decision.changes if refused.get(change.place) != change)
                done += (c for c in changes if self._carry_out(c, decision.strategy, record.snapshot))
        if record.released:
            self._clear()
            self._amounts.clear()
        return done

    def _clear(self) -> None:
        """Give back what is in force."""
        self._values.clear()
        self._originals.clear()
        self._last.clear()

    def _carry_out(self, change: Change, strategy: str, snapshot: Snapshot) -> bool:
        """True for a write. An eviction counts the first time; all else is shown as recorded by the picture, so the
        same change is asked for in every round."""
        if isinstance(change, CgroupChange):
            before = _value(snapshot, change.place)
            if before is not None:
                self._originals.setdefault(change.place, Original(before, strategy))
            self._values[change.place] = change.value
            if change.gives_back:
                self._originals.pop(change.place, None)
                self._values.pop(change.place)
            return True
        if isinstance(change, NodeResourceChange):
            self._amounts[change.resource] = change.value
            self._synced[change.place] = snapshot.time
            return True
        if isinstance(change, EvictPod):
            is_new = change.uid not in self._evicted
            self._evicted.add(change.uid)
            # A pod that is evicted on both courses lingers as recorded.
            if is_new and change.uid not in self._evicted_recorded:
                self._deleted.add(change.uid)
            return is_new
        if isinstance(change, ZoneResourceChange):
            self._synced[change.place] = snapshot.time
        is_new = self._last.get(change.place) != change
        self._last[change.place] = change
        return is_new

    def _cgroups(self, snapshot: Snapshot) -> Mapping[str, Cgroup]:
        """Take back what the recorded agent wrote, and put what this one would have written in its place."""
        values: dict[Place, CPUSet | int] = {place: original.value for place, original in snapshot.found.items()}
        cgroups = dict(snapshot.cgroups)
        for place, value in (values | self._values).items():
            if place.kind is not cgroup.PLACE:
                continue
            name, field = place.parts
            group = cgroups.get(name)
            if group is None:
                continue
            if isinstance(value, CPUSet):
                # The recorded effective CPUs of a set that is empty stay (v2: the parent's counts).
                cgroups[name] = msgspec.structs.replace(group, cpuset=value, effective=value or group.effective)
            elif field == "cpu.quota":
                cgroups[name] = msgspec.structs.replace(group, quota_us=value)
            else:
                cgroups[name] = msgspec.structs.replace(group, values={**group.values, field: value})
        return cgroups

    def _staying(self, by_uid: Mapping[str, T]) -> Mapping[str, T]:
        return {uid: each for uid, each in by_uid.items() if uid not in self._deleted} if self._deleted else by_uid

    def _sections(self, recorded: Mapping[str, StrategySettings]) -> Mapping[str, StrategySettings]:
        """The same object as long as the record's is."""
        if self._sections_of is None or self._sections_of[0] is not recorded:
            base, modes = self._other.settings or recorded, self._other.modes
            sections = {n: dataclasses.replace(s, mode=modes[n]) if n in modes else s for n, s in base.items()}
            self._sections_of = recorded, sections
        return self._sections_of[1]

    def _settings_of(self, snapshot: Snapshot) -> SLO:
        """Settings of the node by the other ConfigMap. It is read again when the node's own metadata change."""
        node, other = snapshot.node, self._other
        base = snapshot.slo
        if other.config is not None:
            key = (node.labels, node.annotations) if node else ({}, {})
            if self._slo is None or self._slo[0] != key:
                self._slo = key, slo_config.effective(other.config, labels=key[0], annotations=key[1])
            base = self._slo[1]
        if not other.threshold:
            return base
        return msgspec.structs.replace(base, threshold=msgspec.structs.replace(base.threshold, **other.threshold))


def _value(snapshot: Snapshot, place: Place) -> CPUSet | int | None:
    if place.kind is not cgroup.PLACE:
        return None
    name, field = place.parts
    group = snapshot.cgroups.get(name)
    return None if group is None else cgroup.present(group, field)


def landed(record: RoundRecord) -> list[Change]:
    """The changes of the recorded round that were carried out."""
    ok = {step.place for step in record.applied if step.ok}
    return [change for decision in record.decisions for change in decision.changes if change.place in ok]
