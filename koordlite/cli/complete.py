"""`koordlite complete WORD…`: what may stand in place of the last word; completion scripts of shells ask it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator

from koordlite import cli, commandline
from koordlite.cli import asking, options
from koordlite.model import printable
from koordlite.model.errors import KoordliteError

_OF_PODS = ("pod", "numa")
"""Words that a pod's name follows."""


def complete(args: argparse.Namespace) -> int:
    """Print one proposal a line; nothing where files are meant, or nothing is known."""
    for each in commandline.proposals(cli.parser(), args.words, _values):
        print(printable.lines(each))
    return 0


def _values(action: argparse.Action, words: list[str]) -> Iterator[str]:
    """Values of an option or argument that the parser does not list itself; `words` stand before it."""
    if action.dest == "sandbox":
        yield from options.SHAPES
    elif action.dest == "pod" or (action.dest == "subject" and words[-1] in _OF_PODS):
        yield from _pods()
    elif action.dest == "subject" and words[-1] == "explain":
        yield from (re.split(r"\W", each)[0] for each in options.SUBJECTS)
        yield from _strategies()
    elif action.dest == "strategy" and action.metavar == "NAME=MODE":
        yield from (f"{name}={mode}" for name in _strategies() for mode in ("off", "observe", "enforce"))
    elif action.dest == "strategy" and action.metavar == "NAME":
        yield from _strategies()


def _pods() -> list[str]:
    """The pods of the running agent's node; none where none answers."""
    try:
        return [str(pod["name"]) for pod in json.loads(asking.get(f"{asking.default_url()}/pods"))["pods"]]
    except (KoordliteError, ValueError, KeyError, TypeError):
        return []


def _strategies() -> list[str]:
    from koordlite import strategies  # Only for those who ask about them.

    return [each.name for each in strategies.discover()]
