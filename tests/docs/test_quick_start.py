"""The commands of docs/quick-start.md that need no cluster are run, one after the other, as a reader would."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
_RUN = re.compile(r"^```sh run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for block in _RUN.findall((ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8"))
    for line in block.splitlines()
]
SHORTER = {"--for 60": "--for 20", "--for 120": "--for 70"}
"""What a reader waits for, a test need not."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the configurations of the repository."""
    made = tmp_path_factory.mktemp("reader")
    (made / "configs").symlink_to(ROOT / "configs")
    return made


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) > 8


@pytest.mark.xdist_group("quick-start")
@pytest.mark.parametrize("line", COMMANDS)
def test_it_ends_well_and_says_something(folder: pathlib.Path, line: str) -> None:
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    program, *arguments = shlex.split(line)
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.stdout or "run" in arguments[:1]
