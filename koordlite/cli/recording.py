"""The flight record of `koordlite run`: every round goes into the folder, and a folder that fails stops nothing."""

from __future__ import annotations

import contextlib
import logging
import pathlib
from collections.abc import Callable, Iterator

import msgspec

from koordlite import __version__
from koordlite.agent import Agent
from koordlite.cli.machine import Machine
from koordlite.config import Settings
from koordlite.host.files import RealFiles
from koordlite.model.errors import KoordliteError
from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head
from koordlite.record.store import Recorder
from koordlite.report.history import DecisionEvent
from koordlite.report.tick import Tick

LOG = logging.getLogger(__name__)
MIB = 1 << 20
Listener = Callable[[Tick, tuple[DecisionEvent, ...]], None]


class Recording(msgspec.Struct, frozen=True):
    """A flight record in the making."""

    listen: Listener
    folder: pathlib.Path | None
    """None when there is no record."""


@contextlib.contextmanager
def recorded(agent: Agent, machine: Machine, settings: Settings, *, named: str | None) -> Iterator[Recording]:
    """Listens to ticks and keeps what they judged. `named` is a folder given for this run: it is required then.

    A captured machine is recorded only where a folder was named, an emulated one also while it can be asked over HTTP.
    """
    recorder = _open(machine, settings, named)
    if recorder is None:
        yield Recording(lambda tick, news: None, None)
        return
    keep = keeper(recorder)

    def listen(tick: Tick, news: tuple[DecisionEvent, ...]) -> None:
        if agent.last_round is not None:
            keep(agent.last_round)

    try:
        yield Recording(listen, pathlib.Path(named or settings.record.folder))
    finally:
        recorder.close()


def keeper(recorder: Recorder) -> Callable[[RoundRecord], None]:
    """Adds moments; why one could not be kept is logged when it comes up, not each tick it lasts."""
    logged = ""

    def keep(moment: RoundRecord) -> None:
        nonlocal logged
        try:
            recorder.add(moment)
            logged = ""
        except OSError as error:
            if str(error) != logged:
                LOG.error("the flight record has a gap: %s", error)
            logged = str(error)

    return keep


def head(machine: Machine, settings: Settings) -> Head:
    """Headers of the pieces."""
    return Head(koordlite=__version__, node=settings.agent.node, machine=machine.name)


def _open(machine: Machine, settings: Settings, named: str | None) -> Recorder | None:
    wanted = settings.record
    worthwhile = isinstance(machine.host.files, RealFiles) or (machine.sandbox is not None and settings.http.enable)
    if not named and (wanted.mode == "off" or not worthwhile):
        return None
    folder = pathlib.Path(named or wanted.folder)
    try:
        return Recorder(folder, head(machine, settings), max_bytes=wanted.max_mib * MIB)
    except (OSError, KoordliteError) as error:
        if named or wanted.mode == "required":
            raise
        LOG.warning("there is no flight record: %s", error)
        return None
