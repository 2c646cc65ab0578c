"""Property tests take the same examples in every run, so that a red run is about what was changed.

A run takes a slice of each long search, as `make test` does, unless `KOORDLITE_TESTS=all` asks for the whole.

`HYPOTHESIS_PROFILE=search`, or `--hypothesis-profile=search`, takes others each time, to look for what has not been
thought of.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import itertools
import logging
import os
import pathlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import pytest_rerunfailures
import slices
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

import koordlite.cli

# A loaded machine is slow, which says nothing about the change either.
_PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, max_examples=slices.amount(100, 10), **_PATIENT)
settings.register_profile("search", print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


TRIES = 3
"""Most tests start processes, threads and servers and wait for them, and other work on the machine can make any of them
late. A failure has to repeat itself to count, which a defect does; every repetition is in the summary. A property test
is not tried again: hypothesis itself repeats the example that failed."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Failures of a process that crashed are not counted: pytest-rerunfailures has its workers tell and ask a server at
    every test, so that another worker repeats what one died of, which no scheduler of groups does."""
    link = getattr(getattr(config, "failures_db", None), "sock", None)
    if link is not None and hasattr(config, "workerinput"):
        link.close()
        config.failures_db = pytest_rerunfailures.StatusDB()  # type: ignore[attr-defined]


class ByModule(LoadGroupScheduling):
    """Groups of tests, and else the tests of a module as far as they follow each other, go to one worker: what a module
    reads and makes is made once. To pick a test's number takes a search through all of them, so that few at a time is
    also slow. Long searches go one by one, since a module of them may take longer than all else."""

    @functools.cached_property
    def _units(self) -> dict[str, str]:
        if slices.WHOLE:
            return {}
        collection = next(iter(self.registered_collections.values()))
        runs = itertools.groupby(collection, key=lambda nodeid: nodeid.partition("::")[0])
        return {nodeid: f"{module} {number}" for number, (module, run) in enumerate(runs) for nodeid in run}

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return self._units.get(nodeid, group) if group == nodeid else group


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule | None:
    return ByModule(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """A fifth of the time would go into looking for garbage, of which there is little."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests out, and begin with those that one worker runs one after the other, of these with those that
    others wait for, and then with those that have a time limit of their own: started last, they would let the other
    workers wait."""
    if not slices.WHOLE:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items:
        if not item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.flaky(reruns=TRIES - 1))
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("alone", "kernel", "timeout")])
    # The other workers begin with a few quick ones, so that those that want to be alone need not wait for a slow one.
    after_kernel = sum(item.get_closest_marker("kernel") is not None for item in items)
    if after_kernel:
        items[after_kernel:after_kernel] = [items.pop() for _ in items[after_kernel:][:12]]


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end: garbage collection need not look through it again, and
    what a test makes is small: to look through it ten times as rarely as usual saves a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


class Room:
    """Where tests run: those with the marker `alone` without any other, in whatever worker."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._door, self._inside = (folder / "door").open("w"), (folder / "room").open("w")
        self._is_locked = False

    def enter(self, *, alone: bool) -> None:
        """Wait until the tests inside allow it. Who waits to be alone holds the door: else the others could go on
        taking turns for ever."""
        if self._is_locked:
            return
        for lock in (self._door, self._inside):
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._is_locked = alone
        if not alone:
            fcntl.flock(self._door, fcntl.LOCK_UN)

    def leave(self) -> None:
        """Let others in."""
        for lock in (self._inside, self._door):
            fcntl.flock(lock, fcntl.LOCK_UN)
        self._is_locked = False

    def close(self) -> None:
        """Let others in for good."""
        self._inside.close()
        self._door.close()


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    base = tmp_path_factory.getbasetemp()
    with contextlib.closing(Room(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)) as shared:
        yield shared


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, room: Room) -> Iterator[None]:
    """A test with the marker `alone` waits until the other workers have ended theirs; they wait for it, and for others
    of the kind that follow it."""
    is_alone = request.node.get_closest_marker("alone") is not None
    room.enter(alone=is_alone)
    yield
    items = request.session.items
    following = items[items.index(request.node) + 1 :][:1] if is_alone else []
    if not any(item.get_closest_marker("alone") for item in following):
        room.leave()


@pytest.fixture(scope="session", autouse=True)
def _one_parser() -> Iterator[None]:
    """A process makes its parser once: the thousand commands that run inside this one do not each make it anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(koordlite.cli, "parser", functools.cache(koordlite.cli.parser))
        yield


@pytest.fixture(autouse=True)
def _log_of_its_own() -> Iterator[None]:
    """A command that runs inside a test logs to that test's standard error, which is closed when the next one logs."""
    yield
    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
