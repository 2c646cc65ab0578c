"""One rule a file: `Config` and `decide(seen, config) -> decisions`. A file in this folder is a strategy: no list."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping

from koordlite.model.decision import Decision
from koordlite.model.settings import StrategySettings
from koordlite.model.slo import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.model.strict import camel

Decide = Callable[[Snapshot, StrategySettings], Iterable[Decision]]


def _nothing(_slo: SLO) -> tuple[()]:
    return ()


@dataclasses.dataclass(frozen=True, slots=True)
class Strategy:
    """A rule found in this folder. Its name in camelCase is its configuration section, metric label and CLI word."""

    name: str
    module: str
    config: type[StrategySettings]
    decide: Decide
    doc: str
    reads: Callable[[SLO], Iterable[str]] = _nothing
    """Optional in a module: which values besides set and quota it wants to see in `Cgroup.values`, or `cpu.stat`,
    `oom_score_adj`, or `system/NAME`."""
    windows: Callable[[SLO], Iterable[int]] = _nothing
    """Optional in a module: over how many seconds it wants means in `Snapshot.windows`."""


@functools.cache
def discover() -> tuple[Strategy, ...]:
    """All strategies, in the order of their file names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(_load(name) for name in names)


def judge(strategy: Strategy, seen: Snapshot, settings: Mapping[str, StrategySettings]) -> tuple[Decision, ...]:
    """The decisions of one strategy on `seen`, none when its mode is `off`."""
    config = settings.get(strategy.name) or strategy.config()
    if config.mode == "off":
        return ()
    return tuple(dataclasses.replace(d, strategy=strategy.name) for d in strategy.decide(seen, config))


def decide_all(seen: Snapshot, settings: Mapping[str, StrategySettings]) -> tuple[Decision, ...]:
    """The decisions of every strategy on the same picture. Pure: what `run`, `explain` and `simulate` share."""
    return tuple(d for strategy in discover() for d in judge(strategy, seen, settings))


def _load(name: str) -> Strategy:
    module = importlib.import_module(f"{__name__}.{name}")
    return Strategy(
        name=camel(name),
        module=name,
        config=module.Config,
        decide=module.decide,
        doc=(module.__doc__ or "").strip(),
        reads=getattr(module, "reads", _nothing),
        windows=getattr(module, "windows", _nothing),
    )
