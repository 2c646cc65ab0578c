"""Commands that act, beside an agent on an emulated node: they act on that one, and this machine is not touched."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from koordlite.cli import asking
from koordlite.host import pause_file
from koordlite.host.journal import file, journal, lock
from koordlite.host.journal.journal import Entry
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem
from koordlite.model.status import Pause
from koordlite.report import units

PAUSE_SECONDS = 600.0
"""The agent would write again in its next tick: it is paused meanwhile."""
PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


def target(args: argparse.Namespace, folder: Path, *, own_values: bool = False) -> asking.Folders | None:
    """The emulated node that a command without options acts on; None where it acts on this machine.

    InputError when both could be meant: an agent has this machine's `folder`, or its journal has values (`own_values`).
    """
    emulated = asking.emulated_node() if asking.names_nothing(args) else None
    if emulated is None:
        return None
    pid = lock.holder(folder)
    if pid is None and not own_values:
        return emulated
    own = f"process {pid}" if pid is not None else "values in force"
    why = f"two could be meant: this machine ({own}, {folder}), and {emulated.machine} ({emulated.state})"
    raise InputError(Problem("command line", "--state-dir", "none", why, "name the one with --state-dir DIR"))


def restore(folder: Path, machine: str, *, dry_run: bool) -> int:
    """Let the agent that holds `folder` put everything back; 1 when something stays."""
    print(printable.lines(f"{machine}, an emulated node; this machine has nothing to restore"))
    found = _entries(folder)
    if not found:
        print("nothing to restore: no file holds a value of ours")
        return 0
    if dry_run:
        for entry in found:
            print(printable.lines(f"{entry.place}"))
        print(printable.lines(f"{len(found)} places would be restored"))
        return 0
    until = time.time() + PAUSE_SECONDS
    pause_file.write(folder, Pause(until=until, because="koordlite restore", release=True))
    end = time.monotonic() + PATIENCE_SECONDS
    while (left := _entries(folder)) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    places = {entry.place for entry in left}
    for entry in found:
        print(printable.lines(f"{entry.place}: {'NOT restored' if entry.place in places else 'restored'}"))
    print(printable.lines(f"{len(found) - len(places)} of {len(found)} places restored"))
    print(printable.lines(f"the agent is paused until {units.moment(until)}; `koordlite resume` lets it write again"))
    return 1 if left else 0


def _entries(folder: Path) -> tuple[Entry, ...]:
    return journal.read(folder, boot_id=file.boot_of(folder / file.NAME) or None)
