"""The fuzzer's corpus and a short search in every entry (`tests.fuzz.frame`)."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver
from pathlib import Path

import msgspec
import pytest
import slices

from tests.fuzz import frame
from tests.fuzz.frame import Entry

ENTRIES = frame.entries()

# One worker has the server of processes: each would have to load all entries into one of its own.
pytestmark = pytest.mark.xdist_group("fuzz")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is logged about an input is not what is looked for, and takes most of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    """A process of its own for each call: an input's processor time and memory are measured of the whole process, and
    threads of other tests would have a part in them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with pytest.MonkeyPatch.context() as patch:
        # Before Python 3.13 the server looks for what it is to load in the default path alone.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        # They end without removing the folders of their entries.
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("fuzz")))
        forkserver.ensure_running()
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        yield pool


def replay(name: str) -> list[tuple[str, str, str]]:
    """Play the corpus of an entry: file, place and text of each finding."""
    logging.disable(logging.CRITICAL)
    findings = [(path.name, frame.play(ENTRIES[name], path.read_bytes())[2]) for path in frame.kept(ENTRIES[name])]
    return [(path, finding.place, finding.text) for path, finding in findings if finding]


def search(name: str, seconds: float) -> frame.Search:
    """Search in an entry."""
    logging.disable(logging.CRITICAL)
    return frame.search(ENTRIES[name], seed=1, seconds=seconds)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_what_was_found_before_is_answered(name: str, processes: ProcessPoolExecutor) -> None:
    assert not processes.submit(replay, name).result()


@pytest.mark.sliced
@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_search_finds_nothing(name: str, processes: ProcessPoolExecutor) -> None:
    seconds = slices.amount(10_000, 80) / 1000 * ENTRIES[name].weight
    result = processes.submit(search, name, seconds).result()
    assert result.inputs
    assert not [(finding.place, finding.text, finding.data[:2000]) for finding in result.findings.values()]


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
    monkeypatch.setattr(frame, "LIMIT_SECONDS", 0.5)
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
