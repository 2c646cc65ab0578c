"""koordlite commands in forked children of one process that has imported it: fifty starts cost one import."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import types
from collections.abc import Sequence

from realnode.waiting import until


class Quick:
    """Starts commands as `python -m koordlite` would, a hundred times faster."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self._count = folder, 0
        folder.mkdir(parents=True, exist_ok=True)
        code = "from realnode import quick; quick.serve()"
        paths = os.pathsep.join(path for path in sys.path if path)
        self._server = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def start(self, *arguments: str) -> Child:
        """A command that runs; its standard output and error go to one file."""
        self._count += 1
        log = self._folder / f"{self._count}.log"
        log.touch()
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(json.dumps([str(log), *arguments]).encode() + b"\n")
        self._server.stdin.flush()
        return Child(int(self._server.stdout.readline()), log)

    def run(self, *arguments: str) -> Child:
        """A command that has ended."""
        child = self.start(*arguments)
        child.wait()
        return child

    def __enter__(self) -> Quick:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: types.TracebackType | None
    ) -> None:
        assert self._server.stdin and self._server.stdout
        self._server.stdin.close()
        self._server.wait(10)
        self._server.stdout.close()


class Child:
    """One command of a Quick."""

    def __init__(self, pid: int, log: pathlib.Path) -> None:
        self.pid, self.log = pid, log

    def kill(self) -> None:
        """kill -9, and see it gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """SIGTERM, and see it gone."""
        os.kill(self.pid, signal.SIGTERM)
        self.wait()

    def alive(self) -> bool:
        """Whether it still runs."""
        return pathlib.Path(f"/proc/{self.pid}").exists()

    def wait(self) -> None:
        """Until the process is gone."""
        until(lambda: not self.alive(), f"process {self.pid} has ended", seconds=60)

    def said(self) -> str:
        """What it wrote; the last line is `exit CODE` when it ended by itself."""
        return self.log.read_text()


def serve() -> None:
    """Fork a child for each line of arguments until standard input ends."""
    import koordlite.cli.run
    import koordlite.cli.undo  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Children are not waited for: the kernel buries them.
    for line in sys.stdin:
        log, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(log, arguments)
        print(pid, flush=True)


def _become(log: str, arguments: Sequence[str]) -> None:
    from koordlite import cli

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = cli.main(arguments)
    print(f"exit {code}", flush=True)
    os._exit(code)
