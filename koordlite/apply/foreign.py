"""Other writers of our files and our fields of the Node: what we wrote last, compared with what stands there, and how
long we then keep off; and troubles by place: these and refusals, counted as long as the agent runs.

The first foreign write is corrected at once; each further one within the hour doubles the time before the next
correction, so that two controllers never fight faster than that.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from koordlite.changes import cgroup
from koordlite.model import printable
from koordlite.model.change import Change, Standing
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, FileTrouble, ForeignWrite

LOG = logging.getLogger(__name__)

MAX_BACK_OFF_SECONDS = 60.0
FORGET_SECONDS = 3600.0
MAX_PLACES = 2000
"""Pods come and go: the file that was fought over longest ago is forgotten first."""
MAX_REFUSED = 500
"""The same for refusals."""
MAX_LISTED = 50


class _Fight(msgspec.Struct):
    times: int = 0
    last: float = 0.0
    not_before: float = 0.0


class ForeignWriters:
    """Remembers our last value of each place where others write too (`Change.watched`), who fought over it, and what
    was refused."""

    def __init__(self) -> None:
        self._ours: dict[type[Change], dict[Place, Change]] = {}
        self._compared_with: dict[type[Change], object] = {}
        self._fights: dict[Place, _Fight] = {}
        self._refused: dict[Place, tuple[int, str]] = {}

    def wrote(self, change: Change) -> None:
        """We wrote this value, or what the kernel makes of it."""
        if change.watched:
            self._ours.setdefault(type(change), {})[change.place] = change
            self._compared_with.pop(type(change), None)

    def forget_value(self, place: Place) -> None:
        """Forget the value we wrote: whether it was taken is not known, and what stands there may be ours."""
        for ours in self._ours.values():
            ours.pop(place, None)

    def forget(self, place: Place) -> None:
        """Forget a place that is not ours any more."""
        self.forget_value(place)
        self._fights.pop(place, None)

    def check(self, snapshot: Snapshot, *, besides: Collection[str] = ()) -> tuple[ForeignWrite, ...]:
        """Places whose value is not the one we wrote last; each is reported once. Files of the groups `besides` are
        left to `overwritten`."""
        excluded = {place for group in besides for place in cgroup.places_of(group)}
        compared = (self._compared(kind, ours, snapshot, excluded) for kind, ours in self._ours.items())
        return tuple(write for writes in compared for write in writes)

    def overwritten(self, snapshot: Snapshot, groups: Collection[str]) -> tuple[ForeignWrite, ...]:
        """Files of these groups whose value is not the one we wrote last. They are not noted as fights."""
        places = [place for group in groups for place in cgroup.places_of(group)]
        theirs = (ours[place] for ours in self._ours.values() for place in places if place in ours)
        return tuple(write for change in theirs if isinstance(write := change.compare(snapshot), ForeignWrite))

    def _compared(
        self, kind: type[Change], ours: dict[Place, Change], snapshot: Snapshot, excluded: Collection[Place]
    ) -> Iterator[ForeignWrite]:
        source = kind.source(snapshot)
        if self._compared_with.get(kind) is source:
            return
        self._compared_with[kind] = source
        for place, change in list(ours.items()):
            result = change.compare(snapshot)
            if result is Standing.OURS or (place in excluded and result is not Standing.GONE):
                continue
            del ours[place]
            if result is Standing.GONE:
                self._fights.pop(place, None)
            elif isinstance(result, ForeignWrite):
                self._note(place, snapshot.time)
                yield result

    def keep_off(self, place: Place, now: float) -> bool:
        """Tell whether a correction of this file has to wait."""
        fight = self._fights.get(place)
        return fight is not None and now < fight.not_before

    def _note(self, place: Place, now: float) -> None:
        fight = self._fights[place] = self._fights.pop(place, _Fight())
        if len(self._fights) > MAX_PLACES:
            del self._fights[next(iter(self._fights))]
        if now - fight.last > FORGET_SECONDS:
            fight.times = 0
        fight.times, fight.last = fight.times + 1, now
        # A fight that goes on for a day comes to exponents that no float holds.
        wait = 0.0 if fight.times == 1 else min(2.0 ** min(fight.times - 1, 10), MAX_BACK_OFF_SECONDS)
        fight.not_before = now + wait

    def count_refusals(self, steps: Iterable[AppliedStep]) -> None:
        """Count the refusals among `steps`."""
        for step in steps:
            if not step.ok:
                times, _ = self._refused.pop(step.place, (0, ""))
                self._refused[step.place] = times + 1, step.error
        while len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def troubles(self, now: float) -> tuple[FileTrouble, ...]:
        """The places with most refusals and foreign writes first, at most `MAX_LISTED`; with each for how long we keep
        off."""
        troubles = list[FileTrouble]()
        for place in {*self._refused, *self._fights}:
            (times, error), fight = self._refused.get(place, (0, "")), self._fights.get(place, _Fight())
            troubles.append(FileTrouble(place, times, error, fight.times, max(0.0, fight.not_before - now)))
        troubles.sort(key=lambda trouble: (-trouble.refused - trouble.foreign, trouble.place))
        return tuple(troubles[:MAX_LISTED])


def log_refused(applied: Iterable[AppliedStep], before: Mapping[Place, str]) -> Mapping[Place, str]:
    """Log refusals that are not in `before`, once for all places that share one; the refusals of now, by place."""
    refused = [step for step in applied if not step.ok]
    fresh: dict[str, list[AppliedStep]] = {}
    for step in refused:
        if before.get(step.place) != step.error:
            fresh.setdefault(step.error, []).append(step)
    for error, (first, *further) in fresh.items():
        more = f" and {len(further)} more" if further else ""
        LOG.warning("refused: %s = %s%s: %s", first.place, printable.shortened(first.value), more, error)
    return {step.place: step.error for step in refused}
