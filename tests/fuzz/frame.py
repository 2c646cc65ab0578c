"""The fuzzer: every entry by which something foreign comes in, and what must hold for whatever comes.

A module in `tests/fuzz/entries` adds entries by its `ENTRIES`, a sequence of `Entry`. An entry has good inputs
(`seeds`) and a function `run` that gives one input to the product as the product itself would take it, and returns what
came of it in a word or two: inputs with a new outcome are mutated further. For every input

- `run` raises nothing but `refusals`: errors that the product answers at that place,
- it ends within `LIMIT_SECONDS` of processor time, and waits for nothing much longer,
- it takes no more memory than the container of that process may have (`memory_mib`).

`run` may raise AssertionError for what must hold after any input: the other subjects are served, values are given back.

`make fuzz SECONDS=600 ENTRY=annotations` searches with another seed each time; what fails is kept in
`tests/fuzz/corpus/<entry>/`, which every test run plays again. `make test` takes a short slice with a fixed seed.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import importlib
import pkgutil
import resource
import signal
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec

from tests.fuzz import mutate
from tests.fuzz.mutate import Mutate

LIMIT_SECONDS = 2.0
CORPUS = Path(__file__).parent / "corpus"
MOST_KEPT = 400
"""Inputs with a new outcome that one search mutates further, for each entry."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One way in."""

    name: str
    seeds: Sequence[bytes]
    run: Callable[[bytes], str]
    refusals: tuple[type[Exception], ...] = ()
    mutate: Mutate = mutate.anything
    memory_mib: int = 96
    """What one input may take besides what the process has: what the smallest memory limit of the manifests leaves an
    agent."""
    weight: float = 1.0
    """Its share of the time of a search."""


class TooSlow(BaseException):
    """An input took longer than it may. No `except Exception` of the product answers it."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """An input after which something does not hold."""

    entry: str
    kind: str
    """`error`, `slow` or `memory`."""
    place: str
    """The error and the line of the product that raised it: one finding for each."""
    text: str
    data: bytes

    def keep(self, folder: Path = CORPUS) -> Path:
        """Write the input into the corpus; its path."""
        path = folder / self.entry / hashlib.sha256(self.data).hexdigest()[:16]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path


class Search(msgspec.Struct, kw_only=True):
    """What came of a search in one entry."""

    entry: str
    inputs: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    outcomes: collections.Counter[str] = msgspec.field(default_factory=collections.Counter)
    findings: dict[str, Finding] = msgspec.field(default_factory=dict)


def entries() -> Mapping[str, Entry]:
    """All entries by name."""
    package = importlib.import_module("tests.fuzz.entries")
    modules = (
        importlib.import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
    )
    return {entry.name: entry for module in modules for entry in module.ENTRIES}


def kept(entry: Entry) -> list[Path]:
    """The corpus of an entry."""
    return sorted((CORPUS / entry.name).glob("*"))


def play(entry: Entry, data: bytes) -> tuple[str, float, Finding | None]:
    """The outcome of one input, how long it took, and what does not hold after it."""
    began = time.perf_counter()
    outcome, finding = "refused", None
    try:
        with _bounded(entry):
            outcome = entry.run(data)
    except entry.refusals as error:
        outcome = f"refused: {type(error).__name__}"
    except TooSlow as error:
        finding = _finding(entry, "slow", error, data)
    except MemoryError as error:
        finding = _finding(entry, "memory", error, data)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        finding = _finding(entry, "error", error, data)
    return outcome, time.perf_counter() - began, finding


def search(entry: Entry, *, seed: int, seconds: float = 0.0, inputs: int = 0) -> Search:
    """Mutate and play for so many `seconds`, or so many `inputs`."""
    random, found = Random(f"{entry.name}/{seed}"), Search(entry=entry.name)
    pool = [*entry.seeds, *(path.read_bytes() for path in kept(entry))]
    began = time.perf_counter()
    while (found.inputs < inputs) if inputs else (time.perf_counter() - began < seconds):
        data = entry.mutate(random, random.choice(pool), entry.seeds)
        outcome, took, finding = play(entry, data)
        found.inputs += 1
        found.slowest_seconds = max(found.slowest_seconds, took)
        if finding:
            found.findings.setdefault(finding.place, finding)
        elif outcome not in found.outcomes and len(pool) < MOST_KEPT:
            pool.append(data)
        found.outcomes[outcome if len(found.outcomes) < 10 * MOST_KEPT else "another"] += 1
    found.seconds = time.perf_counter() - began
    return found


@contextlib.contextmanager
def _bounded(entry: Entry) -> Iterator[None]:
    """Whoever takes longer, or more memory, is stopped."""

    def stop(_signal: int, _frame: types.FrameType | None) -> None:
        raise TooSlow(f"more than {LIMIT_SECONDS:g} s")

    # Processor time: what else runs on the machine says nothing about the input.
    timers = ((signal.ITIMER_PROF, signal.SIGPROF, 1), (signal.ITIMER_REAL, signal.SIGALRM, 20))
    before, limits = [signal.signal(number, stop) for _, number, _ in timers], resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + entry.memory_mib * 2**20, limits[1]))
    for timer, _, times in timers:
        signal.setitimer(timer, LIMIT_SECONDS * times)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for (_, number, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _finding(entry: Entry, kind: str, error: BaseException, data: bytes) -> Finding:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/fuzz/frame.py" not in f.filename]
    ours = [f for f in frames if "/koordlite/" in f.filename or "/descheduler/" in f.filename] or frames
    at = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    text = "".join(traceback.format_exception(error))[-3000:]
    return Finding(entry=entry.name, kind=kind, place=f"{type(error).__name__} in {at}", text=text, data=data)
