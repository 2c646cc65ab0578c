"""`koordlite restore` beside an agent on an emulated node: this machine is not touched."""

from __future__ import annotations

import time
from pathlib import Path

from koordlite.host import pause_file
from koordlite.host.journal import file, journal
from koordlite.host.journal.journal import Entry
from koordlite.model import printable
from koordlite.model.status import Pause
from koordlite.report import units

PAUSE_SECONDS = 600.0
"""The agent would write again in its next tick: it is paused meanwhile."""
PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


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
