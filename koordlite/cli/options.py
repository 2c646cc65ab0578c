"""Options of commands as values: how one is built, and times as people write them: `90`, `90s`, `1h30m`; `24h` ago, or
a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from koordlite.model.errors import InputError, Problem, refusing

Option = Callable[[Any], object]
"""Adds itself to a parser, or to a group of one."""
MODES = ("off", "observe", "enforce")
LEVELS = ("off", "warning", "info", "debug")
URL_VARIABLE = "KOORDLITE_URL"
"""Environment variable: the agent that commands ask when no option names one."""
SANDBOX_FOLDER = "koordlite-sandbox-"
"""Prefix of the folders of emulated nodes."""
EXTENDER_URL = "http://127.0.0.1:9318"
SUBJECTS = (
    *("node", "pod NAME", "numa NAMESPACE/POD", "cpu N", "cpus", "file PATH", "allocatable", "config[.KEY]", "resctrl"),
    *("besteffort", "pools"),
)
"""Subjects of `explain` on every node."""
SHAPES = (
    *("intel-2s-ht", "amd-ccd", "arm", "small", "anolis", "intel-cdp", "intel-mbps", "intel-unmounted", "intel-1s"),
    *("intel-nomba", "intel-l2", "intel-snc", "amd-milan", "amd-genoa", "arm-mpam"),
)


def option(words: str, help: str | None = None, **settings: Any) -> Option:
    """An option, or an argument, by its names and what stands for its value in the usage; `settings` are argparse's."""
    *names, last = words.split()
    names, metavar = (names, last) if names and last[0] != "-" else ([*names, last], None)
    return lambda to: to.add_argument(*names, metavar=metavar, help=help, **settings)


def text(words: str, help: str | None = None) -> Option:
    """An option that is empty where it is not given."""
    return option(words, help, default="")


def flag(words: str, help: str) -> Option:
    """An option without a value."""
    return lambda to: to.add_argument(*words.split(), action="store_true", help=help)


def repeated(words: str, help: str) -> Option:
    """An option that may be given several times."""
    return option(words, help, action="append", default=[])


def duration(name: str, help: str, **settings: Any) -> Option:
    """An option in seconds."""
    return option(f"{name} DURATION", help, type=seconds(name), **settings)


def one_of(*options: Option, required: bool = False) -> Option:
    """Options that exclude each other."""
    return lambda to: add(to.add_mutually_exclusive_group(required=required), options)


def group(title: str, *options: Option) -> Option:
    """Options under a heading of their own."""
    return lambda to: add(to.add_argument_group(title), options)


def add(to: Any, options: Iterable[Option]) -> None:
    """Add the options to a parser, or to a group of one."""
    for each in options:
        each(to)


def seconds(name: str) -> Callable[[str], float]:
    """Reads the value of the option of this name, in seconds: a number, or a duration with units. InputError when it is
    neither. The bounds are the command's to check."""

    def read(text: str) -> float:
        from koordlite.model import duration as durations

        try:
            return float(text)
        except ValueError:
            pass  # Then it has units.
        with refusing("command line", name, text, "write 90s, 30m, 1h30m, or a number of seconds"):
            return durations.parse(text) / durations.SECOND

    return read


def time_of(text: str, name: str, *, now: float) -> float:
    """Seconds since the epoch; `now` is what "ago" counts from. InputError when it is neither duration nor time."""
    from koordlite.model import duration as durations
    from koordlite.model import times

    try:
        return now - durations.parse(text) / durations.SECOND
    except ValueError:
        pass  # Then it is a time.
    try:
        return times.parse(text, assume_utc=True)
    except ValueError as error:
        do = "write 24h or 90m for that long ago, or a time like 2026-01-31T03:00:00Z"
        raise InputError(Problem("command line", name, text, "this is neither a duration nor a time", do)) from error


def log_format(default: str | None = None) -> Option:
    """The option about the form of the log. `default`: None leaves it to agent.logFormat."""
    means = "default: agent.logFormat, else text" if default is None else f"default: {default}"
    return option("--log-format", f"form of the log on stderr ({means})", choices=("text", "json"), default=default)
