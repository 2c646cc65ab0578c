"""koordlite as a process: the real command line, started, ended and killed."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from realnode.waiting import until

PATIENCE_SECONDS = 240
TAKEN_OVER = "places stay as an earlier run left them"


class Command:
    """One koordlite process. Standard error is kept in a file."""

    def __init__(self, arguments: Sequence[str], log: pathlib.Path, **options: Any) -> None:
        self.log = log
        self.printed = log.with_suffix(".out")
        before = options.pop("before", ())
        with log.open("wb") as errors, self.printed.open("wb") as output:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "koordlite", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                **options,
            )

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> int:
        """End it as kubelet does, with SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        self.process.kill()
        self.process.wait()

    def wait(self, seconds: float = 100) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def said(self) -> str:
        """Everything it wrote to standard error."""
        return self.log.read_text()

    def output(self) -> str:
        """Everything it printed."""
        return self.printed.read_text()


def soon(holds: Callable[[], object], what: str | Callable[[], object], agent: Command) -> None:
    """`until` with the patience an emulated machine needs; AssertionError ends with what the agent said last."""
    try:
        until(holds, what, seconds=PATIENCE_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{agent.said()[-600:]}") from None


@contextlib.contextmanager
def running(
    arguments: Sequence[str],
    log: pathlib.Path,
    has_begun: Callable[[Command], object],
    what: str,
    *,
    before: Sequence[str] = (),
    seconds: float = 40.0,
) -> Iterator[Command]:
    """A process from the moment that `has_begun`, which `what` names, and stopped after. AssertionError with all it
    said when it ended before, or had not begun after `seconds`. `before` is a command that starts it."""
    command = Command(arguments, log, before=before)
    try:
        try:
            until(lambda: has_begun(command) or not command.alive(), what, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {command.said()}") from error
        assert command.alive(), command.said()
        yield command
        command.stop()
    finally:
        if command.alive():
            command.kill()


def report(folder: pathlib.Path) -> dict[str, Any]:
    """run.json of a run that has ended."""
    document: dict[str, Any] = json.loads((folder / "run.json").read_bytes())
    return document


def refusals(document: dict[str, Any]) -> list[str]:
    """The writes of a run that the kernel refused."""
    return [f"{w['place']} = {w['value']}: {w['error']}" for w in document["writes"] if not w["ok"]]
