"""The fuzzer's corpus and a short search in every entry (`tests.fuzz.frame`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import slices

from tests.fuzz import frame
from tests.fuzz.frame import Entry

ENTRIES = frame.entries()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is logged about an input is not what is looked for, and takes most of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_what_was_found_before_is_answered(name: str) -> None:
    findings = [(path.name, frame.play(ENTRIES[name], path.read_bytes())[2]) for path in frame.kept(ENTRIES[name])]
    assert not [(path, finding.place, finding.text) for path, finding in findings if finding]


@pytest.mark.sliced
@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_search_finds_nothing(name: str) -> None:
    seconds = slices.amount(10_000, 150) / 1000 * ENTRIES[name].weight
    found = frame.search(ENTRIES[name], seed=1, seconds=seconds)
    assert found.inputs
    assert not [(finding.place, finding.text, finding.data[:2000]) for finding in found.findings.values()]


def test_every_seed_is_good() -> None:
    for entry in ENTRIES.values():
        for seed in entry.seeds:
            outcome, _, finding = frame.play(entry, seed)
            assert finding is None, finding
            assert not outcome.startswith("refused"), (entry.name, seed[:300], outcome)


def eat(data: bytes) -> str:
    """A product with every fault that is looked for."""
    if b"evil" in data:
        raise KeyError(data)
    if b"slow" in data:
        while True:
            pass
    if b"large" in data:
        return str(len(bytearray(2**30)))
    if b"refuse" in data:
        raise ValueError
    return "good"


FAULTY = Entry(name="faulty", seeds=[b"good"], run=eat, refusals=(ValueError,))


@pytest.mark.parametrize(
    ("data", "kind"), [(b"evil", "error"), (b"slow", "slow"), (b"large", "memory"), (b"refuse", ""), (b"good", "")]
)
def test_each_kind_of_finding_is_found(data: bytes, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "LIMIT_SECONDS", 0.05)
    finding = frame.play(FAULTY, data)[2]
    assert (finding.kind if finding else "") == kind
    if finding:
        path = finding.keep(tmp_path)
        assert path.read_bytes() == data
        assert path.parent.name == "faulty"


def test_a_search_meets_what_its_inputs_lead_to() -> None:
    entry = msgspec.structs.replace(FAULTY, mutate=lambda random, seed, seeds: random.choice([b"evil", b"good"]))
    found = frame.search(entry, seed=1, inputs=50)
    assert found.inputs == 50
    assert [finding.data for finding in found.findings.values()] == [b"evil"]
