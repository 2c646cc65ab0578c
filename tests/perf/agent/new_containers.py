"""How long containers that begin wait for their CPUs, shares, quota and memory limit: cgroups of this machine.

    python -m tests.perf.agent.new_containers [--pods 250] [--containers 100]

The agent ticks once a second. Containers of one pod begin at random moments, half a second apart; a row says how long
it took from the group's appearance until all its files held their values, and what a round cost the agent.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from realnode import beginning
from realnode.command import report
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree

from tests.perf.agent import nodes

MiB = 2**20
WANTED = (100, 8 * MiB)
BUDGET_SECONDS = 0.1
WIDE = 4.0
"""The machine may be shared: a run fails when the median is beyond so many times the budget."""


def measured(tree: Tree, folder: pathlib.Path, *, pods: int, containers: int) -> list[float]:
    """Seconds for each container."""
    chance = random.Random(7)
    manifests = Manifests(folder / "cluster")
    manifests.node()
    manifests.config(threshold=threshold(enable=False))
    nodes.populate(tree, manifests, pods, batch=WANTED)
    front = Pod("front", containers=tuple(f"c{number}" for number in range(containers)), batch=WANTED)
    manifests.pod(front)
    for group in (tree.pod(front), tree.container(front, SANDBOX)):
        beginning.make(tree, group)
    beginning.delegate(tree, tree.pod(front))
    with nodes.enforcing(tree, manifests, folder, "--report", str(folder / "report")) as agent:
        one = beginning.batch_values(tree, *WANTED)
        beginning.until(tree, tree.pod(front), {"memory": str(WANTED[1] * containers)}, since=time.monotonic())
        time.sleep(2.0)
        before = nodes.cpu_seconds(agent.process.pid)
        time.sleep(10.0)
        idle = (nodes.cpu_seconds(agent.process.pid) - before) / 10
        began, before = time.monotonic(), nodes.cpu_seconds(agent.process.pid)
        taken = []
        for name in front.containers:
            time.sleep(0.25 + 0.5 * chance.random())
            taken.append(beginning.begin(tree, front, name, one))
        busy = nodes.cpu_seconds(agent.process.pid) - before - idle * (time.monotonic() - began)
        agent.stop()
        state = report(folder / "report")["last"]["reaction"]["beginning"]
        each = 1000 * busy / containers
        print(f"{idle * 1000:.1f} ms of CPU a second at rest, {each:.1f} ms for each container besides")
        print(f"{state['rounds']} rounds, {state['watched']} groups watched, {state['overflows']} overflows")
        return taken


def main() -> int:
    """Print the figures; 1 when they are far beyond the budget."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--pods", type=int, default=250)
    asked.add_argument("--containers", type=int, default=100)
    given = asked.parse_args()
    with nodes.private("beginning", f"{given.pods} pods") as (tree, folder):
        taken = measured(tree, folder, pods=given.pods, containers=given.containers)
    print(beginning.told(taken))
    for budget in (0.02, BUDGET_SECONDS):
        print(f"{sum(each <= budget for each in taken)} of {len(taken)} within {1000 * budget:.0f} ms")
    return int(sorted(taken)[len(taken) // 2] > WIDE * BUDGET_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
