"""Runs inside the guest: the co-location benchmark where the unified hierarchy has the cpu controller.

The argument is a folder to work in. Where the machine has cgroup v1, cpu and cpuset are moved to the unified hierarchy
first, and the other controllers stay: a hybrid machine. The CPU is emulated, so figures mean nothing. Prints one line
of JSON for each claim: {"claim": …, "ok": …, "detail": …}.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

from guestclaims import ALL, claim, tell
from realnode import tree

from tests.perf.colocation import loads
from tests.perf.colocation.results import Results, this_machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAYS = ["alone", "plain", "static:0.4", "koordinator:cpuset", "agent:cfsQuota", "agent:guided", "agent:objective"]
UNIFIED = pathlib.Path("/sys/fs/cgroup/unified")


def move_controllers() -> None:
    """Give the unified hierarchy cpu and cpuset, where v1 has them."""
    if tree.mounts()[0] == 2:
        return
    for controller in ("cpu", "cpuset"):
        point = tree.controller_point(controller)
        assert point
        subprocess.run(["umount", str(point)], check=True)
    if not (UNIFIED / "cgroup.controllers").exists():
        UNIFIED.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(UNIFIED)], check=True)


def measured(results: pathlib.Path) -> dict[str, Any]:
    """The runs by way, each of a second or two, with requests that are small."""
    Results(results).begin(this_machine({f"{work} {kib}": 2000.0 for work, kib in loads.CALIBRATED}))
    short = ["--seconds", "4", "--settle", "2", "--rounds", "1", "--patience", "0", "--keep-disturbed"]
    # Whoever measures must have a CPU when batch work has all of them, and these are slow.
    command = [
        "nice",
        "-n",
        "-15",
        sys.executable,
        "-m",
        "tests.perf.colocation",
        "--results",
        str(results),
        "--cgroup",
        "2",
        *short,
    ]
    command += ["--service", "compute", "--batch", "compute", "--way", *WAYS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return {run["way"]: run for run in map(json.loads, results.read_text().splitlines()) if "way" in run}


def main() -> None:
    """All claims."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with claim("the unified hierarchy has cpu and cpuset"):
        move_controllers()
        version, points = tree.mounts()
        offered = (points["cpu"] / "cgroup.controllers").read_text().split()
        assert (version, {"cpu", "cpuset"} <= set(offered)) == (2, True), (version, offered)
    runs: dict[str, Any] = {}
    with claim("every way is measured"):
        runs = measured(folder / "results.jsonl")
        assert list(runs) == WAYS, list(runs)
        assert all(run["requests"] > 100 for run in runs.values())
    with claim("groups count: batch work has CPUs where it runs, within a quota that never changes"):
        assert runs["alone"]["batch_cpus"] == 0 < runs["plain"]["batch_cpus"], runs["plain"]["batch_cpus"]
        assert runs["static:0.4"]["batch_cpus"] < 0.6, runs["static:0.4"]["batch_cpus"]
    with claim("the client and the agent are counted"):
        assert len(runs) == len(WAYS) and all(run["client_cpus"] > 0 for run in runs.values())
        assert all((run["agent_cpus"] > 0) == way.startswith("agent") for way, run in runs.items())
    with claim("nothing is left behind"):
        assert not list(tree.mounts()[1]["cpu"].glob(f"{tree.PREFIX}*"))
    tell(ALL)


if __name__ == "__main__":
    main()
