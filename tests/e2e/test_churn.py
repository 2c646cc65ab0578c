"""Caches of agent and descheduler under churn and faults, in short; `tests/perf/api/churn.py` has ten minutes."""

from __future__ import annotations

import pathlib
import subprocess
import sys

HARNESS = pathlib.Path(__file__).parents[1] / "perf" / "api" / "churn.py"


def test_every_cache_equals_the_server_after_a_minute_of_trouble():
    options = ["--minutes", "1", "--speed", "12", "--nodes", "40", "--rate", "20", "--fault-every", "6"]
    done = subprocess.run(
        [sys.executable, str(HARNESS), *options], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "every cache equals the server" in done.stdout
