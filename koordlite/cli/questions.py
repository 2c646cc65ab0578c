"""Questions to a running agent: `explain`, `numa`, `status`, `top` and `log-level`; the first three also to a machine
that is named, and `explain` to a flight record.

To ask a running agent costs next to nothing: what judges a machine, reads a record or draws tables on a terminal is
imported where it is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from koordlite import commandline
from koordlite.cli import asking, options
from koordlite.model import printable
from koordlite.model.defaults import LONGEST_LOG_SECONDS, STATE_DIR
from koordlite.model.errors import InputError, KoordliteError, Problem, refusing

if TYPE_CHECKING:
    from koordlite.report.history import Remembered
    from koordlite.report.pod_rows import PodRow
    from koordlite.report.tick import Tick

EXIT_CODES = {"degraded": 1, "paused": 3}
"""Exit codes of `status`, by status; 0 for all others. 2 is an agent that does not answer."""
LEAST_SECONDS = 0.2
WHOLE_LINES = 48
"""Height of a frame that is printed once: enough for all of it."""
_UNTIL_RATES_SECONDS = 10.0
"""Time from the start of a record until use is known: it is a rate."""
_NO_SCREEN = ("dumb", "unknown")
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen, without a cursor, as the library uses it; and back."""


def explain(args: argparse.Namespace) -> int:
    """Print the answer. 2 when there is nothing of that name."""
    subject = " ".join(args.subject)
    if args.why_pending:
        from koordlite.cli import scheduler_command

        return scheduler_command.why_pending(args, subject)
    if args.memory:
        answer = _memory(subject, args)
    elif args.record or args.at or args.since:
        answer = _of_record(subject, args)
    elif asking.of_machine(args):
        from koordlite.cli import machine
        from koordlite.report.history import NOTHING

        answer = _at(subject, machine.tick(args), NOTHING, args)
    else:
        query = {"subject": subject, "output": args.output, **({"who": "true"} if args.who else {})}
        answer = asking.get(f"{_url(args)}/explain?{urllib.parse.urlencode(query)}")
    if args.output == "json":
        print(printable.in_json(answer), end="")
    else:
        commandline.show(answer)
    return 0


def numa(args: argparse.Namespace) -> int:
    """`numa explain POD`. 2 when there is no such pod."""
    args.subject, args.record, args.at, args.since, args.who = ["numa", args.pod], None, None, None, False
    args.why_pending = False
    return explain(args)


def _url(args: argparse.Namespace) -> str:
    return str(args.url or asking.default_url()).rstrip("/")


def _memory(subject: str, args: argparse.Namespace) -> str:
    """`numa NAMESPACE/POD --memory`: only the machine itself can tell, now."""
    kind, _, pod = subject.partition(" ")
    if kind != "numa" or not pod or args.record or args.at or args.since:
        do = "write `explain numa NAMESPACE/POD --memory`, without --record, --at or --since"
        raise InputError(Problem("command line", "--memory", subject, "it is about the memory of one pod, now", do))
    if not asking.of_machine(args):
        query = urllib.parse.urlencode({"pod": pod, "output": args.output})
        return asking.get(f"{_url(args)}/explain/numa-memory?{query}")
    from koordlite.cli import machine as machines
    from koordlite.observe import numa_pages
    from koordlite.report.explain import numa_memory

    with machines.judged(args) as (machine, tick):

        def memory() -> str:
            pages = numa_pages.of_pod(machine.host, tick.snapshot, pod, wait=machine.host.clock.wait)
            return numa_memory.answer(pages).show(args.output)

        return _answer(subject, memory)


def _of_record(subject: str, args: argparse.Namespace) -> str:
    import msgspec

    from koordlite.cli import machine as machines
    from koordlite.cli import recorded
    from koordlite.record.reader import Record
    from koordlite.report import night, units
    from koordlite.report.explain import since
    from koordlite.report.json.run_report import encode

    path = args.record or asking.record_folder(machines.settings(args).record.folder, args.url or "")
    wall = None if args.at is None else options.time_of(args.at, "--at", now=time.time())
    tick, past = recorded.at(path, wall)
    if not args.since:
        head = "" if args.output == "json" else f"as recorded at {units.moment(tick.wall)}\n\n"
        return head + _at(subject, tick, past, args)
    record = Record(pathlib.Path(path))
    wall, note = recorded.start_for(args.since, (recorded.beginning(record), tick.wall))
    if note:
        wall = min(wall + _UNTIL_RATES_SECONDS, tick.wall)
    then, _ = recorded.at(path, wall)
    held_back = night.squeeze(recorded.rounds(record, wall), tick.wall) if subject == "besteffort" else None
    if args.output == "json":
        whole = {"heldBack": msgspec.to_builtins(held_back)} if held_back else {}
        return _answer(
            subject, lambda: encode({"version": 1, **since.answer(subject, then, tick).document, **whole}).decode()
        )
    first = (note and f"{note}\n") + (f"{night.text(held_back)}\n" if held_back else "")
    return first + _answer(subject, lambda: "\n".join(since.answer(subject, then, tick, past).lines))


def _at(subject: str, tick: Tick, past: Remembered, args: argparse.Namespace) -> str:
    from koordlite.report.explain.subject import explain as explained

    return _answer(subject, lambda: explained(subject, tick, past, output=args.output, who=args.who))


def _answer(subject: str, say: Callable[[], str]) -> str:
    do = f"ask for {', '.join(options.SUBJECTS)}, a strategy, a reason, or part of a file name"
    with refusing("command line", "SUBJECT", subject, do):
        return say()


def status(args: argparse.Namespace) -> int:
    """Print one screen. 0 while all is well, 1 when the agent is degraded, 3 while it is paused."""
    colors, width = commandline.colors(), shutil.get_terminal_size((100, 24)).columns
    if asking.of_machine(args):
        from koordlite.cli import machine

        tick = machine.tick(args)
        if args.output == "json":
            from koordlite.report.json.run_report import encode, state

            sys.stdout.buffer.write(encode(state(tick)))
        else:
            from koordlite.report.terminal import status as screens

            print(printable.lines(screens.screen(tick, width=width, color=colors), colors=colors), end="")
        return EXIT_CODES.get(tick.status, 0)
    if args.output == "json":
        document = asking.get(f"{_url(args)}/state")
        try:
            code = EXIT_CODES.get(json.loads(document)["status"], 0)  # It may be of any version.
        except (ValueError, KeyError, TypeError) as error:
            raise KoordliteError(f"what answers there is no agent: {error}") from error
        print(printable.in_json(document), end="")
        return code
    word, text = asking.screen(_url(args), width=width, color="standard" if colors else "")
    print(printable.lines(text, colors=colors), end="")
    return EXIT_CODES.get(word, 0)


def top(args: argparse.Namespace) -> int:
    """Show the agent, live, until `q`; one frame with `--once` or where the output is no terminal. 2 when no agent
    answers. The agent draws the node, so that one frame costs this process next to nothing."""
    if not args.interval >= LEAST_SECONDS:
        do = f"write {LEAST_SECONDS} or more"
        raise InputError(Problem("command line", "--interval", str(args.interval), "too often", do))
    agent = _Agent(_url(args), _terminal_colors())
    width, height = shutil.get_terminal_size((100, 24))
    if args.once or not sys.stdout.isatty() or not sys.stdin.isatty() or os.environ.get("TERM") in _NO_SCREEN:
        print(printable.lines(agent.whole(width, max(height, WHOLE_LINES)), colors=True), end="")
        return 0
    first = agent.whole(width, height).splitlines()[:height]  # Without an agent the terminal stays as it is.
    # Python's own handler: what is imported may be interrupted here, since the terminal has to be given back, and
    # asyncio looks after Ctrl-C only where it finds that one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # These lines are there while the library loads: longer than the agent takes.
        sys.stdout.write(_ENTER + printable.lines("\n".join(first), colors=True))
        sys.stdout.flush()
        from koordlite.report.terminal.top_app import TopApp

        TopApp(agent, args.interval).run()
    except KeyboardInterrupt:
        sys.stdout.write(_LEAVE)
    except BaseException:
        sys.stdout.write(_LEAVE)
        raise
    return 0


class _Agent:
    """A running agent as `top_app.Source`."""

    def __init__(self, url: str, colors: str) -> None:
        self._url, self._colors = url, colors

    def whole(self, width: int, height: int) -> str:
        """Everything in one frame. KoordliteError when no agent answers, or another server does."""
        return asking.screen(self._url, view="live", width=width, height=height, color=self._colors)[1]

    def frame(self, width: int, height: int) -> str:
        """The node without its pods."""
        return asking.screen(self._url, view="node", width=width, height=height, color=self._colors)[1]

    def pods(self) -> tuple[PodRow, ...]:
        """The pods of the node."""
        from koordlite.report import pod_rows

        return pod_rows.read(asking.get(f"{self._url}/pods"))

    def explain(self, subject: str) -> str:
        """Same as `koordlite explain`."""
        return asking.get(f"{self._url}/explain?{urllib.parse.urlencode({'subject': subject})}")


def _terminal_colors() -> str:
    """Abilities of the terminal, as `koordlite.report.terminal.screen` calls it."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") in _NO_SCREEN:
        return ""
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in os.environ.get("TERM", "") else "standard"


def log_level(args: argparse.Namespace) -> int:
    """Print which decisions a running agent logs, after the change if one is asked for."""
    if args.seconds is not None and not 0 < args.seconds <= LONGEST_LOG_SECONDS:
        do = f"write a number more than 0 and at most {LONGEST_LOG_SECONDS}"
        raise InputError(Problem("command line", "--for", str(args.seconds), "out of range", do))
    url = f"{_url(args)}/loglevel"
    emulated = None if args.state_dir else asking.emulated_node(args.url or "")
    folder = args.state_dir or (emulated.state if emulated else STATE_DIR)
    if args.level is None:
        answer = asking.get(url, folder)
    else:
        about = asking.folders(args.url or "")
        whose = f"{about.machine}{f'; node {about.node}' if about.node else ''}; " if about else ""
        print(printable.lines(f"{whose}agent at {url.removesuffix('/loglevel')}"), file=sys.stderr)
        request = {"level": args.level, "strategy": args.strategy, "pod": args.pod, "forSeconds": args.seconds}
        answer = asking.put(url, request, folder)
    try:
        lines = "\n".join(_levels(json.loads(answer)))
    except (ValueError, KeyError, TypeError) as error:
        raise KoordliteError(f"what answers at {url} is no agent of this version: {error}") from error
    print(printable.in_json(answer) if args.output == "json" else printable.lines(lines))
    return 0


def _levels(levels: dict[str, Any]) -> list[str]:
    rows = {"everything else": levels["default"]}
    rows |= {f"strategy {name}": level for name, level in levels["strategies"].items()}
    rows |= {f"pod {name}": level for name, level in levels["pods"].items()}
    remaining = {name: f" for {each['forSeconds']:.0f} s more" for name, each in rows.items() if "forSeconds" in each}
    return [f"{name}: {each['level']}{remaining.get(name, '')}" for name, each in rows.items()]
