"""Burst, memory QoS and evictions as `koordlite run` carries them out on real kernels booted in QEMU.

Each boot runs `guest_loops.py` inside.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
BOOT_SECONDS = 420
RIG = os.environ.get("KERNEL_RIG", "")


def missing() -> str:
    """Why no kernel can be booted here; empty when one can."""
    if not (pathlib.Path(RIG) / "run.sh").is_file() or not RIG:
        return f"KERNEL_RIG is {RIG!r}, which is no folder with run.sh and kernels"
    return "" if shutil.which("qemu-system-x86_64") else "qemu-system-x86_64 is not on PATH (Debian: qemu-system-x86)"


pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(BOOT_SECONDS + 30),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.mark.parametrize(
    ("kernel", "cgroup"), [pytest.param("6.12", "2", id="6.12-v2"), pytest.param("6.1", "1", id="6.1-v1")]
)
def test_each_loop_closes_and_everything_goes_back(kernel: str, cgroup: str) -> None:
    python = pathlib.Path(sys.executable).absolute()
    command = f"PYTHONPATH=. {python} tests/vm/guest_loops.py"
    ended = subprocess.run(
        [str(pathlib.Path(RIG) / "run.sh"), "intel", str(REPOSITORY), command],
        env={**os.environ, "KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    claims = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    print("\n".join(f"{one['claim']}: {one['ok']}" for one in claims))
    broken = [f"{one['claim']}: {one['detail']}" for one in claims if not one["ok"]]
    assert not broken, "\n".join([*broken, ended.stderr])
    assert claims[-1]["claim"].startswith("all was looked at")
