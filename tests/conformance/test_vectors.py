"""The vectors in `tests/vectors`: every case passes, or deviates by a named rule."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.conformance import adapters, runner
from tests.conformance.runner import NO_ADAPTER, Outcome

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = {
    "apiserver": 15,
    "descheduler": 20,
    "koord_api": 11,
    "koord_qos": 12,
    "koord_sched": 9,
    "numa": 16,
    "resctrl": 6,
}
"""How many files there are at least. Vectors that are missing must not look like vectors that pass."""


@pytest.fixture(scope="module", autouse=True)
def _adapters() -> None:
    adapters.load()


@functools.cache
def _outcomes(path: Path) -> list[Outcome]:
    return runner.run(path)


@pytest.mark.parametrize("folder", FILES)
def test_the_vectors_are_there(folder: str) -> None:
    assert len(list((VECTORS / folder).glob("*.json"))) >= FILES[folder]


@pytest.mark.parametrize("name", sorted(str(path.relative_to(VECTORS)) for path in VECTORS.rglob("*.json")))
def test_no_case_fails_and_none_is_passed_over(name: str) -> None:
    outcomes = _outcomes(VECTORS / name)
    assert outcomes or name == "apiserver/INDEX.json", "the file holds no case that the runner knows"
    failed = [outcome for outcome in outcomes if outcome.verdict == "failed"]
    assert not failed, "\n".join(f"{each.function} {each.source}: {each.detail}" for each in failed)
    missing = {each.function for each in outcomes if each.verdict == NO_ADAPTER}
    assert not missing, "write an adapter"
