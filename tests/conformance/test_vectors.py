"""The vectors in `tests/vectors`: every case passes, deviates by a named rule, or has a reason to have no adapter."""

from __future__ import annotations

import collections
import functools
from pathlib import Path

import pytest

from tests.conformance import adapters, runner
from tests.conformance.runner import NO_ADAPTER, Outcome
from tests.conformance.without_adapter import REASONS

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
def test_no_case_fails_and_none_is_passed_over_without_a_reason(name: str) -> None:
    outcomes = _outcomes(VECTORS / name)
    assert outcomes or name == "apiserver/INDEX.json", "the file holds no case that the runner knows"
    failed = [outcome for outcome in outcomes if outcome.verdict == "failed"]
    assert not failed, "\n".join(f"{each.function} {each.source}: {each.detail}" for each in failed)
    counts = collections.Counter(each.function for each in outcomes if each.verdict == NO_ADAPTER)
    assert not counts.keys() - REASONS.keys(), "write an adapter, or the reason why there is none"
    if counts.total() == len(outcomes) and outcomes:
        reasons = {REASONS[what]: [w for w in counts if REASONS[w] == REASONS[what]] for what in counts}
        pytest.skip("; ".join(f"no adapter yet for {', '.join(what)}: {why}" for why, what in reasons.items()))


def test_what_has_an_adapter_needs_no_reason() -> None:
    assert not REASONS.keys() & adapters.ADAPTERS.keys()
