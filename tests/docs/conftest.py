"""The documents of this repository, as the tests here read them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Blocks = Callable[[pathlib.Path, str], list[tuple[int, str]]]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def blocks() -> Blocks:
    """Fenced blocks of one language in a document: (line of the first line inside, text)."""

    def find(path: pathlib.Path, language: str) -> list[tuple[int, str]]:
        text = path.read_text(encoding="utf-8")
        found = [match for match in _FENCE.finditer(text) if match[1] == language]
        return [(text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]

    return find


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment beside an agent on an emulated node and its demonstration cluster, and of this test alone:
    questions and `restore` never see an agent that this machine really has."""
    words = ["run", "--sandbox", "intel-2s-ht", "--mode", "enforce", "--speed", "15", "--port", "0", "--quiet"]
    command = [sys.executable, "-m", "koordlite", *words]
    environment = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("tmp"))}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        found = None
        while found is None and (line := process.stderr.readline()):
            found = re.search(r"http://[0-9.:]+", line)
        assert found
        time_out = time.monotonic() + 60
        while len(rows(found[0])) < 70 and time.monotonic() < time_out:
            time.sleep(0.2)
        config = tmp_path_factory.mktemp("machine") / "koordlite.yaml"
        config.write_text(f"agent: {{stateDir: {config.parent}}}\n")
        # Now, as `restore`, one of the commands, pauses the agent.
        top = [sys.executable, "-m", "koordlite", "top", "--once", "--url", found[0]]
        wide = {**environment, "COLUMNS": "116"}
        shown = subprocess.run(top, capture_output=True, text=True, check=True, timeout=60, env=wide).stdout
        yield {**environment, "KOORDLITE_URL": found[0], "KOORDLITE_CONFIG": str(config), "TOP": shown}
        process.send_signal(signal.SIGTERM)


def rows(url: str) -> str:
    """One character for each tick the agent has ended, as far as it answers."""
    with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(f"{url}/recent", timeout=5) as answer:
        return "." * answer.read().decode().count('"thresholdMilli"')
    return ""


HERE = ("TMPDIR", "KOORDLITE_URL", "KOORDLITE_CONFIG")
"""Variables that lead a command to the agent of this test."""


def beside(agent: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process find that agent, and no other of this machine."""
    for name in HERE:
        monkeypatch.setenv(name, agent[name])
    monkeypatch.setattr(tempfile, "tempdir", agent["TMPDIR"])
