"""How long containers that begin wait for their CPUs, shares, quota and memory limit: cgroups of this machine.

    python -m tests.perf.agent.new_containers [--pods 250] [--containers 100]

The agent ticks once a second. Containers of one pod begin at random moments, half a second apart; a row says how long
it took from the group's appearance until all its files held their values, and what a round cost the agent.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from realnode import beginning
from realnode.command import Command, report
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import PREFIX, Tree

MiB = 2**20
WANTED = (100, 8 * MiB)
KINDS = (("BestEffort", "BE", (100, 8 * MiB)), ("Burstable", "LS", None))
BUDGET_SECONDS = 0.1
WIDE = 4.0
"""The machine may be shared: a run fails when the median is beyond so many times the budget."""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(tree: Tree, folder: pathlib.Path, *, pods: int, containers: int) -> list[float]:
    """Seconds for each container."""
    chance = random.Random(7)
    manifests = Manifests(folder / "cluster")
    manifests.node()
    manifests.config(threshold=threshold(enable=False))
    for number in range(pods):
        kube, koord, batch = KINDS[number % 2]
        pod = Pod(f"p{number}", kube, koord, ("one", "two"), batch=batch)
        manifests.pod(pod)
        tree.add(pod)
    front = Pod("front", containers=tuple(f"c{number}" for number in range(containers)), batch=WANTED)
    manifests.pod(front)
    for group in (tree.pod(front), tree.container(front, SANDBOX)):
        beginning.make(tree, group)
    beginning.delegate(tree, tree.pod(front))
    options = ["--cluster", str(manifests.folder), "--kubepods", tree.top, "--state-dir", str(folder / "state")]
    options += ["--mode", "enforce", "-q", "--no-http", "--on-stop", "restore", "--report", str(folder / "report")]
    agent = Command(["run", *options], folder / "agent.log")
    try:
        one = beginning.batch_values(tree, *WANTED)
        beginning.until(tree, tree.pod(front), {"memory": str(WANTED[1] * containers)}, since=time.monotonic())
        time.sleep(2.0)
        before = cpu_seconds(agent.process.pid)
        time.sleep(10.0)
        idle = (cpu_seconds(agent.process.pid) - before) / 10
        began, before = time.monotonic(), cpu_seconds(agent.process.pid)
        taken = []
        for name in front.containers:
            time.sleep(0.25 + 0.5 * chance.random())
            taken.append(beginning.begin(tree, front, name, one))
        busy = cpu_seconds(agent.process.pid) - before - idle * (time.monotonic() - began)
        agent.stop()
        state = report(folder / "report")["last"]["reaction"]["beginning"]
        each = 1000 * busy / containers
        print(f"{idle * 1000:.1f} ms of CPU a second at rest, {each:.1f} ms for each container besides")
        print(f"{state['rounds']} rounds, {state['watched']} groups watched, {state['overflows']} overflows")
        return taken
    finally:
        if agent.alive():
            agent.kill()


def main() -> int:
    """Print the figures; 1 when they are far beyond the budget."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--pods", type=int, default=250)
    asked.add_argument("--containers", type=int, default=100)
    given = asked.parse_args()
    tree = Tree(f"{PREFIX}beginning{os.getpid()}")
    with contextlib.closing(tree), tempfile.TemporaryDirectory(prefix="koordlite-perf-") as folder:
        tree.build()
        print(f"cgroup v{tree.version}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {given.pods} pods")
        taken = measured(tree, pathlib.Path(folder), pods=given.pods, containers=given.containers)
    print(beginning.told(taken))
    for budget in (0.02, BUDGET_SECONDS):
        print(f"{sum(each <= budget for each in taken)} of {len(taken)} within {1000 * budget:.0f} ms")
    return int(sorted(taken)[len(taken) // 2] > WIDE * BUDGET_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
