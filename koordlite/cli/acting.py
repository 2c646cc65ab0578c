"""Common parts of the commands that act: whom they act on, and the agent's confirmation."""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from koordlite import commandline
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
CONFIRMATION_SECONDS = 10.0
"""How long a command waits for the agent to read what it asked for: several ticks."""
_LOOK_SECONDS = 0.1


class Target(NamedTuple):
    """The agent that a command acts on, by its state folder."""

    folder: Path
    machine: str
    node: str
    """Name of its Node; empty where no agent answers that could say it."""
    is_emulated: bool
    pid: int | None
    """Process of the agent that writes; None: there is none."""

    def __str__(self) -> str:
        machine = f"{self.machine}, an emulated node" if self.is_emulated else self.machine
        node = f"; node {self.node}" if self.node else ""
        agent = "no agent that writes" if self.pid is None else f"agent: process {self.pid}"
        return printable.one_line(f"{machine}{node}; {agent}; state: {self.folder}")

    def show(self, output: str = "text") -> None:
        """Print it, before anything is done; beside a document for programs on standard error."""
        print(printable.lines(str(self)), file=sys.stderr if output == "json" else sys.stdout, flush=True)


def target(args: argparse.Namespace, folder: Path, *, own_values: bool = False) -> Target:
    """Whom a command acts on: who has `folder`, or the emulated node beside it where no option names anything.

    InputError when both could be meant: an agent has this machine's `folder`, or its journal has values (`own_values`).
    """
    emulated = asking.emulated_node() if asking.names_nothing(args) else None
    pid = lock.holder(folder)
    if emulated is None:
        answering = asking.folders() if pid is not None else None
        node = answering.node if answering and Path(answering.state) == folder.absolute() else ""
        is_emulated = folder.name.startswith(asking.SANDBOX_FOLDER) or journal.is_emulated(folder)
        machine = answering.machine if answering and node and is_emulated else f"this machine ({socket.gethostname()})"
        return Target(folder, machine, node, is_emulated, pid)
    if pid is not None or own_values:
        own = f"process {pid}" if pid is not None else "values in force"
        why = f"two could be meant: this machine ({own}, {folder}), and {emulated.machine} ({emulated.state})"
        raise InputError(Problem("command line", "--state-dir", "none", why, "name the one with --state-dir DIR"))
    state = Path(emulated.state)
    return Target(state, emulated.machine, emulated.node, True, lock.holder(state))


def confirmed(folder: Path, pause: Pause | None, *, seconds: float | None = None) -> bool:
    """Wait until the agent that holds `folder` has read this pause, or that there is none; False when it did not."""
    return _until(lambda: pause_file.acknowledged(folder) == (pause and pause_file.encode(pause)), seconds)


def _until(holds: Callable[[], bool], seconds: float | None) -> bool:
    end = time.monotonic() + (CONFIRMATION_SECONDS if seconds is None else seconds)
    while not holds():
        if time.monotonic() >= end:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def restore(target: Target, *, dry_run: bool, output: str) -> int:
    """Let the agent on an emulated node put everything back; 1 when something stays."""
    entries = _entries(target.folder)
    if dry_run or not entries:
        lines = [*(str(entry.place) for entry in entries), f"{len(entries)} places would be restored"]
        lines = lines if entries else ["nothing to restore: no file holds a value of ours"]
        places = [{"place": str(entry.place), "found": entry.describe()} for entry in entries]
        commandline.print_answer(output, "koordlite-restore-list", {"places": places}, lines)
        return 0
    until = time.time() + PAUSE_SECONDS
    pause_file.write(target.folder, Pause(until=until, because="koordlite restore", release=True))
    _until(lambda: not _entries(target.folder), PATIENCE_SECONDS)
    remaining = {entry.place for entry in _entries(target.folder)}
    steps = [{"place": str(entry.place), "ok": entry.place not in remaining} for entry in entries]
    lines = [f"{entry.place}: {'NOT restored' if entry.place in remaining else 'restored'}" for entry in entries]
    lines.append(f"{len(entries) - len(remaining)} of {len(entries)} places restored")
    lines.append(f"the agent is paused until {units.moment(until)}; `koordlite resume` lets it write again")
    document = {"steps": steps, "left": len(remaining), "pausedUntil": until}
    commandline.print_answer(output, "koordlite-restore", document, lines)
    return 1 if remaining else 0


def _entries(folder: Path) -> tuple[Entry, ...]:
    return journal.read(folder, boot_id=file.boot_of(folder / file.NAME) or None)
