"""Runs inside the guest: short pressure triggers, and what the agent does with them. One line of JSON a claim."""

from __future__ import annotations

import contextlib
import os
import pathlib

from guestclaims import ALL, claim, tell
from realnode.command import Command, report
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree
from realnode.waiting import until

from koordlite.host.sentinel import PressureTrigger

SERVICE = Pod("service", "Burstable", "LS")
BATCH = Pod("batch")
WORK = pathlib.Path("/tmp/koordlite-test")
PATIENCE_SECONDS = 120


def check_trigger(tree: Tree, loads: int) -> None:
    """A trigger on the pods' own group, and its end."""
    group = f"{tree.top}/burstable"
    with claim("a window of 500 ms is taken"):
        path = pathlib.Path(tree.points["cpu"] / group / "cpu.pressure")
        trigger = PressureTrigger(str(path if tree.version == 2 else "/proc/pressure/cpu"))
    with claim("no pressure, no word"):
        assert trigger.wait(0.2) == "quiet"
    with claim("threads that wait for CPU are told of"):
        hogs = [tree.load(SERVICE) for _ in range(loads)]
        assert trigger.wait(PATIENCE_SECONDS) == "pressure"
        tree.end(*hogs)
    trigger.close()


def check_agent(tree: Tree) -> None:
    """The agent's own trigger leads to a round before its time."""
    # One thread only: an agent that shares an emulated machine with many hardly gets to its first tick.
    tree.load(BATCH)
    options = ["--cluster", str(WORK / "cluster"), "--state-dir", str(WORK / "state"), "--kubepods", tree.top]
    options += ["--mode", "enforce", "-q", "--interval", "8", "--no-http", "--report", str(WORK / "report")]
    agent = Command(["run", *options], WORK / "agent.log")
    group = tree.qos("BestEffort")
    with claim("best effort has a quota"):
        until(lambda: tree.quota_us(group) > 0 or not agent.alive(), "a quota", seconds=PATIENCE_SECONDS)
        assert agent.alive(), agent.said()
    before = tree.quota_us(group)
    hogs = [tree.load(SERVICE) for _ in range(len(os.sched_getaffinity(0)) + 2)]
    with claim("a surge leads to a lower quota"):
        until(lambda: tree.quota_us(group) < before, f"less than {before}", seconds=PATIENCE_SECONDS)
    tree.end(*hogs)
    with claim("the run ends in order"):
        assert agent.stop() == 0, agent.said()
    last = report(WORK / "report")["last"]["reaction"]
    with claim("the agent reacted by triggers"):
        assert last["way"] == "triggers" and last["pressure"] > 0, last
    with claim("and before the next tick"):
        assert last["surges"] > 0, last


def main() -> None:
    """All claims."""
    WORK.mkdir(parents=True)
    tree = Tree(f"{PREFIX}guest")
    with contextlib.closing(tree):
        tree.build()
        cluster = Manifests(WORK / "cluster")
        cluster.node()
        cluster.config(threshold=threshold("cfsQuota", percent=100))
        for pod in (SERVICE, BATCH):
            cluster.pod(pod)
            tree.add(pod)
        check_trigger(tree, 2 * len(os.sched_getaffinity(0)))
        check_agent(tree)
    tell(ALL)


if __name__ == "__main__":
    main()
