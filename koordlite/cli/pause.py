"""`koordlite pause` and `koordlite resume`: stop the agent of this machine from writing for a while."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

from koordlite import config
from koordlite.cli import asking, rehearsal
from koordlite.host import pause_file
from koordlite.host.journal import lock
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem
from koordlite.model.status import PAUSE_ANNOTATION, Pause
from koordlite.report import units

LONGEST_SECONDS = 30 * 24 * 3600.0
"""A forgotten pause ends by itself."""


def pause(args: argparse.Namespace) -> int:
    """Ask for a pause; an earlier one is replaced. 1 when there is no agent to pause, unless one is to begin paused."""
    seconds, because = _seconds(args.duration), args.because.strip()
    if not because:
        do = "say for whom it is, or what has to be waited for"
        raise InputError(Problem("command line", "--because", args.because, "it says nothing", do))
    wanted = Pause(until=time.time() + seconds, because=because, release=args.release)
    folder, target = _target(args)
    at_work = lock.holder(folder) is not None
    if not at_work and not args.before_start:
        print(printable.lines(f"not paused: no agent that writes holds {folder}"), file=sys.stderr)
        print("name its --state-dir; or add --before-start to pause the agent that starts next", file=sys.stderr)
        return 1
    print(printable.lines(target))
    try:
        pause_file.write(folder, wanted)
    except OSError as error:
        raise KoordliteError(_refused(folder, error)) from error
    in_force = "gives back what is in force" if args.release else "leaves what is in force unchanged"
    until = f"paused until {units.moment(wanted.until)}"
    print(printable.lines(f"{until}: the agent decides and reports, writes nothing, and {in_force}"))
    if not at_work:
        print(printable.lines(f"no agent holds {folder} now; one that starts before then begins paused"))
    return 0


def resume(args: argparse.Namespace) -> int:
    """End the pause. 1 when there was none."""
    folder, target = _target(args)
    print(printable.lines(target))
    try:
        ended = pause_file.remove(folder)
    except OSError as error:
        raise KoordliteError(_refused(folder, error)) from error
    if not ended:
        other = f"the annotation {PAUSE_ANNOTATION} of the Node pauses as well"
        print(printable.lines(f"there was no pause in {folder}; {other}"))
        return 1
    print("the pause has ended")
    return 0


def _seconds(seconds: float) -> float:
    if not 1 <= seconds <= LONGEST_SECONDS:
        do = "write a time like 45m, 2h or 1h30m, at most 720h"
        raise InputError(Problem("command line", "DURATION", f"{seconds:g} s", "too short or too long", do))
    return seconds


def _target(args: argparse.Namespace) -> tuple[pathlib.Path, str]:
    """The state folder that is meant, and a text that names its machine, process and folder."""
    folder, machine = pathlib.Path(args.state_dir or config.named(args.config).agent.state_dir), "this machine"
    if emulated := rehearsal.target(args, folder):
        folder, machine = pathlib.Path(emulated.state), f"{emulated.machine}, an emulated node"
    elif folder.name.startswith(asking.SANDBOX_FOLDER):
        machine = "an emulated node"
    pid = lock.holder(folder)
    agent = "no agent that writes" if pid is None else f"agent: process {pid}"
    return folder, f"{machine}; {agent}; state: {folder}"


def _refused(folder: pathlib.Path, error: OSError) -> str:
    return f"{folder}: {error.strerror or error}; run it as the user of the agent, or name its --state-dir"
