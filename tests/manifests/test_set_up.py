"""`scripts/set-up`, which makes the environments of the Makefile, on machines that lack something."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def set_up(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "set-up"), *map(str, arguments)]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def test_without_ensurepip_it_names_the_package_that_debian_keeps_it_in(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError\n")
    done = set_up(tmp_path / "venv", ROOT / "requirements.txt", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_without_python_make_names_the_packages() -> None:
    command = ["make", "--always-make", "PYTHON=no-such-python", "VENV=no-such-folder", "no-such-folder/.ready"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert (
        "there is no no-such-python: on Debian or Ubuntu, as root: apt-get install python3 python3-venv" in done.stdout
    )


@pytest.mark.long
def test_what_pip_says_is_shown_when_it_fails_and_only_then(tmp_path: pathlib.Path) -> None:
    (tmp_path / "none.txt").write_text("")
    (tmp_path / "one.txt").write_text("nosuchpackage==1.0 --hash=sha256:" + 64 * "0" + "\n")
    done = set_up(tmp_path / "venv", tmp_path / "one.txt", PIP_NO_INDEX="1")
    assert done.returncode == 1
    assert "nosuchpackage==1.0" in done.stderr
    done = set_up(tmp_path / "venv", tmp_path / "none.txt", PIP_NO_INDEX="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == ["  0 packages"]
