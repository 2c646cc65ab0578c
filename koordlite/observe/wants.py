"""Values that the strategies that are on want to see besides the usual, for the settings and pods of the moment."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import TypeVar

import msgspec

from koordlite.changes import cgroup, core_cookie, system
from koordlite.host.cgroups.fields import NUMBERS
from koordlite.model import isolation
from koordlite.model.picture.groups import PodGroups
from koordlite.model.place import Place
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import OfPicture, Strategy, of_subjects
from koordlite.unchanged import Unchanged, with_equal_shared

S = TypeVar("S", bound=StrategySettings)
Pods = tuple[Pod, ...]


class Wants(msgspec.Struct, frozen=True):
    """Answers of all strategies together."""

    reads: frozenset[str] = frozenset()
    """Everything named by `Strategy.reads`."""
    pod_reads: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    """Values that `Strategy.pod_reads` names, by pod uid."""
    windows: tuple[int, ...] = ()
    """Lengths of `Snapshot.windows` in seconds."""
    throttling: frozenset[str] = frozenset()
    """Uids of the pods of which each container's use and throttling are asked for."""
    percentiles: tuple[tuple[int, int], ...] = ()
    """Seconds and percent of `Snapshot.percentiles`."""
    cpu_waits: tuple[OfPicture, ...] = ()
    """Each says of which pods it wants to see how long they wait for a CPU."""
    memory_held: tuple[OfPicture, ...] = ()
    """Each says which groups it wants in `Snapshot.memory_held`."""

    @property
    def fields(self) -> frozenset[str]:
        """Cgroup files to be found in `Cgroup.values` of every group."""
        return self.reads & NUMBERS.keys()

    def fields_of(self, places: Mapping[str, PodGroups], ours: Mapping[str, Set[str]]) -> Mapping[str, frozenset[str]]:
        """Additional fields by group: those requested of its pod, and those with values of `ours` that may have to be
        given back."""
        by_group = {group: frozenset(fields & NUMBERS.keys()) for group, fields in ours.items()}
        for uid, fields in self.pod_reads.items():
            place = places.get(uid)
            for group in (place.group, *place.containers.values()) if place else ():
                by_group[group] = by_group.get(group, frozenset()) | (fields & NUMBERS.keys())
        return with_equal_shared(by_group)


LOG = logging.getLogger(__name__)

Source = Callable[[SLO, Pods], Wants]


def monitor_seconds(strategies: Iterable[Strategy], settings: Mapping[str, StrategySettings]) -> float:
    """Seconds between two looks at resctrl's counters: as often as any of these strategies wants; 0 is never."""
    intervals = (strategy.monitor_seconds(settings[strategy.name]) for strategy in strategies)
    return min((seconds for seconds in intervals if seconds > 0), default=0.0)


def active(settings: Mapping[str, StrategySettings], name: str, kind: type[S]) -> S | None:
    """The section of a strategy, which is of this kind; None while it is off."""
    section = settings.get(name)
    return section if isinstance(section, kind) and section.mode != "off" else None


def nothing(_slo: SLO, _pods: Pods) -> Wants:
    """Want nothing, for a picture that no strategy asked for."""
    return Wants()


def of(strategies: Iterable[Strategy]) -> Source:
    """Wishes of these strategies. Settings and pods seldom change, and asking again costs a walk over all annotations:
    the answer holds as long as both are the same objects."""
    rules, unchanged = tuple(strategies), Unchanged()
    return lambda slo, pods: unchanged.of("wants", (slo, pods), lambda: _all(rules, slo, pods))


def _all(rules: Sequence[Strategy], slo: SLO, pods: Pods) -> Wants:
    each = [one for strategy in rules for one in _one(strategy, slo, pods)]
    return Wants(
        reads=frozenset().union(*(one.reads for one in each)),
        pod_reads=_joined(one.pod_reads for one in each),
        windows=tuple(sorted(set().union(*(one.windows for one in each)))),
        throttling=frozenset().union(*(one.throttling for one in each)),
        cpu_waits=tuple(dict.fromkeys(strategy.cpu_waits for strategy in rules)),
        percentiles=tuple(sorted(set().union(*(one.percentiles for one in each)))),
        memory_held=tuple(dict.fromkeys(strategy.memory_held for strategy in rules)),
    )


def _joined(each: Iterable[Mapping[str, frozenset[str]]]) -> dict[str, frozenset[str]]:
    by_uid: dict[str, frozenset[str]] = {}
    for one in each:
        by_uid |= {uid: fields | by_uid.get(uid, frozenset()) for uid, fields in one.items()}
    return by_uid


def _one(strategy: Strategy, slo: SLO, pods: Pods) -> Iterable[Wants]:
    """Wishes of one strategy. A pod about which it cannot say adds nothing; the loop goes on."""

    def of(some: Pods) -> Wants:
        return Wants(
            reads=frozenset(strategy.reads(slo, some)),
            pod_reads={uid: frozenset(fields) for uid, fields in strategy.pod_reads(slo, some).items()},
            windows=tuple(strategy.windows(slo, some)),
            throttling=frozenset(strategy.throttling(slo, some)),
            percentiles=tuple(strategy.percentiles(slo)),
        )

    try:
        return (of(pods),)
    except Exception:
        LOG.exception("strategy %s cannot say what it wants to see", strategy.name)
    return isolation.each([(), *((pod,) for pod in pods)], of, lambda _some, _why: Wants())


def of_picture(snapshot: Snapshot, hooks: Iterable[OfPicture]) -> tuple[str, ...]:
    """The groups or pods that strategies ask for. A pod about which one cannot say adds none; the loop goes on."""
    names: dict[str, None] = {}
    for hook in hooks:
        try:
            names |= dict.fromkeys(hook(snapshot))
        except Exception:
            LOG.exception("%s cannot say what it wants to see of this picture", hook.__module__)
            alone = (of_subjects(snapshot, (pod,)) for pod in snapshot.pods)
            for some in isolation.each(alone, lambda one: tuple(hook(one)), lambda _one, _why: ()):  # noqa: B023
                names |= dict.fromkeys(some)
    return tuple(names)


class OwnPlaces(msgspec.Struct, frozen=True):
    """Places of the undo journal by the reader that reads them."""

    groups: frozenset[str]
    fields: Mapping[str, frozenset[str]]
    """Fields by group."""
    settings: bool
    """Settings of the kernel."""
    scores: bool
    """Places in the queue of the OOM killer."""
    cookies: bool
    """Cookies of core scheduling."""

    @classmethod
    def of(cls, places: Collection[Place]) -> OwnPlaces:
        """Sort the places of the undo journal."""
        files = [place for place in places if place.kind is cgroup.PLACE]
        by_group = itertools.groupby(sorted(files, key=_group), _group)
        return cls(
            groups=frozenset(place.part("cgroup") for place in files),
            fields=with_equal_shared(
                {group: frozenset(place.part("field") for place in theirs) for group, theirs in by_group}
            ),
            settings=any(place.kind is system.SETTING for place in places),
            scores=any(place.kind in (system.OOM_SCORE, system.OOM_SCORE_AT_CREATION) for place in places),
            cookies=any(place.kind is core_cookie.COOKIE for place in places),
        )


def _group(place: Place) -> str:
    return place.part("cgroup")
