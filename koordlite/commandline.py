"""Common parts of both commands: parsers that say what was meant, completion for shells, and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem, reason

REFUSED = 2
"""Exit code: the command could not run, and stderr says why."""
INTERRUPTED = 130
"""Exit code by which a shell reports a command that Ctrl-C ended."""
_PIECES = 512
SHELLS = ("bash", "zsh", "tcsh", "fish")
_CHOICE = re.compile(r"(.*)invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")
_UNKNOWN = "unrecognized arguments: "


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in which commands stand under their headings, and examples keep their lines."""

    def _format_action(self, action: argparse.Action) -> str:
        headings: dict[str, str] = getattr(action, "headings", {})
        if not headings:
            return super()._format_action(action)
        parts, last = list[str](), ""
        for each in action._get_subactions():  # type: ignore[attr-defined]
            if headings[each.dest] != last:
                last = headings[each.dest]
                parts.append(f"\n{'':{self._current_indent}}{last}:\n")
            self._indent()
            parts.append(self._format_action(each))
            self._dedent()
        return "".join(parts)


class CommandParser(argparse.ArgumentParser):
    """Errors name the command that was given, with its usage, and what may have been meant."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Help, **settings})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Same as `ArgumentParser.parse_args`, but what is left over is the error of the command, not of the whole."""
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._innermost(arguments).error(_UNKNOWN + " ".join(unknown))
        return arguments

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with 2."""
        super().error(printable.one_line(self._with_suggestion(message)))

    def _innermost(self, arguments: argparse.Namespace) -> argparse.ArgumentParser:
        """The parser of the innermost command that was given."""
        parser: argparse.ArgumentParser = self
        while (commands := subcommands(parser)) is not None:
            parser = commands.choices[getattr(arguments, commands.dest)]
        return parser

    def _with_suggestion(self, message: str) -> str:
        choice = _CHOICE.fullmatch(message)
        if choice:
            names = re.findall(r"[\w.-]+", choice[3])
            near = _near(choice[2], names)
            listed = f"choose {' or '.join(names)}" if len(names) <= 8 else f"`{self.prog} --help` lists them"
            return f"{choice[1]}there is no {choice[2]!r}; {_meant(near) or listed}"
        if message.startswith(_UNKNOWN):
            options = _OPTION.findall(self.format_help())
            wrong = [word.partition("=")[0] for word in message.removeprefix(_UNKNOWN).split() if word[:2] == "--"]
            near = [name for word in wrong for name in _near(word, options)]
            return message + (f"; {_meant(near)}" if near else "")
        return message


def add_command(
    commands: argparse._SubParsersAction[CommandParser], name: str, help: str, heading: str, examples: Sequence[str]
) -> CommandParser:
    """Add a command that is listed under `heading`; `examples` are command lines without the program."""
    program = commands._prog_prefix.split()[0]
    lines = "".join(f"  {program} {example}\n" for example in examples)
    commands.__dict__.setdefault("headings", {})[name] = heading
    return commands.add_parser(name, help=help, description=help, epilog=f"examples:\n{lines}" if lines else None)


def subcommands(parser: argparse.ArgumentParser) -> Any:
    """The action that holds the commands of `parser`, with `choices` by name; None when there are none."""
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)


def add_output(command: argparse.ArgumentParser, *, listing: bool = False) -> None:
    """The option that chooses between an answer for people and one for programs; of a listing, kubectl's `wide` (more
    columns) and `name` (one a line, as kubectl takes them) as well."""
    forms = ("text", "json", "yaml", *(("wide", "name") if listing else ()))
    command.add_argument("-o", "--output", choices=forms, default="text", help="form of standard output")


def in_form(args: argparse.Namespace, carry_out: Callable[[], int]) -> int:
    """Carry out a command; where YAML was asked for it answers in JSON, which is written as YAML."""
    if getattr(args, "output", "") != "yaml":
        return carry_out()
    import json

    import yaml  # For this form only.

    args.output = "json"
    written = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(written, encoding="utf-8", write_through=True)) as wrapper:
        code = carry_out()
        text = written.getvalue().decode()
        wrapper.detach()
    print(yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True) if text else "", end="")
    return code


def print_json(kind: str, **parts: object) -> None:
    """Print a document of this kind, as `printable.document`."""
    print(printable.document({"version": 1, "kind": kind, **parts}))


def print_answer(output: str, kind: str, document: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print an answer: for programs (`-o json`) the document of this kind, else its lines."""
    if output == "json":
        print_json(kind, **document)
    else:
        print_long(f"{line}\n" for line in lines)


def print_long(pieces: Iterable[str], *, colors: bool = False) -> None:
    """Print a report in pieces, many at a time: unbuffered, as in a container, each print is a system call. `colors`:
    see `printable.lines`."""
    stream = iter(pieces)
    while several := list(itertools.islice(stream, _PIECES)):
        print(printable.lines("".join(several), colors=colors), end="")


def show(text: str) -> None:
    """Print an answer. On a terminal its headings are bold, and what is longer than the screen goes to the pager."""
    safe = printable.lines(text)
    if colors():
        safe = re.sub(r"(?m)^(\S.*)$", "\x1b[1m\\1\x1b[0m", safe)
    command = pager() if sys.stdout.isatty() and sys.stdin.isatty() else None
    if command is None or safe.count("\n") < shutil.get_terminal_size().lines:
        print(safe, end="")
    else:
        print_paged(command, [safe])


def pager() -> list[str] | None:
    """The program that shows long answers page by page: PAGER, else less; None where there is neither or it is cat."""
    named = os.environ.get("PAGER")
    command = shlex.split("less" if named is None else named)
    if not command or command == ["cat"] or (named is None and not shutil.which("less")):
        return None
    if not shutil.which(command[0]):
        do = "name one that is installed; PAGER=cat shows everything at once"
        raise InputError(Problem("environment", "PAGER", named or "", "there is no such program", do))
    return command


def print_paged(command: Sequence[str], pieces: Iterable[str]) -> None:
    """Give a report to the pager, and wait until the reader has enough."""
    import subprocess  # For long answers on a terminal only.

    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, encoding="utf-8", env={"LESS": "FR", **os.environ}, errors="replace"
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's, which ends no more than a search.
    try:
        with contextlib.suppress(BrokenPipeError), child:
            if child.stdin:
                child.stdin.writelines(pieces)
    finally:
        signal.signal(signal.SIGINT, before)


def colors() -> bool:
    """Tell whether an answer may be coloured: on a terminal that has colours, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def add_completion(command: argparse.ArgumentParser) -> None:
    """Options of a command that prints a script for a shell."""
    command.add_argument("shell", choices=SHELLS, help="for which shell")


_FISH = """function __NAME_proposals
    set -l words (commandline -opc)
    PROGRAM complete -- $words[2..] (commandline -ct)
end
complete -c PROGRAM -f -n 'string length -q (__NAME_proposals)' -a '(__NAME_proposals)'
complete -c PROGRAM -F -n 'not string length -q (__NAME_proposals)'
"""
_ASKING = {
    "bash": '_NAME_proposals() { PROGRAM complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null; }',
    "zsh": '_NAME_proposals() { compadd -- ${(f)"$(PROGRAM complete -- "${words[@]:1}" 2>/dev/null)"}; }',
}
_ASKED = ("sandbox", "subject", "pod", "strategy")
"""Arguments whose values the program is asked for at each press of the Tab key: they are of the node at hand."""


def proposals(
    parser: argparse.ArgumentParser, words: Sequence[str], values: Callable[[argparse.Action, list[str]], Iterable[str]]
) -> list[str]:
    """List the words that may stand in place of the last of `words`: commands, options and values of the parser, and
    what `values` knows of an argument, given the words before it."""
    *before, last = words or [""]
    line = list(before)
    arguments: list[argparse.Action] = [action for action in parser._actions if not action.option_strings]
    while (commands := subcommands(parser)) is not None:
        name = next((word for word in before if word in commands.choices), None)
        if name is None:
            break
        parser, before = commands.choices[name], before[before.index(name) + 1 :]
        arguments = [action for action in parser._actions if not action.option_strings]
    action = parser._option_string_actions.get(before[-1]) if before else None
    if action is not None and action.nargs != 0:
        actions: Iterable[argparse.Action] = [action]
    elif last.startswith("-"):
        return sorted(option for option in parser._option_string_actions if option.startswith(last))
    else:
        place = sum(not word.startswith("-") for word in before)
        repeated = arguments[-1:] if arguments and arguments[-1].nargs in ("+", "*") else []
        actions = arguments[place : place + 1] or repeated
    listed = [str(choice) for each in actions for choice in each.choices or values(each, line)]
    return [each for each in listed if each.startswith(last)]


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script that completes the commands and options of `parser`, and the names of files and folders. Its command
    `complete` proposes what is of the node at hand: shapes, subjects, pods; in fish, all."""
    name = parser.prog.replace("-", "_")
    asking = (
        (_FISH if shell == "fish" else _ASKING.get(shell, "")).replace("NAME", name).replace("PROGRAM", parser.prog)
    )
    if shell == "fish":
        return asking
    import shtab

    by_metavar = {"FILE": shtab.FILE, "PATH": shtab.FILE, "SCENARIO": shtab.FILE, "DIR": shtab.DIRECTORY}
    for each in every_parser(parser):
        for action in each._actions:
            if action.metavar in by_metavar:
                action.complete = by_metavar[action.metavar]  # type: ignore[attr-defined]
            elif action.dest in _ASKED and not action.choices and "complete" in subcommands(parser).choices:
                function = f"_{name}_proposals"
                action.complete = {"bash": function, "zsh": function}  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell, preamble=asking))


def every_parser(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of its commands, theirs included."""
    yield parser
    commands = subcommands(parser)
    for each in dict.fromkeys(commands.choices.values()) if commands else ():
        yield from every_parser(each)


def exit_code(program: str, carry_out: Callable[[], int]) -> int:
    """Carry out a command; its code, 2 with the reason on stderr when it could not run, 130 when interrupted, and 0
    when the reader of its output went away."""
    try:
        return carry_out()
    except InputError as error:
        for problem in error.problems:
            _complain(program, str(problem))
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        _complain(program, "interrupted")
        return INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(program, f"{where}{reason(error)}")
    except KoordliteError as error:
        _complain(program, str(error))
    return REFUSED


def _complain(program: str, why: str) -> None:
    """Say why the program ended: to people, or in its log where that is for programs."""
    import logging  # Only failures need it.

    if any(getattr(handler.formatter, "for_programs", False) for handler in logging.root.handlers):
        logging.getLogger(program).error("%s", why)
    else:
        print(printable.lines(f"{program}: {why}"), file=sys.stderr)


@contextlib.contextmanager
def progress(doing: str, *, after_seconds: float = 2.0, now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """While the block takes longer than this, say on a terminal what is done and for how long; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    began, ended = now(), threading.Event()

    def show() -> None:
        wait = after_seconds
        while not ended.wait(wait):
            print(f"\r{doing}, {now() - began:.0f} s … ", end="", file=sys.stderr, flush=True)
            wait = 1.0

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if now() - began > after_seconds:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def replace_unprintable() -> None:
    """A terminal without an arrow or a dash shows `?`: nothing may end because of a character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _near(word: str, names: Sequence[str]) -> list[str]:
    import difflib  # For a mistake only.

    return difflib.get_close_matches(word, dict.fromkeys(names), n=2, cutoff=0.6)


def _meant(near: Sequence[str]) -> str:
    return f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
