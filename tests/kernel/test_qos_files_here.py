"""Every cgroup value and every line of a disk the product can write, written and put back on this machine's kernel.

The claims are those of the kernels in QEMU (tests/vm/guest_qos.py), in groups of our own.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(120)


def test_every_value_is_written_and_put_back(tmp_path: pathlib.Path) -> None:
    script = REPOSITORY / "tests" / "vm" / "guest_qos.py"
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "work")],
        env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests/support"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    claims = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert [f"{one['claim']}: {one['detail']}" for one in claims if not one["ok"]] == []
    assert claims[-1]["claim"].startswith("all was looked at")
