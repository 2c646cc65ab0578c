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

REPOSITORY = pathlib.Path(__file__).parents[2]
RIG = os.environ.get("KERNEL_RIG", "")


def missing() -> str:
    """Why no kernel can be booted here; empty when one can."""
    if not RIG:
        return "KERNEL_RIG names no rig: a folder with run.sh and kernels"
    if not (pathlib.Path(RIG) / "run.sh").is_file():
        return f"KERNEL_RIG is {RIG}, which holds no run.sh"
    return "" if shutil.which("qemu-system-x86_64") else "qemu-system-x86_64 is not on PATH (Debian: qemu-system-x86)"


def told(flavour: str, script: str, argument: object, environment: Mapping[str, str]) -> tuple[list[Any], str]:
    """The lines of JSON that a script of this repository prints in the guest, and what it says besides."""
    command = shlex.join([str(pathlib.Path(sys.executable).absolute()), script, json.dumps(argument)])
    ended = subprocess.run(
        [str(pathlib.Path(RIG) / "run.sh"), flavour, str(REPOSITORY), command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")], ended.stderr
