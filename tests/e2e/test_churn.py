"""Caches of agent and descheduler under churn and faults, in short; `tests/perf/api/churn.py` has ten minutes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parents[1]
HARNESS = TESTS / "perf" / "api" / "churn.py"


def test_every_cache_equals_the_server_after_a_minute_of_trouble():
    options = ["--minutes", "1", "--speed", "12", "--nodes", "40", "--rate", "20", "--fault-every", "6"]
    command = [sys.executable, str(HARNESS), *options]
    environment = {**os.environ, "PYTHONPATH": str(TESTS / "support")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "every cache equals the server" in done.stdout
