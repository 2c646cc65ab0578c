"""Commands that act on a running agent: whom they act on, its confirmation, `koordlite pause` and `resume`, and the
restore of an emulated node."""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from koordlite import commandline, config
from koordlite.cli import asking
from koordlite.cli.options import SANDBOX_FOLDER
from koordlite.host import pause_file
from koordlite.host.journal import file, journal, lock
from koordlite.host.journal.journal import Entry
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem
from koordlite.model.status import PAUSE_ANNOTATION, Pause
from koordlite.report import units

LONGEST_PAUSE_SECONDS = 30 * 24 * 3600.0
"""A forgotten pause ends by itself."""
PAUSE_SECONDS = 600.0
"""The agent would write again in its next tick: it is paused meanwhile."""
PATIENCE_SECONDS = 30.0
CONFIRMATION_SECONDS = 10.0
"""Time that a command waits for the agent to read what it asked for: several ticks."""
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

    def show(self, output: str = "text") -> None:
        """Print it, before anything is done; beside a document for programs on standard error."""
        machine = f"{self.machine}, an emulated node" if self.is_emulated else self.machine
        node = f"; node {self.node}" if self.node else ""
        agent = "no agent that writes" if self.pid is None else f"agent: process {self.pid}"
        line = printable.one_line(f"{machine}{node}; {agent}; state: {self.folder}")
        print(printable.lines(line), file=sys.stderr if output == "json" else sys.stdout, flush=True)


def target(args: argparse.Namespace, folder: Path, *, own_values: bool = False) -> Target:
    """The agent that a command acts on: the one of `folder`, or of the emulated node beside it where no option names
    anything.

    InputError when both could be meant: an agent has this machine's `folder`, or its journal has values (`own_values`).
    """
    named = any(getattr(args, name, None) for name in ("state_dir", "config", "cluster", "kubeconfig"))
    emulated = None if named else asking.emulated_node()
    pid = lock.holder(folder)
    if emulated is None:
        answering = asking.folders() if pid is not None else None
        node = answering.node if answering and Path(answering.state) == folder.absolute() else ""
        is_emulated = folder.name.startswith(SANDBOX_FOLDER) or journal.is_emulated(folder)
        machine = answering.machine if answering and node and is_emulated else f"this machine ({socket.gethostname()})"
        return Target(folder, machine, node, is_emulated, pid)
    if pid is not None or own_values:
        own = f"process {pid}" if pid is not None else "values in force"
        why = f"two could be meant: this machine ({own}, {folder}), and {emulated.machine} ({emulated.state})"
        raise InputError(Problem("command line", "--state-dir", "none", why, "name the one with --state-dir DIR"))
    state = Path(emulated.state)
    return Target(state, emulated.machine, emulated.node, True, lock.holder(state))


def pause(args: argparse.Namespace) -> int:
    """Ask for a pause, and wait until the agent has heard it; an earlier one is replaced. 1 when there is no agent to
    pause, unless one is to begin paused, or when it has not heard in time."""
    if not 1 <= args.duration <= LONGEST_PAUSE_SECONDS:
        do = "write a time like 45m, 2h or 1h30m, at most 720h"
        raise InputError(Problem("command line", "DURATION", f"{args.duration:g} s", "too short or too long", do))
    because = args.because.strip()
    if not because:
        do = "say for whom it is, or what has to be waited for"
        raise InputError(Problem("command line", "--because", args.because, "it says nothing", do))
    request, agent = Pause(until=time.time() + args.duration, because=because, release=args.release), _by_options(args)
    if agent.pid is None and not args.before_start:
        print(printable.lines(f"not paused: no agent that writes holds {agent.folder}"), file=sys.stderr)
        print("name its --state-dir; or add --before-start to pause the agent that starts next", file=sys.stderr)
        return 1
    agent.show()
    try:
        pause_file.write(agent.folder, request)
    except OSError as error:
        raise _refused(agent.folder, error) from error
    if not _confirmed(agent, request):
        return 1
    in_force = "gives back what is in force" if args.release else "leaves what is in force unchanged"
    until = f"paused until {units.moment(request.until)}"
    print(printable.lines(f"{until}: the agent decides and reports, writes nothing, and {in_force}"))
    if agent.pid is None:
        print(printable.lines(f"no agent holds {agent.folder} now; one that starts before then begins paused"))
    return 0


def resume(args: argparse.Namespace) -> int:
    """End the pause, and wait until the agent has heard it. 1 when there was none, or it has not heard in time."""
    agent = _by_options(args)
    agent.show()
    try:
        ended = pause_file.remove(agent.folder)
    except OSError as error:
        raise _refused(agent.folder, error) from error
    if not ended:
        other = f"the annotation {PAUSE_ANNOTATION} of the Node pauses as well"
        print(printable.lines(f"there was no pause in {agent.folder}; {other}"))
        return 1
    if not _confirmed(agent, None):
        return 1
    print("the pause has ended")
    return 0


def _by_options(args: argparse.Namespace) -> Target:
    return target(args, Path(args.state_dir or config.named(args.config).agent.state_dir))


def _refused(folder: Path, error: OSError) -> KoordliteError:
    why = f"{folder}: {error.strerror or error}"
    return KoordliteError(f"{why}; run it as the user of the agent, or name its --state-dir")


def _confirmed(agent: Target, pause: Pause | None) -> bool:
    """Wait until the agent has read this pause, or that there is none, and say so when it did not; True without an
    agent."""
    read = pause and pause_file.encode(pause)
    if agent.pid is None or _until(lambda: pause_file.acknowledged(agent.folder) == read, CONFIRMATION_SECONDS):
        return True
    why = f"not confirmed: the agent has not read it within {CONFIRMATION_SECONDS:.0f} s"
    print(printable.lines(f"{why}; `koordlite status` shows whether it holds"), file=sys.stderr)
    return False


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
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
