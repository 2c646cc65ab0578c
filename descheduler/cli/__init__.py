"""The command `descheduler`. Commands import heavy parts when they need them, so --help is quick."""

from __future__ import annotations

import argparse
import gc
import itertools
import pathlib
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from descheduler.cli import run, source
from koordlite import __version__, commandline
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem

if TYPE_CHECKING:
    from descheduler.plan import EvictionPlan

FOUND = 3
"""Exit code of `plan --fail-on-findings` when a pod is misplaced."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 2: bad input, every problem on stderr; 3: findings, with `--fail-on-findings`;
    130: interrupted."""
    commandline.replace_unprintable()
    return commandline.exit_code("descheduler", lambda: _command(argv))


def _command(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(run.as_run(sys.argv[1:] if argv is None else argv))
    return commandline.in_form(args, lambda: int(args.run(args)))


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    top = commandline.CommandParser(
        prog="descheduler",
        description="Finds misplaced pods, and reports which of them should be evicted and why.",
    )
    top.add_argument("--version", action="version", version=f"descheduler {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _plan(commands.add_parser("plan", help="what would be evicted, and why; nothing is (dry run)"))
    run.add_options(commands.add_parser("run", help="a cycle, or one after the other; a dry run by default"))
    explain = commands.add_parser("explain", help="everything about one pod, or why it is not in the plan")
    explain.add_argument("pod", help="namespace/name, or a name")
    source.add_options(explain)
    commandline.add_output(explain)
    explain.set_defaults(run=_run_explain)
    check = commands.add_parser("check-config", help="every mistake in a policy file, and what is hardly meant")
    check.add_argument("file", help="a DeschedulerPolicy, or a DeschedulerConfiguration of Koordinator")
    commandline.add_output(check)
    check.set_defaults(run=_run_check)
    listing = commands.add_parser("list-plugins", help="the plugins and what each is for")
    commandline.add_output(listing)
    listing.set_defaults(run=_run_list)
    version = commands.add_parser("version", help="the version, as upstream's command")
    version.set_defaults(run=lambda _args: _print(f"descheduler {__version__}"))
    default = commands.add_parser("default-config", help="the policy that holds without --policy, commented")
    default.set_defaults(run=_run_default)
    script = commands.add_parser("completion", help="print a script that completes commands and options")
    commandline.add_completion(script)
    script.set_defaults(run=lambda args: _print(commandline.completion(parser(), args.shell)))
    complete = commands.add_parser("complete")  # Not listed: completion scripts ask it.
    complete.add_argument("words", nargs="*")
    complete.set_defaults(run=_run_complete)
    return top


def _plan(command: argparse.ArgumentParser) -> None:
    source.add_options(command)
    command.add_argument(
        "-o", "--output", choices=("text", "json", "html"), default="text", help="form of standard output"
    )
    command.add_argument("--brief", action="store_true", help="about ten lines of text instead of the whole plan")
    command.add_argument(
        "--limit",
        metavar="N",
        default="20",
        help="text: list at most so many pods to evict, pods kept, nodes and notes; all: every one. Default 20",
    )
    command.add_argument("--only", metavar="NAME", default="", help="text: only pods of this plugin, namespace or node")
    command.add_argument("--report", metavar="DIR", help="also write plan.txt, plan.json and plan.html there")
    command.add_argument(
        "--fail-on-findings", action="store_true", help=f"exit with {FOUND} when a pod is misplaced, evicted or not"
    )
    command.set_defaults(run=_run_plan)


def _run_plan(args: argparse.Namespace) -> int:
    with source.no_collection():
        if args.limit != "all" and not (args.limit.isascii() and args.limit.isdecimal()):
            do = "write 0 or more, or all"
            raise InputError(Problem("command line", "--limit", args.limit, "it is no number of pods", do))
        plan = source.make(args)
        if args.output == "text":
            _print_text(plan, args)
        else:
            commandline.print_long(_rendered(plan, args.output))
        if args.report:
            from descheduler.serve import report_folder as folder

            folder.Folder(pathlib.Path(args.report)).write(plan)
            for name in folder.NAMES:
                print(printable.lines(f"wrote {pathlib.Path(args.report) / name}"), file=sys.stderr)
        if args.output != "text":  # The text has them itself.
            for problem in plan.view.problems:
                print(printable.lines(f"descheduler: {problem}"), file=sys.stderr)
        code = FOUND if args.fail_on_findings and plan.outcomes else 0
        gc.freeze()  # The process ends now: to search what is left of the plan would take a twentieth of all its time.
        return code


def _rendered(plan: EvictionPlan, form: str) -> Iterable[str]:
    """Render the plan as JSON, or as a page."""
    if form == "json":
        from descheduler.evictors import eviction_api
        from descheduler.report import document

        return document.pieces(plan, eviction_api.prepare(plan))
    from descheduler.report import html

    return (html.render(plan),)


def _print_text(plan: EvictionPlan, args: argparse.Namespace) -> None:
    from descheduler.report import text
    from descheduler.report.text import Selection

    limit = None if args.limit == "all" else int(args.limit)
    selection = Selection(args.only, limit)
    selected = selection.of(plan)
    left_out = selection.sentence(plan, selected)
    colors = commandline.colors()

    def pieces(*, answer_last: bool) -> Iterator[str]:
        lines = text.pieces(selected, limit=limit, left_out=left_out, answer_last=answer_last)
        return map(text.paint, lines) if colors else lines

    with text.at_width(_columns()):
        if args.brief:
            commandline.print_long((text.brief(selected, left_out),))
            return
        pager = commandline.pager() if sys.stdout.isatty() and sys.stdin.isatty() else None
        height = shutil.get_terminal_size().lines
        if pager is None or sum(1 for _ in itertools.islice(pieces(answer_last=True), height)) < height:
            commandline.print_long(pieces(answer_last=True), colors=colors)
            return
        commandline.print_paged(pager, pieces(answer_last=False))  # Of a pager the first page is seen first,
        last = "".join(f"{line}\n" for line in text.answers(selected, left_out))  # and what stays is below it.
        commandline.print_long(map(text.paint, last.splitlines(keepends=True)) if colors else (last,), colors=colors)


def _columns() -> int:
    """Columns of the terminal; 100 where there is none, so that files are the same everywhere."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100


def _run_explain(args: argparse.Namespace) -> int:
    from descheduler.report import explain, text

    plan = source.make(args, args.pod)
    if args.output == "json":
        commandline.print_json("descheduler-explain", pods=explain.document(plan, args.pod))
        return 0
    with text.at_width(_columns()):
        commandline.show(explain.render(plan, args.pod))
    return 0


def _print(text: str) -> int:
    print(printable.lines(text))
    return 0


def _run_check(args: argparse.Namespace) -> int:
    from descheduler.policy import reader

    notices: list[Problem] = []
    setup = reader.setup(reader.load(args.file, notices))
    plugins = {profile.name: [plugin.name for plugin, _ in profile.plugins] for profile in setup.profiles}
    if args.output == "json":
        commandline.print_json("descheduler-check-config", profiles=plugins, notes=notices)
        return 0
    source.notices(notices)
    for name, named in plugins.items():
        print(printable.lines(f"{args.file}: profile {name}: plugins {', '.join(named) or 'none'}"))
    return 0


def _run_list(args: argparse.Namespace) -> int:
    from descheduler import plugins

    purposes = {name: plugin.doc.splitlines()[0] for name, plugin in plugins.discover().items()}
    if args.output == "json":
        commandline.print_json("descheduler-plugins", plugins=purposes)
        return 0
    for name, purpose in purposes.items():
        print(printable.lines(f"{name}\n    {purpose}"))
    return 0


def _run_default(_args: argparse.Namespace) -> int:
    from descheduler.policy import reader

    print(printable.lines(reader.default_policy()), end="")
    return 0


def _run_complete(args: argparse.Namespace) -> int:
    for each in commandline.proposals(parser(), args.words, lambda action, words: ()):
        print(printable.lines(each))
    return 0
