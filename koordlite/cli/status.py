"""`koordlite status`: one screen about a running agent, or about the machine that is named."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING

from koordlite import commandline
from koordlite.cli import asking
from koordlite.model import printable
from koordlite.model.errors import KoordliteError

if TYPE_CHECKING:
    from koordlite.report.tick import Tick

EXIT_CODES = {"degraded": 1, "paused": 3}
"""By status; 0 for all others. 2 is an agent that does not answer."""


def status(args: argparse.Namespace) -> int:
    """Print the answer. 0 while all is well, 1 when the agent is degraded, 3 while it is paused."""
    if asking.of_machine(args):
        from koordlite.cli import machine

        return _show(machine.tick(args), args.output)
    url = args.url or asking.default_url()
    if args.output == "json":
        found = asking.get(f"{url.rstrip('/')}/state")
        code = _code(found)
        print(printable.in_json(found), end="")
        return code
    said = asking.screen(url, width=_width(), color="standard" if commandline.colors() else "")
    print(printable.lines(said.text, colors=commandline.colors()), end="")
    return EXIT_CODES.get(said.status, 0)


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _code(found: str) -> int:
    """The exit code of a state of any version."""
    try:
        return EXIT_CODES.get(json.loads(found)["status"], 0)
    except (ValueError, KeyError, TypeError) as error:
        raise KoordliteError(f"what answers there is no agent: {error}") from error


def _show(tick: Tick, output: str) -> int:
    if output == "json":
        from koordlite.report.json.run_report import encode, state

        sys.stdout.buffer.write(encode(state(tick)))
    else:
        from koordlite.report.terminal import status as screens

        print(
            printable.lines(
                screens.screen(tick, width=_width(), color=commandline.colors()), colors=commandline.colors()
            ),
            end="",
        )
    return EXIT_CODES.get(tick.status, 0)
