"""The command, run in this process or in its own, on an emulated node."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite import cli


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run a command that only looks, in this process."""

    def run(*words: object) -> Answer:
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A folder of manifests for shape `small`, with a service and best-effort work."""
    node = Emulated("small", tmp_path)
    node.node(reservation='{"reservedCPUs":"0"}')
    node.pod("web", "LS", "1")
    node.pod("crunch", "BE", "greedy")
    return node.folder


@pytest.fixture
def run(ask: Callable[..., Answer]) -> Iterator[Callable[..., Answer]]:
    """Run the agent to its end, in this process, whose signals it takes over for as long."""
    ours = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield ask
    for number, handler in ours.items():
        signal.signal(number, handler)


@pytest.fixture
def own_process() -> Callable[..., Answer]:
    """Run a command to its end, in a process of its own: where its streams or its log are what matters."""

    def start(*words: object) -> Answer:
        command = [sys.executable, "-m", "koordlite", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return Answer(done.returncode, done.stdout, done.stderr)

    return start


@contextlib.contextmanager
def running_agent(folder: Path, speed: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """An agent on the small machine and the cluster of a folder, so many times faster than life, and its address."""
    words = ["run", "--sandbox", "small", "--cluster", str(folder), "--mode", "enforce", "--speed", str(speed)]
    command = [sys.executable, "-m", "koordlite", *words, "--port", "0", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        found = None
        while found is None and (line := process.stderr.readline()):
            found = re.search(r"http://[0-9.:]+", line)
        assert found, "the agent never said where it listens"
        yield process, found[0]
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


@pytest.fixture
def running(manifests: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """An agent, and its address."""
    with running_agent(manifests, speed=10) as found:
        yield found
