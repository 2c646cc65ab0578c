"""`koordlite pause` and `koordlite resume`: stop the agent of this machine from writing for a while."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

from koordlite import config
from koordlite.cli import acting
from koordlite.cli.acting import Target
from koordlite.host import pause_file
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem
from koordlite.model.status import PAUSE_ANNOTATION, Pause
from koordlite.report import units

LONGEST_SECONDS = 30 * 24 * 3600.0
"""A forgotten pause ends by itself."""


def pause(args: argparse.Namespace) -> int:
    """Ask for a pause, and wait until the agent has heard it; an earlier one is replaced. 1 when there is no agent to
    pause, unless one is to begin paused, or when it has not heard in time."""
    if not 1 <= args.duration <= LONGEST_SECONDS:
        do = "write a time like 45m, 2h or 1h30m, at most 720h"
        raise InputError(Problem("command line", "DURATION", f"{args.duration:g} s", "too short or too long", do))
    because = args.because.strip()
    if not because:
        do = "say for whom it is, or what has to be waited for"
        raise InputError(Problem("command line", "--because", args.because, "it says nothing", do))
    request, target = Pause(until=time.time() + args.duration, because=because, release=args.release), _target(args)
    if target.pid is None and not args.before_start:
        print(printable.lines(f"not paused: no agent that writes holds {target.folder}"), file=sys.stderr)
        print("name its --state-dir; or add --before-start to pause the agent that starts next", file=sys.stderr)
        return 1
    target.show()
    try:
        pause_file.write(target.folder, request)
    except OSError as error:
        raise KoordliteError(_refused(target.folder, error)) from error
    if target.pid is not None and not acting.confirmed(target.folder, request):
        return _unconfirmed()
    in_force = "gives back what is in force" if args.release else "leaves what is in force unchanged"
    until = f"paused until {units.moment(request.until)}"
    print(printable.lines(f"{until}: the agent decides and reports, writes nothing, and {in_force}"))
    if target.pid is None:
        print(printable.lines(f"no agent holds {target.folder} now; one that starts before then begins paused"))
    return 0


def resume(args: argparse.Namespace) -> int:
    """End the pause, and wait until the agent has heard it. 1 when there was none, or it has not heard in time."""
    target = _target(args)
    target.show()
    try:
        ended = pause_file.remove(target.folder)
    except OSError as error:
        raise KoordliteError(_refused(target.folder, error)) from error
    if not ended:
        other = f"the annotation {PAUSE_ANNOTATION} of the Node pauses as well"
        print(printable.lines(f"there was no pause in {target.folder}; {other}"))
        return 1
    if target.pid is not None and not acting.confirmed(target.folder, None):
        return _unconfirmed()
    print("the pause has ended")
    return 0


def _unconfirmed() -> int:
    why = f"not confirmed: the agent has not read it within {acting.CONFIRMATION_SECONDS:.0f} s"
    print(printable.lines(f"{why}; `koordlite status` shows whether it holds"), file=sys.stderr)
    return 1


def _target(args: argparse.Namespace) -> Target:
    return acting.target(args, pathlib.Path(args.state_dir or config.named(args.config).agent.state_dir))


def _refused(folder: pathlib.Path, error: OSError) -> str:
    return f"{folder}: {error.strerror or error}; run it as the user of the agent, or name its --state-dir"
