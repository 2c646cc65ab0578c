"""The co-location benchmark on this kernel, a second or two of it: what it counts, what it throws away, what it leaves.

Its figures mean nothing here, where other tests run beside it.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest
import slices
from realnode import tree
from realnode.waiting import until

from tests.perf.colocation import loads
from tests.perf.colocation.results import Results, this_machine

ROOT = pathlib.Path(__file__).parents[2]
SHORT = ["--seconds", "1", "--settle", "0.3", "--rounds", "1", "--patience", "0"]

pytestmark = pytest.mark.skipif(
    not shutil.which("cc"), reason="needs a C compiler (Debian: apt-get install gcc libc6-dev)"
)


def _command(results: pathlib.Path, *options: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tests.perf.colocation",
        "--results",
        str(results),
        *SHORT,
        "--batch",
        "compute",
        *options,
    ]


def _begun(results: pathlib.Path) -> pathlib.Path:
    """A file of results that earlier runs began: this machine is not measured again, and its requests are small."""
    Results(results).begin(this_machine({f"{work} {kib}": 1000.0 for work, kib in loads.CALIBRATED}))
    return results


def _groups(pid: int) -> list[pathlib.Path]:
    return [f for point in set(tree.mounts()[1].values()) for f in point.glob(f"{tree.PREFIX}colocation-{pid}")]


def _runs(results: pathlib.Path) -> list[dict[str, Any]]:
    return [run for run in map(json.loads, results.read_text().splitlines()) if "way" in run]


@pytest.mark.sliced
def test_every_kind_of_way_is_measured_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    results, html = tmp_path / "results.jsonl", tmp_path / "page.html"
    chosen = ["alone", "static:0.4", "agent:cfsQuota,agent.reaction=off", "koordinator:cfsQuota", "agent:objective"]
    chosen = chosen[: slices.amount(5, 3)]
    if not slices.WHOLE:
        _begun(results)
    command = _command(results, "--keep-disturbed", "--html", str(html), "--way", *chosen)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert not _groups(process.pid)
    runs = {run["way"]: run for run in _runs(results)}
    assert list(runs) == chosen
    assert all(run["requests"] > 100 and sum(run["histogram"].values()) > 100 for run in runs.values())
    assert all(run["service_cpus"] > 0.05 for run in runs.values())
    assert runs["alone"]["batch_cpus"] == 0 < runs["static:0.4"]["batch_cpus"] < 0.5
    assert runs["alone"]["agent_cpus"] == 0 < runs["agent:cfsQuota,agent.reaction=off"]["agent_cpus"]
    assert "cfsQuota" in html.read_text()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "0 runs of" in again.stderr, "what has been measured is not measured again"


def test_a_run_beside_other_work_is_thrown_away(tmp_path: pathlib.Path) -> None:
    results = tmp_path / "results.jsonl"
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        try:
            subprocess.run(_command(_begun(results), "--way", "alone", "--attempts", "1"), cwd=ROOT, check=True)
        finally:
            busy.kill()
    (run,) = _runs(results)
    assert run["others_cpus"] > 0.1
    assert run["thrown_away"].startswith("others used ")


def test_groups_and_processes_are_gone_after_a_kill(tmp_path: pathlib.Path) -> None:
    command = _command(_begun(tmp_path / "results.jsonl"), "--way", "plain", "--batch", "fork", "--seconds", "60")
    # What it keeps in files for its run stays behind.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, env=environment) as process:
        pattern = f"{tree.PREFIX}colocation-{process.pid}/kubepods/besteffort/pod*/*/cgroup.procs"
        point = tree.mounts()[1]["cpuacct"]
        until(lambda: any(file.read_text() for file in point.glob(pattern)), "batch work runs")
        process.send_signal(signal.SIGKILL)
    until(lambda: not _groups(process.pid), "the groups are removed", seconds=20)
