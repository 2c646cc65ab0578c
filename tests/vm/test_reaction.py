"""Short pressure triggers on real kernels: an emulated machine may have them where this one may not.

Times mean nothing there; how fast the agent reacts is measured by `tests/perf/agent/reaction.py`.
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
    if not RIG or not (pathlib.Path(RIG) / "run.sh").is_file():
        return f"KERNEL_RIG is {RIG!r}, which names no folder with run.sh and kernels"
    return "" if shutil.which("qemu-system-x86_64") else "qemu-system-x86_64 is not on PATH (Debian: qemu-system-x86)"


pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(BOOT_SECONDS + 30),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.mark.parametrize(("kernel", "cgroup"), [("6.1", "2"), ("6.12", "2"), ("6.12", "1")])
def test_pressure_of_waiting_threads_leads_to_a_round_before_its_time(kernel: str, cgroup: str) -> None:
    python = pathlib.Path(sys.executable).absolute()
    given = {"KVER": kernel, "CGROUP": cgroup, "TIMEOUT": str(BOOT_SECONDS), "RDT": "none"}
    ended = subprocess.run(
        [str(pathlib.Path(RIG) / "run.sh"), "intel", str(REPOSITORY), f"{python} -m tests.vm.guest_reaction"],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    claims = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    broken = [f"{one['claim']}: {one['detail']}" for one in claims if not one["ok"]]
    assert not broken, "\n".join([*broken, ended.stderr])
    assert claims[-1]["claim"] == "all was looked at"
