"""How long best effort keeps its CPU after latency-sensitive load begins: real processes on cgroup v1 of this machine.

    python -m tests.perf.agent.reaction [--seconds 160] [--trials 200] [--way tick] [--way sentinel] [--way quick]

A trial wakes a busy process of a service with SIGCONT at a random moment of the agent's second, and watches the quota
of the besteffort group: `first` is the time until it is written lower, `settled` until the last write of the next half
second that lowers it. Prints a row a way, with what the looks between ticks cost, the load of the machine included.
Trials in which the quota did not fall at all within 3 seconds are counted as `unseen` and are in no figure.

Ends after `--seconds`, however many trials there were: best effort grows by 10 % of the machine a second, so that a
trial takes about 5 s, and far longer where other work leaves it nothing to grow into. Most of the time goes to samples,
where the tail is of interest. The 99th percentile of fewer than 100 trials is close to their longest: ask for
`--seconds 1000`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from realnode.command import Command, running
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import PREFIX, Load, Tree

SERVICE = Pod("service", "Burstable", "LS")
BATCH = Pod("batch", containers=("main", "side"))
REACTIONS = {
    "sentinel": {"reaction": "automatic"},
    "quick": {"reaction": "automatic", "reactionHertz": 100, "reactionCpuPercent": 1.0},
    "tick": {"reaction": "off"},
}
"""Section `agent` of the configuration."""
SHARES = {"sentinel": 4, "quick": 2, "tick": 1}
"""How the time is divided."""
PROGRESS_SECONDS = 10.0
POLL_SECONDS = 0.001
SETTLE_SECONDS = 0.5
LONGEST_SECONDS = 3.0
THRESHOLD_PERCENT = 100
"""So that other work on this machine leaves best effort something to lose."""
ROOM_US = 75_000 * len(os.sched_getaffinity(0))
"""Quota best effort must have grown to before a trial, three quarters of the machine. A limit that still grows is right
for more than it allows: the load of one CPU then need not make it shrink."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """Milliseconds from the start of the load."""

    first: float
    settled: float


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine with a service that sleeps and greedy best-effort work."""

    tree: Tree
    service: Load
    fd: int

    def quota_us(self) -> int:
        """Quota of the besteffort group, by a kept descriptor."""
        return int(os.pread(self.fd, 32, 0))

    def burst(self) -> Trial | None:
        """One trial; None when the quota never moved."""
        before = self.quota_us()
        began = time.monotonic()
        os.kill(self.service.pid, signal.SIGCONT)
        try:
            return self._watch(before, began)
        finally:
            os.kill(self.service.pid, signal.SIGSTOP)

    def _watch(self, before: int, began: float) -> Trial | None:
        first = settled = 0.0
        end = began + LONGEST_SECONDS
        while (now := time.monotonic()) < end:
            quota = self.quota_us()
            if quota < before:
                settled = (now - began) * 1000
                if not first:
                    first, end = settled, now + SETTLE_SECONDS
            before = quota
            time.sleep(POLL_SECONDS)
        return Trial(first, settled) if first else None


@contextlib.contextmanager
def node(folder: pathlib.Path) -> Iterator[Node]:
    """The groups, the cluster and the processes."""
    tree = Tree(f"{PREFIX}reaction{os.getpid()}")
    with contextlib.closing(tree):
        tree.build()
        manifests = Manifests(folder / "cluster")
        manifests.node()
        manifests.config(threshold=threshold("cfsQuota", percent=THRESHOLD_PERCENT))
        for pod in (SERVICE, BATCH):
            manifests.pod(pod)
            tree.add(pod)
        for container in BATCH.containers:
            tree.load(BATCH, container=container)
        service = tree.load(SERVICE)
        os.kill(service.pid, signal.SIGSTOP)
        fd = os.open(tree.file(tree.qos("BestEffort"), "cpu"), os.O_RDONLY)
        yield Node(tree, service, fd)
        os.close(fd)


def agent(way: str, at: Node, folder: pathlib.Path) -> contextlib.AbstractContextManager[Command]:
    """The agent, one tick a second, best effort being limited."""
    config = folder / f"{way}.yaml"
    config.write_text(json.dumps({"agent": REACTIONS[way], "strategies": {"cpuSuppress": {"growHoldSeconds": 0}}}))
    options = ["--config", str(config), "--cluster", str(folder / "cluster"), "--kubepods", at.tree.top]
    options += ["--state-dir", str(folder / f"state-{way}"), "--on-stop", "restore", "--mode", "enforce", "-q"]
    options += ["--port", "0"]
    return running(["run", *options], folder / f"{way}.log", lambda _: at.quota_us() > 0, "best effort has a quota")


def trials(at: Node, count: int, seconds: float) -> tuple[list[Trial], int]:
    """At most so many trials in so many seconds, and how many more were never answered. None begins while others leave
    nothing to lose. Progress goes to standard error."""
    chance, done, unseen = random.Random(4), list[Trial](), 0
    begun = shown = time.monotonic()
    while len(done) < count and (now := time.monotonic()) < begun + seconds:
        if now >= shown + PROGRESS_SECONDS:
            shown = now
            grown = f"quota {at.quota_us() / 1000:.0f} of {ROOM_US / 1000:.0f} ms, load {os.getloadavg()[0]:.1f}"
            print(f"{now - begun:4.0f} s: {len(done)} trials, {grown}", file=sys.stderr, flush=True)
        if at.quota_us() < ROOM_US:
            time.sleep(0.05)
            continue
        time.sleep(chance.random())
        if at.quota_us() < ROOM_US:
            continue
        trial = at.burst()
        if trial:
            done.append(trial)
        else:
            unseen += 1
    return done, unseen


def state(of: Command) -> dict[str, object]:
    """What the agent says about its own looks."""
    url = re.search(r"listening on (\S+)", of.said())
    assert url, of.said()
    with urllib.request.urlopen(f"{url[1]}/state", timeout=10) as answer:
        found: dict[str, object] = json.load(answer)["reaction"]
    return found


_LEAST_TRIALS = 2
"""What a percentile needs."""


def row(way: str, done: list[Trial], unseen: int, looks: dict[str, object]) -> str:
    """p50, p99 and the longest, in milliseconds; share of a core for looking."""
    cells = [f"{way:<9} {looks['way']!s:<9} {len(done):>6} {unseen:>6}"]
    if len(done) < _LEAST_TRIALS:
        return f"{cells[0]}  too few: other work left best effort nothing to lose, or raise --seconds"
    for values in ([t.first for t in done], [t.settled for t in done]):
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        cells.append(f"{cuts[49]:>8.0f} {cuts[98]:>8.0f} {max(values):>8.0f}")
    cells.append(f"{looks['cost_percent']:>7.3f} %  {looks['hertz']:.0f} Hz, {looks['surges']} surges")
    return "  ".join(cells)


def main() -> None:
    """All ways that were asked for."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--seconds", type=float, default=160.0, help="for all ways together")
    words.add_argument("--trials", type=int, default=200, help="of one way, at most")
    words.add_argument("--way", action="append", choices=list(REACTIONS))
    given = words.parse_args()
    print(f"{os.cpu_count()} CPUs, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; milliseconds")
    print("asked     got       trials unseen  first50  first99      max  settled50  set.99      max    looks")
    with tempfile.TemporaryDirectory() as scratch, node(pathlib.Path(scratch)) as at:
        ways = given.way or list(REACTIONS)
        for way in ways:
            seconds = given.seconds * SHARES[way] / sum(SHARES[each] for each in ways)
            with agent(way, at, pathlib.Path(scratch)) as begun:
                done, unseen = trials(at, given.trials, seconds)
                print(row(way, done, unseen, state(begun)), flush=True)
    print(f"load {os.getloadavg()[0]:.1f} after, own work included")


if __name__ == "__main__":
    main()
