"""The commands of docs/quick-start.md that need no cluster are run, one after the other, as a reader would."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from descheduler import cli as descheduler_cli
from koordlite import cli

ROOT = pathlib.Path(__file__).parents[2]
_RUN = re.compile(r"^<!-- run -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = tuple(
    tuple(block.splitlines()) for block in _RUN.findall((ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8"))
)
SHORTER = {"--for 60": "--for 20", "--for 120": "--for 70"}
"""What a reader waits for, a test need not."""
PROGRAMS = {"koordlite": cli.main, "descheduler": descheduler_cli.main}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with the configurations and manifests of the repository."""
    for name in ("configs", "manifests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_there_are_commands_to_run() -> None:
    assert sum(map(len, BLOCKS)) > 8


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block[0][:60])
def test_they_end_well_and_say_something(
    folder: pathlib.Path,
    block: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commands of one step, in their order: a later one may need what an earlier one wrote."""
    monkeypatch.chdir(folder)
    for line in block:
        program, *words = shlex.split(shorter(line))
        if words[0] == "run":
            run(folder, program, words)
        else:
            code = PROGRAMS[program](words)
            said = capsys.readouterr()
            assert code == 0, f"{line}\n{said.out[-2000:]}\n{said.err[-2000:]}"
            assert said.out, line


def shorter(line: str) -> str:
    """A command as short as it may be."""
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    return line


def run(folder: pathlib.Path, program: str, words: list[str]) -> None:
    """What runs has a process of its own, which it changes to its liking: signals, limits, memory."""
    command = [sys.executable, "-m", program, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("strategy", ["craneCPUManager", "numaAffinity"])
def test_strategies_that_ask_what_kubelet_does_have_an_answer_in_the_tour(
    strategy: str, root: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = ["--sandbox", "intel-2s-ht", "--cluster", str(root / "configs" / "tour"), "--node", "tour-a"]
    assert cli.main(["run", *sandbox, "--once", "--no-http", "--quiet", f"--strategy={strategy}=observe"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.split()[:1] == [strategy]]
    assert line.split()[1:3] == ["observe", "hold"]
