"""An answer is given again only while everything it was worked out of is the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import slices
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite import changes, strategies
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import Answers, Strategy, cpu_suppress
from koordlite.strategies.cpu_suppress import SuppressMemory
from koordlite.strategies.shared import placements

CONFIG, SOME_CPUS = cpu_suppress.Config(), CPUSet.parse("0-3")
RESTS: dict[str, tuple[object, ...]] = {"_set_changes": (CONFIG, SOME_CPUS), "_present_cpus": (CONFIG,)}
DERIVED = [
    (part, RESTS.get(part.__name__, ()))
    for module in (cpu_suppress, placements)
    for part in vars(module).values()
    if getattr(part, "__module__", "") == module.__name__ and hasattr(part, "__wrapped__")
]
"""Parts of answers that are kept, and their arguments besides the picture."""


class Counted:
    """A strategy that counts how often it is asked, and looks at some parts of the picture."""

    def __init__(self, *parts: str) -> None:
        self.parts, self.times = parts, 0

    def decide(self, seen: Snapshot, config: StrategySettings) -> Iterator[Decision]:
        self.times += 1
        told = ", ".join(str(getattr(seen, part)) for part in self.parts)
        yield Decision("node", "hold", "NoNode", {"told": told, "mode": config.mode})

    @property
    def strategy(self) -> Strategy:
        return Strategy(
            module="counted", name="counted", doc="", config=StrategySettings, decide=self.decide, evicts=False
        )


def told(answers: Answers, counted: Counted, seen: Snapshot, mode: str = "observe") -> str:
    section: Any = {"counted": StrategySettings(mode=mode)}  # type: ignore[arg-type]
    (decision,) = answers.of(counted.strategy, seen, section)
    assert decision.strategy == "counted"
    return str(decision.evidence["told"])


def test_the_answer_stands_while_nothing_changes(build: Any) -> None:
    seen, counted, answers = build.snapshot(), Counted("layout", "notes"), Answers()
    assert told(answers, counted, seen) == told(answers, counted, dataclasses.replace(seen, time=seen.time + 1))
    assert counted.times == 1


@pytest.mark.parametrize("part", ["taken_at", "time"])
def test_a_part_that_was_looked_at_and_changed_asks_anew(build: Any, part: str) -> None:
    seen, counted, answers = build.snapshot(), Counted("layout", part), Answers()
    value = "later" if part == "taken_at" else 1234.5
    assert told(answers, counted, seen) != told(answers, counted, dataclasses.replace(seen, **{part: value}))
    assert counted.times == 2


def test_a_part_that_matters_only_in_some_case_is_watched_from_then_on(build: Any) -> None:
    """The second answer looked at more than the first: it holds only while that is the same as well."""
    seen, answers = build.snapshot(), Answers()
    counted = Counted("layout")
    told(answers, counted, seen)
    counted.parts = ("layout", "taken_at")
    other = dataclasses.replace(seen, layout=msgspec.structs.replace(seen.layout, kubepods="other"), taken_at="a")
    assert told(answers, counted, other).endswith("a")
    assert told(answers, counted, dataclasses.replace(other, taken_at="b")).endswith("b")


def test_other_settings_ask_anew(build: Any) -> None:
    seen, counted, answers = build.snapshot(), Counted("layout"), Answers()
    told(answers, counted, seen)
    told(answers, counted, seen, mode="enforce")
    assert counted.times == 2


def test_a_rule_that_fails_is_asked_again(build: Any) -> None:
    def fails(seen: Snapshot, config: StrategySettings) -> Iterator[Decision]:
        raise ValueError(seen.layout.kubepods)

    answers, strategy = (
        Answers(),
        Strategy(module="counted", name="counted", doc="", config=StrategySettings, decide=fails, evicts=False),
    )
    for _ in range(2):
        with pytest.raises(ValueError, match="kubepods"):
            answers.of(strategy, build.snapshot(), {})


@given(st.data())
@settings(max_examples=slices.amount(40, 15), deadline=None)
def test_kept_answers_are_those_that_would_be_given(build: Any, data: st.DataObject) -> None:
    """For every strategy there is, whatever part of the picture changes, in whatever order."""
    pods = (build.pod("a", "LS"), build.pod("b", "BE", "BestEffort"))
    choices: dict[str, list[Any]] = {
        "time": [1.0, 2.0],
        "pods": [(), pods, pods[:1]],
        "places": [{}, {"b": build.place("kubepods/besteffort/podb")}],
        "usage": [build.used(None), build.used(2000, a=1000), build.used(7000, a=6000)],
        "cgroups": [build.best_effort(), build.best_effort("0-3"), build.best_effort("0-7", 100_000)],
        "slo": [build.suppression(), build.suppression(False), build.suppression(cpu_suppress_policy="cfsQuota")],
        "ours": [frozenset(), frozenset({changes.parse("kubepods/besteffort/cpu.quota")})],
        "remembered": [{}, {"cpuSuppress": SuppressMemory(followed_milli=3000)}],
    }
    answers, seen = Answers(), build.snapshot()
    assert DERIVED, "what is derived is recognized by its wrapper"
    for _ in range(8):
        part = data.draw(st.sampled_from(sorted(choices)))
        seen = dataclasses.replace(seen, **{part: data.draw(st.sampled_from(choices[part]))})
        for strategy in strategies.discover():
            assert answers.of(strategy, seen, {}) == strategies.judge(strategy, seen, {}), strategy.name
        for kept, rest in DERIVED:
            assert kept(seen, *rest) == kept.__wrapped__(seen, *rest), kept.__name__
