"""Rules, one a file: `Config`, and `decide(snapshot, config)` for the decisions. A file here is a strategy: no list."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.model import isolation
from koordlite.model.decision import CPULimit, Decision, Evidence
from koordlite.model.errors import clipped
from koordlite.model.pod.values import Pod
from koordlite.model.reading.strict import camel
from koordlite.model.settings import EvictionSettings, StrategySettings
from koordlite.model.slo.settings import SLO, HostApplication
from koordlite.model.snapshot import NodeSnapshot, Snapshot, has_node
from koordlite.unchanged import Unchanged, WatchedSnapshot

LONGEST_EVIDENCE = 200
"""Characters of one field of the evidence about a pod."""
MOST_EVIDENCE = 50
"""Fields of the evidence about a pod."""
Decide = Callable[..., Iterable[Decision]]
"""A picture and the settings of the rule; for a rule that evicts, `evictees` as well (`judge`)."""


Asked = Callable[[SLO, Sequence[Pod]], Iterable[str]]
OfPicture = Callable[[Snapshot], Iterable[str]]


class SurgeEdge(Protocol):
    """See `Strategy.surge_edge_milli`."""

    def __call__(self, snapshot: NodeSnapshot, limit: CPULimit, *, band_percent: float) -> int | None:
        """Edge of `limit`, in force since `snapshot`; None when it cannot shrink."""
        ...


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """A rule found in this folder: the protocol of its module. A field that is a function is one of that name there,
    any other a constant in capitals; what the module does not have is as here."""

    module: str
    name: str
    """Its configuration section, metric label and CLI word: that of the module in camelCase, unless it has another."""
    doc: str
    config: type[StrategySettings]
    decide: Decide
    evicts: bool
    """True where `decide` takes a third argument, `evictees`: uids of pods that strategies before it evict."""
    needs_node: str = ""
    """Subject of the decision that says that there is no Node yet; `decide` then gets a `NodeSnapshot`."""
    without_node: Decide | None = None
    """Its answer to a picture without a Node, where that is more."""
    surge_edge_milli: SurgeEdge | None = None
    """Above which use of everything but best effort the limit it set is too high. A rule that has it is asked between
    two ticks as well, and may then only tighten its limit."""
    monitor_seconds: Callable[[StrategySettings], float] = lambda _config: 0.0
    """Time between two readings of resctrl's counters that it wants, with its settings; 0 never."""
    formerly: str = ""
    """The name it had, so that the error about an old configuration names the new one."""
    reads: Asked = lambda _slo, _pods: ()
    """Values besides set and quota that it wants to see in `Cgroup.values`, or `oom_score_adj`, or `system/NAME`, for
    these settings and pods. What it wrote is seen as long as it is in the journal."""
    pod_reads: Callable[[SLO, Sequence[Pod]], Mapping[str, Iterable[str]]] = lambda _slo, _pods: {}
    """Values as of `reads`, by uid of the only pods for which they are read, containers included."""
    throttling: Asked = lambda _slo, _pods: ()
    """Uids of the pods of which it wants use and throttling of each container."""
    windows: Callable[[SLO, Sequence[Pod]], Iterable[int]] = lambda _slo, _pods: ()
    """Lengths in seconds of the means that it needs in `Snapshot.windows`."""
    percentiles: Callable[[SLO], Iterable[tuple[int, int]]] = lambda _slo: ()
    """(Seconds, percent) it wants to find in `Snapshot.percentiles`."""
    cpu_waits: OfPicture = lambda _snapshot: ()
    """Uids of the pods of which it wants to see how long they wait for a CPU; asked of the picture without that."""
    memory_held: OfPicture = lambda _snapshot: ()
    """Groups it wants to find in `Snapshot.memory_held`; asked of the picture without it. The answer may depend on
    nothing but pods, places, cgroups and page size."""
    new_containers: Literal["all", "theirs", "none"] = "all"
    """Pods that it has to see in a round about containers that begin. `theirs`: what it decides on a pod does not
    depend on pods that have no place in the picture; `none`: it writes no file of a container, and is not asked."""
    publishes: tuple[str, ...] = ()
    """Resources and annotations of the Node that Koordinator's manager writes too."""
    aliases: tuple[str, ...] = ()
    """Words for `explain` that mean it."""
    subjects: tuple[str, ...] = ()
    """Subjects about which it alone decides: for when it is off and says nothing."""
    overview: tuple[str, str] | None = None
    """Words about its decisions on the whole node, and which `explain` says more of them."""

    def answer(
        self, snapshot: Snapshot, config: StrategySettings, evictees: frozenset[str] = frozenset()
    ) -> Iterable[Decision]:
        """Answer of the rule to `snapshot`: the one place that tells pictures with a Node from those without."""
        if not has_node(snapshot) and self.without_node:
            return self.without_node(snapshot, config)
        if not has_node(snapshot) and self.needs_node:
            return (Decision(self.needs_node, "skip", "NoNode"),)
        return self.decide(snapshot, config, evictees) if self.evicts else self.decide(snapshot, config)


@functools.cache
def discover() -> tuple[Strategy, ...]:
    """All strategies, in the order of their file names; packages hold what strategies share."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return tuple(_load(name) for name in names)


@functools.cache
def words() -> Mapping[str, str]:
    """Name of a strategy by each word for `explain` that means it."""
    return {word: strategy.name for strategy in discover() for word in strategy.aliases}


@functools.cache
def publishing(*resources: str) -> tuple[str, ...]:
    """Names of the strategies that publish one of these resources of the Node."""
    return tuple(strategy.name for strategy in discover() if {*strategy.publishes} & {*resources})


@functools.cache
def limiting() -> tuple[Strategy, ...]:
    """Strategies that limit the CPU of best effort, and so are asked between two ticks as well."""
    return tuple(strategy for strategy in discover() if strategy.surge_edge_milli)


def judge(
    strategy: Strategy,
    snapshot: Snapshot,
    settings: Mapping[str, StrategySettings],
    evictees: frozenset[str] = frozenset(),
) -> tuple[Decision, ...]:
    """The decisions of one strategy on `snapshot`, none when its mode is `off`.

    `evictees` are the uids of pods whose eviction strategies before it have decided on the same picture. A pod or host
    application about which the strategy raises an error is skipped with that error, and the others are judged without
    it. What raises without any of them is raised.
    """
    return _judge(strategy, snapshot, settings, evictees, ())[0]


Subject = Pod | HostApplication


def _judge(
    strategy: Strategy,
    snapshot: Snapshot,
    settings: Mapping[str, StrategySettings],
    evictees: frozenset[str],
    suspects: Sequence[Subject],
) -> tuple[tuple[Decision, ...], tuple[Subject, ...]]:
    """Same as `judge`, and which subjects failed. `suspects` failed the last time: each is tried alone before the
    others."""
    config = settings.get(strategy.name) or strategy.config()
    if config.mode == "off":
        return (), ()

    def answers(part: Snapshot) -> tuple[Decision, ...]:
        decisions = strategy.answer(part, config, evictees)
        return tuple(msgspec.structs.replace(d, strategy=strategy.name, evidence=_bounded(d)) for d in decisions)

    def error_of(subjects: Sequence[Subject]) -> str:
        try:
            answers(of_subjects(snapshot, subjects))
        except Exception as error:  # noqa: BLE001 - it is asked which subjects it is about
            return isolation.described(error)
        return ""

    present: tuple[Subject, ...] = (*snapshot.pods, *snapshot.slo.host_applications) if suspects else ()
    bad = [(s, why) for s in suspects if any(s is each for each in present) and (why := error_of((s,)))]
    try:
        decisions = answers(_without(snapshot, bad))
    except Exception:
        present = (*snapshot.pods, *snapshot.slo.host_applications)
        bad = isolation.culprits(present, error_of)
        if not bad:
            raise
        decisions = answers(_without(snapshot, bad))
    names = [f"pod/{s.key}" if isinstance(s, Pod) else f"host/{s.name}" for s, _ in bad]
    skipped = (
        Decision(name, "skip", "SubjectFailed", {"error": why}, strategy=strategy.name)
        for name, (_, why) in zip(names, bad, strict=True)
    )
    return (*decisions, *skipped), tuple(subject for subject, _ in bad)


def _without(snapshot: Snapshot, bad: Sequence[tuple[Subject, str]]) -> Snapshot:
    if not bad:
        return snapshot
    out = {id(subject) for subject, _ in bad}
    present: tuple[Subject, ...] = (*snapshot.pods, *snapshot.slo.host_applications)
    return of_subjects(snapshot, [subject for subject in present if id(subject) not in out])


def of_subjects(snapshot: Snapshot, subjects: Sequence[Subject]) -> Snapshot:
    """The picture with these pods and host applications only; where the others live stays in it."""
    parts = {field.name: getattr(snapshot, field.name) for field in dataclasses.fields(Snapshot)}
    pods = tuple(subject for subject in subjects if isinstance(subject, Pod))
    apps = tuple(subject for subject in subjects if isinstance(subject, HostApplication))
    slo = msgspec.structs.replace(snapshot.slo, host_applications=apps)
    return Snapshot(**{**parts, "pods": pods, "slo": slo})


def _bounded(decision: Decision) -> Evidence:
    """The evidence, with texts about a pod clipped, as its owner writes them. That about the node stays whole."""
    evidence = decision.evidence
    if decision.kind != "pod":
        return evidence
    if len(evidence) > MOST_EVIDENCE:
        evidence = dict([*list(evidence.items())[:MOST_EVIDENCE], ("more", len(evidence) - MOST_EVIDENCE)])
    if all(len(text) <= LONGEST_EVIDENCE for text in evidence.values() if isinstance(text, str)):
        return evidence
    return {name: clipped(v, LONGEST_EVIDENCE) if isinstance(v, str) else v for name, v in evidence.items()}


def failed(strategy: Strategy, error: Exception) -> Decision:
    """Decision in place of the answer of a strategy that raised `error`: the others go on."""
    why = {"error": f"{type(error).__name__}: {error}"}
    return Decision(strategy.name, "skip", "StrategyFailed", why, strategy=strategy.name)


class Answers:
    """Decisions of strategies, given again while nothing has changed that they looked at (`koordlite.unchanged`).

    A rule is pure: what it answers follows from its settings and from those parts of the picture which it looked at.
    Subjects about which a rule raised an error are remembered, so that they cost little while that stays so.
    """

    def __init__(self) -> None:
        self._unchanged = Unchanged()
        self._suspects: dict[str, tuple[Subject, ...]] = {}

    def of(
        self,
        strategy: Strategy,
        snapshot: Snapshot,
        settings: Mapping[str, StrategySettings],
        evictees: frozenset[str] = frozenset(),
    ) -> tuple[Decision, ...]:
        """Same as `judge`."""
        name, same = strategy.name, self._unchanged.same
        config = same(f"settings of {name}", settings.get(name))
        evictees = same(f"asked before {name}", evictees)

        decisions: tuple[Decision, ...] | None = self._unchanged.recall(name, snapshot, (config, evictees))
        if decisions is None:
            watched, suspects = WatchedSnapshot(snapshot), self._suspects.get(name, ())
            decisions, self._suspects[name] = _judge(strategy, watched, settings, evictees, suspects)
            self._unchanged.keep(name, watched, (config, evictees), decisions)
        return decisions


def decide_all(snapshot: Snapshot, settings: Mapping[str, StrategySettings]) -> tuple[Decision, ...]:
    """The decisions of every strategy on the same picture. Pure: what `explain` and `simulate` share with the loop."""
    decisions: tuple[Decision, ...] = ()
    for strategy in discover():
        decisions += judge(strategy, snapshot, settings, evictees_before(strategy, decisions, settings))
    return decisions


def evictees_before(
    strategy: Strategy, decisions: Iterable[Decision], settings: Mapping[str, StrategySettings]
) -> frozenset[str]:
    """Uids of the pods whose eviction enforced strategies have decided before this one; none for one that evicts no
    pod."""
    if not strategy.evicts:
        return frozenset()
    enforced = (d for d in decisions if (config := settings.get(d.strategy)) and config.mode == "enforce")
    return frozenset(c.uid for d in enforced for c in d.changes if isinstance(c, EvictPod))


def _load(name: str) -> Strategy:
    module = importlib.import_module(f"{__name__}.{name}")
    optional = {
        field: getattr(module, attribute)
        for field in Strategy.__struct_fields__
        for attribute in (field, field.upper())
        if hasattr(module, attribute) and field not in ("config", "decide")
    }
    fields = {
        "module": name,
        "name": camel(name),
        "doc": (module.__doc__ or "").strip(),
        "config": module.Config,
        "decide": module.decide,
        "evicts": issubclass(module.Config, EvictionSettings),
    }
    return Strategy(**{**fields, **optional})
