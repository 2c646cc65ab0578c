"""Runs inside the guest: batch resources on cgroup v2, and containers that begin between two ticks.

Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import random
import time
from collections.abc import Sequence

from guestclaims import ALL, claim, tell
from realnode import beginning
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.quick import Child, Quick
from realnode.tree import PREFIX, Tree
from realnode.waiting import until

from koordlite import config
from koordlite.agent import Agent
from koordlite.clock import RealClock
from koordlite.host import bundle
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal
from koordlite.kube.folder.manifests import ManifestCluster

MiB = 2**20
soon = functools.partial(until, seconds=120)
"""With the patience an emulated machine needs."""
WORK = pathlib.Path("/tmp/koordlite-batch")
CONTAINERS = ("main", "side")
BATCH = Pod("batch", containers=CONTAINERS, batch=(400, 64 * MiB))
MORE = Pod("batch", containers=CONTAINERS, batch=(600, 96 * MiB))
LESS = Pod("batch", containers=CONTAINERS, batch=(200, 32 * MiB))
LATE = Pod("late", containers=("main", *(f"c{number}" for number in range(10))), batch=(300, 16 * MiB))
NAMES = ("shares", "quota", "memory")


class Written(RealFiles):
    """This machine's files, with the writes to them in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, path: str, data: bytes) -> None:
        """As `ports.Files`."""
        self.writes.append(path)
        super().write(path, data)

    def take(self, file: str) -> list[str]:
        """Groups by their last name whose `file` was written since the last time, in order."""
        taken = [path.split("/")[-2] for path in self.writes if path.endswith(f"/{file}")]
        self.writes = [path for path in self.writes if not path.endswith(f"/{file}")]
        return taken


def held(tree: Tree, pod: Pod) -> list[dict[str, str]]:
    """What the files of the pod's group and of its containers hold."""
    groups = (tree.pod(pod), *(tree.container(pod, name) for name in pod.containers))
    return [{name: beginning.path(tree, group, name).read_text().strip() for name in NAMES} for group in groups]


def wanted(tree: Tree, pod: Pod) -> list[dict[str, str]]:
    """What they are to hold."""
    assert pod.batch is not None
    milli, memory = pod.batch
    count = len(pod.containers)
    whole = beginning.batch_values(tree, milli * count, memory * count)
    return [whole, *([beginning.batch_values(tree, milli, memory)] * count)]


def content(tree: Tree) -> dict[str, bytes]:
    """The bytes of those files in every group."""
    paths = [beginning.path(tree, group, name) for group in tree.groups() if group != tree.top for name in NAMES]
    return {str(path): path.read_bytes() for path in paths}


def check_order(tree: Tree, manifests: Manifests, found: dict[str, bytes]) -> None:
    """In this process, write by write: pod before container when growing, container before pod when shrinking."""
    files = Written()
    host = bundle.bind(files, RealClock(), kubepods=tree.top)
    settings = config.with_modes(config.default(), "enforce")
    pod = tree.pod(BATCH).rpartition("/")[2]
    containers = [BATCH.container_id(name) for name in CONTAINERS]
    with Journal.open(WORK / "order") as journal:
        for asked, what, first in ((BATCH, "from no limit", "below"), (MORE, "more", "pod"), (LESS, "less", "below")):
            manifests.pod(asked)
            agent = Agent(host, ManifestCluster(manifests.folder, clock=host.clock), settings, journal)
            files.writes.clear()
            tick = agent.tick()
            with claim(f"{what}: cpu.weight, cpu.max and memory.max of pod and containers"):
                refused = [step for step in tick.applied if not step.ok]
                assert held(tree, asked) == wanted(tree, asked), (held(tree, asked), refused)
            for file in ("memory.max", "cpu.max"):
                with claim(f"{what}: {file} is written in an order that is legal at each step"):
                    order = files.take(file)
                    assert sorted(order) == sorted([pod, *containers]), order
                    assert (order[0] == pod) is (first == "pod") and (order[-1] == pod) is (first == "below"), order
            with claim(f"{what}: a second tick writes none of them"):
                agent.tick()
                agent.tick()
                again = [files.take(file) for file in ("cpu.weight", "cpu.max", "memory.max")]
                assert not any(again[1:]), again
        agent.put_back()
    with claim("every byte is back"):
        assert content(tree) == found, difference(tree, found)
    manifests.pod(BATCH)


def difference(tree: Tree, found: dict[str, bytes]) -> dict[str, tuple[bytes, bytes | None]]:
    present = content(tree)
    return {path: (raw, present.get(path)) for path, raw in found.items() if present.get(path) != raw}


def check_kill(tree: Tree, quick: Quick, options: Sequence[str], found: dict[str, bytes]) -> None:
    """kill -9 in between: what stands stays, the next agent goes on, restore gives every byte back."""
    chance = random.Random(18)
    for turn in range(3):
        agent = enforce(quick, options, "--interval", "0.3")
        if turn == 0:
            with claim("the first agent has the values in force"):
                soon(lambda: held(tree, BATCH) == wanted(tree, BATCH), "values")
        time.sleep(chance.uniform(0.0, 1.0))
        agent.kill()
        with claim(f"agent {turn + 1} is killed, and what it wrote stays"):
            assert held(tree, BATCH) == wanted(tree, BATCH)
    with claim("koordlite restore gives every byte back"):
        done = quick.run("restore", *options)
        assert done.said().endswith("exit 0\n"), done.said()
        assert content(tree) == found, difference(tree, found)


def check_beginning(tree: Tree, manifests: Manifests, quick: Quick, options: Sequence[str]) -> None:
    """A pod and containers of which the agent learns between two ticks that are a minute apart."""
    manifests.pod(LATE)
    group = tree.pod(LATE)
    agent = enforce(quick, options, "--interval", "60", "--on-stop", "restore")
    with claim("the first tick is over"):
        soon(lambda: held(tree, BATCH) == wanted(tree, BATCH), "values")
    assert LATE.batch is not None
    whole, each = wanted(tree, LATE)[:2]
    with claim("a pod that begins has its values before the next tick"):
        taken = beginning.until(tree, group, whole, since=beginning.make(tree, group), seconds=30.0)
    beginning.delegate(tree, group)
    beginning.make(tree, tree.container(LATE, SANDBOX))
    with claim("containers that begin have their values before the next tick"):
        times = [beginning.begin(tree, LATE, name, each) for name in LATE.containers]
    tell(f"cgroup v2: a pod had its values after {1000 * taken:.1f} ms; {beginning.told(times)}")
    with claim("their CPUs are those of best effort"):
        best_effort = tree.effective(tree.qos("BestEffort"))
        assert {frozenset(tree.effective(tree.container(LATE, name))) for name in LATE.containers} == {
            frozenset(best_effort)
        }
    with claim("the run ends in order"):
        agent.stop()
        assert agent.said().endswith("exit 0\n"), agent.said()


def enforce(quick: Quick, options: Sequence[str], *more: str) -> Child:
    """The agent at work."""
    return quick.start("run", *options, "--mode", "enforce", "--no-http", "-q", *more)


def main() -> None:
    """All claims."""
    WORK.mkdir(parents=True, exist_ok=True)
    tree = Tree(f"{PREFIX}batch-{os.getpid()}").build()
    with contextlib.closing(tree), Quick(WORK / "quick") as quick:
        manifests = Manifests(WORK / "cluster")
        manifests.node()
        manifests.config(threshold=threshold(enable=False))
        manifests.pod(BATCH)
        tree.add(BATCH)
        found = content(tree)
        options = ["--cluster", str(manifests.folder), "--state-dir", str(WORK / "state"), "--kubepods", tree.top]
        check_order(tree, manifests, found)
        check_kill(tree, quick, options, found)
        check_beginning(tree, manifests, quick, options)
    tell(ALL)


if __name__ == "__main__":
    main()
