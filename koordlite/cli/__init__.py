"""The command `koordlite`. Commands import heavy parts when they need them, so --help is quick."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from koordlite import __version__, commandline
from koordlite.cli import options
from koordlite.cli.commands import COMMANDS, Command


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: it ran and the answer is no; 2: it could not run, see the message; 130: stopped."""
    commandline.replace_unprintable()
    return commandline.exit_code("koordlite", lambda: _command(parser().parse_args(argv)))


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    top = commandline.CommandParser(
        prog="koordlite",
        description="Co-location agent for Kubernetes nodes. It only observes until you tell it to enforce.",
    )
    top.add_argument("--version", action="version", version=f"koordlite {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for heading, group in COMMANDS.items():
        for command in group:
            _fill(commandline.add_command(commands, command.name, command.help, heading, command.examples), command)
    # Not listed: completion scripts ask it.
    hidden = commands.add_parser("complete")
    hidden.add_argument("words", nargs="*")
    hidden.set_defaults(place="complete:complete")
    return top


def _fill(parser: argparse.ArgumentParser, command: Command) -> None:
    parser.set_defaults(place=command.place)
    options.add(parser, command.options)
    if command.actions:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for each in command.actions:
            _fill(actions.add_parser(each.name, help=each.help), each)


def _command(args: argparse.Namespace) -> int:
    module, _, function = args.place.partition(":")
    carry_out = getattr(importlib.import_module(f"koordlite.cli.{module}"), function)
    return commandline.in_form(args, lambda: int(carry_out(args)))
