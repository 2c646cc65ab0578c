"""docs/simulate.md names everything a scenario may hold, and its example works."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from koordlite.lab.cluster import scenario
from koordlite.lab.simulation import reading, runner
from koordlite.model.reading import strict

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([A-Za-z-]+(?:\.yaml)?)`", PAGE))


def test_the_example_comes_out_as_expected() -> None:
    example = re.search(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert example
    run = runner.play(reading.parse(example[1], "example.yaml"))
    assert run.checks
    assert [check for check in run.checks if not check.ok] == []


@pytest.mark.parametrize(
    "shape", [scenario.Scenario, scenario.Pod, scenario.Node, scenario.Event, scenario.Expectation]
)
def test_every_field_is_named(shape: type) -> None:
    assert dataclasses.is_dataclass(shape)
    assert set(strict.fields(shape)) <= WORDS


def test_every_measure_is_named() -> None:
    hint = typing.get_type_hints(scenario.Expectation)["measure"]
    assert set(typing.get_args(hint)) <= WORDS


def test_every_scenario_that_ships_is_named() -> None:
    assert {path.name for path in (ROOT / "configs" / "scenarios").glob("*.yaml")} <= WORDS
