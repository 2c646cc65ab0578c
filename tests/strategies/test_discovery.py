"""A file in the folder is a strategy, and everything about it is said where it stands."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from koordlite import strategies
from koordlite.model.reading import documented, strict
from koordlite.model.settings import StrategySettings

ALL = strategies.discover()


def test_the_first_strategies_are_found() -> None:
    names = {"beAllocatable", "cpuSuppress", "cpusetPools", "reservationReport", "resctrl", "topologyReport"}
    assert names <= {strategy.name for strategy in ALL}


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)
def test_every_strategy_explains_itself_and_its_settings(strategy: strategies.Strategy) -> None:
    assert strategy.doc
    assert inspect.getdoc(strategy.config)
    assert inspect.getdoc(strategy.decide)
    assert issubclass(strategy.config, StrategySettings)
    fields = {field.name for field, _ in strict.fields(strategy.config).values()}
    assert fields == set(documented.field_docs(strategy.config))


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)
def test_no_strategy_writes_by_default(strategy: strategies.Strategy) -> None:
    assert strategy.config().mode in ("observe", "off")


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)
def test_silence_is_no_answer(build: Any, strategy: strategies.Strategy) -> None:
    for part in ({}, {"node": None}, {"usage": build.used(None)}, {"cgroups": {}}):
        decisions = strategies.judge(strategy, build.snapshot(**part), {strategy.name: strategy.config(mode="observe")})
        assert decisions
        assert all(d.strategy == strategy.name and d.reason and d.subject for d in decisions)


def test_a_strategy_that_is_off_is_not_judged(build: Any) -> None:
    settings = {strategy.name: strategy.config(mode="off") for strategy in ALL}
    assert strategies.decide_all(build.snapshot(), settings) == ()


def test_the_same_picture_gives_the_same_decisions(build: Any) -> None:
    seen = build.snapshot(usage=build.used(5000))
    assert strategies.decide_all(seen, {}) == strategies.decide_all(seen, {})


def test_judging_twice_leaves_the_picture_as_it_was(build: Any) -> None:
    seen, same = build.snapshot(), build.snapshot()
    strategies.decide_all(seen, {})
    assert seen == same


HELPERS = {"quota_off", "recorded", "culprits_of", "features", "class_settings", "reclaimable"}
"""What others ask a strategy's module besides."""


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)
def test_a_module_offers_nothing_that_the_protocol_does_not_have(strategy: strategies.Strategy) -> None:
    """A hook with a typing mistake in its name would never be asked."""
    module = importlib.import_module(f"koordlite.strategies.{strategy.module}")
    own = {
        name for name, value in inspect.getmembers(module, inspect.isfunction) if value.__module__ == module.__name__
    }
    public = {name for name in own if not name.startswith("_")}
    assert public - HELPERS <= set(strategies.Strategy.__struct_fields__)


def test_a_word_for_explain_means_one_strategy() -> None:
    words = [word for strategy in ALL for word in (*strategy.aliases, *strategy.subjects)]
    assert len(words) == len(set(words))
    assert strategies.words()["pools"] == "cpusetPools"
