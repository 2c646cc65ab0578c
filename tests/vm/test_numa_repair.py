"""A CPU set widened by hand over two NUMA nodes of a real kernel: repaired on the node, or moved by the descheduler.

Each boot runs `guest_numa.py` inside.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.support import kernelrig

BOOT_SECONDS = 600

pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(BOOT_SECONDS + 30),
    pytest.mark.skipif(bool(kernelrig.missing()), reason=kernelrig.missing()),
]


@pytest.mark.parametrize(
    ("kernel", "cgroup"), [pytest.param("6.12", "2", id="6.12-v2"), pytest.param("6.1", "1", id="6.1-v1")]
)
def test_what_cannot_be_repaired_has_to_move(kernel: str, cgroup: str) -> None:
    command = f"PYTHONPATH=. {pathlib.Path(sys.executable).absolute()} tests/vm/guest_numa.py"
    ended = subprocess.run(
        [str(pathlib.Path(kernelrig.RIG) / "run.sh"), "intel", str(kernelrig.REPOSITORY), command],
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
