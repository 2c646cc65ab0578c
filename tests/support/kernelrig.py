"""Real kernels booted in QEMU by a rig: a folder with run.sh and kernels, named by KERNEL_RIG."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import guestclaims
import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
RIG = os.environ.get("KERNEL_RIG", "")
PYTHON = str(pathlib.Path(sys.executable).absolute())
PATH = f"PYTHONPATH={shlex.quote(f'{REPOSITORY}:{REPOSITORY}/tests/support')}"
"""Where scripts find what they import; guests have the repository at the same place."""


def missing() -> str:
    """Why no kernel can be booted here; empty when one can."""
    if not RIG:
        return "KERNEL_RIG names no rig: a folder with run.sh and kernels"
    if not (pathlib.Path(RIG) / "run.sh").is_file():
        return f"KERNEL_RIG is {RIG}, which holds no run.sh"
    return "" if shutil.which("qemu-system-x86_64") else "qemu-system-x86_64 is not on PATH (Debian: qemu-system-x86)"


def marks(boot_seconds: int) -> list[pytest.MarkDecorator]:
    """`pytestmark` of a module that boots kernels, each for at most so long."""
    return [
        pytest.mark.vm,
        pytest.mark.timeout(boot_seconds + 30),
        pytest.mark.skipif(bool(missing()), reason=missing()),
    ]


def told(flavour: str, script: str, argument: object, environment: Mapping[str, str]) -> tuple[list[Any], str]:
    """The lines of JSON that a script of this repository prints in the guest, and what it says besides."""
    return _printed(flavour, shlex.join([PYTHON, script, json.dumps(argument)]), environment)


def check_claims(flavour: str, command: str, environment: Mapping[str, str]) -> None:
    """Boot, run `command` there, and expect each of its claims to hold and the last one that all was looked at."""
    claims, noise = _printed(flavour, command, environment)
    print("\n".join(f"{one['claim']}: {one['ok']}" for one in claims))
    broken = [f"{one['claim']}: {one['detail']}" for one in claims if not one["ok"]]
    assert not broken, "\n".join([*broken, noise])
    assert claims[-1]["claim"] == guestclaims.ALL


def _printed(flavour: str, command: str, environment: Mapping[str, str]) -> tuple[list[Any], str]:
    ended = subprocess.run(
        [str(pathlib.Path(RIG) / "run.sh"), flavour, str(REPOSITORY), f"{PATH} {command}"],
        # The repository does not change meanwhile: guests need not ask for each file again at each start of koordlite.
        env={"CACHE9P": "loose", **os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")], ended.stderr
