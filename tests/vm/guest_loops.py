"""Runs on a real kernel: `koordlite run` lets a throttled service go further, protects its memory, evicts batch work.

Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}. The argument is a folder to work in.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys

from guestclaims import ALL, claim, tell
from realnode.command import Command, soon
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree

WEB = Pod("web", "Burstable", "LS")
BATCH = Pod("batch")
LIMIT_MILLI, QUOTA_US = 200, 20_000
QUALITY = {"clusterStrategy": {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}}}
BURST = {"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300}}
SETTINGS = "strategies:\n  memoryEvict:\n    beMemoryEvict: true\n"
FILES = {
    1: {"burst": ("cpu", "cpu.cfs_burst_us"), "min": ("memory", "memory.min")},
    2: {"burst": ("cpu", "cpu.max.burst"), "min": ("memory", "memory.min")},
}


class Machine:
    """A service with a limit that is too small for it, a batch pod, and the manifests of both."""

    def __init__(self, tree: Tree, work: pathlib.Path) -> None:
        self.tree, self.work = tree, work
        self.manifests = Manifests(work / "cluster")
        # With a CPU reserved every set is written, on a quiet machine too.
        self.manifests.node(reservation={"reservedCPUs": "0"})
        for pod in (WEB, BATCH):
            self.manifests.pod(pod)
            tree.add(pod)
        self._limit(WEB)
        self.configure(memory_percent=99)
        self.service = tree.container(WEB, "main")
        for group in (tree.pod(WEB), self.service):
            tree.file(group, "cpu").write_text(str(QUOTA_US))
        tree.load(WEB)
        tree.load(BATCH, duty=0.01)
        (work / "koordlite.yaml").write_text(SETTINGS)

    def _limit(self, pod: Pod) -> None:
        """The manifest says what the quota stands for."""
        path = self.manifests.folder / f"pod-{pod.name}.yaml"
        body = json.loads(path.read_text())
        body["spec"]["containers"][0]["resources"]["limits"] = {"cpu": f"{LIMIT_MILLI}m"}
        path.write_text(json.dumps(body))

    def configure(self, *, memory_percent: int) -> None:
        """The ConfigMap: burst, memory QoS, and from how much memory on batch work has to go."""
        strategy = {"enable": True, "memoryEvictThresholdPercent": memory_percent, "memoryEvictLowerPercent": 0}
        strategy |= {"cpuSuppressThresholdPercent": 100}
        self.manifests.config(threshold={"clusterStrategy": strategy}, qos=QUALITY, burst=BURST)

    def run(self) -> Command:
        """The agent at work; a stop restores."""
        options = ["--cluster", str(self.manifests.folder), "--state-dir", str(self.work / "state")]
        options += ["--published", str(self.work / "published"), "--config", str(self.work / "koordlite.yaml")]
        how = ["--kubepods", self.tree.top, "--mode", "enforce", "--no-http", "-q", "--interval", "0.5"]
        return Command(["run", *options, *how, "--on-stop", "restore"], self.work / "agent.log")

    def number(self, group: str, what: str) -> int | None:
        """One value of a group; None where this kernel has no such file."""
        controller, name = FILES[self.tree.version][what]
        path = self.tree.points[controller] / group / name
        return int(path.read_text()) if path.exists() else None

    def numbers(self) -> dict[str, int | None]:
        """What burst and protection stand at, by group."""
        return {
            f"{group}/{what}": self.number(group, what) for group in self.tree.groups() for what in ("burst", "min")
        }

    def evicted(self) -> str:
        """What the folder cluster has recorded."""
        return "".join(path.read_text() for path in self.work.rglob("*evict*") if path.is_file())


def check(machine: Machine) -> None:
    """Each loop, and the way back."""
    tree, limits, numbers = machine.tree, machine.tree.content(), machine.numbers()
    assert not machine.evicted()
    agent = machine.run()
    with claim("a throttled container gets more quota, and its pod as much"):
        soon(lambda: tree.quota_us(machine.service) > QUOTA_US, "the quota grows", agent)
        assert tree.quota_us(tree.pod(WEB)) >= tree.quota_us(machine.service)
    with claim("it may burst, within its quota"):
        if machine.number(machine.service, "burst") is not None:
            soon(lambda: machine.number(machine.service, "burst"), "a burst is set", agent)
            assert (machine.number(machine.service, "burst") or 0) <= tree.quota_us(machine.service)
    with claim("half of what it requests is protected, in each group above it as well"):
        groups = (machine.service, tree.pod(WEB), tree.qos("Burstable"), tree.top)
        if machine.number(machine.service, "min") is not None:
            soon(lambda: all(machine.number(group, "min") == 8 * 2**20 for group in groups), "memory.min", agent)
    with claim("nobody is evicted while memory is not short"):
        assert not machine.evicted()
    with claim("the batch pod goes when it is, and only that"):
        machine.configure(memory_percent=1)
        soon(machine.evicted, "an eviction", agent)
        assert BATCH.uid in machine.evicted()
        assert WEB.uid not in machine.evicted()
    with claim("a stop puts everything back"):
        assert agent.stop() == 0, agent.said()[-600:]
        assert not tree.changed(limits), tree.changed(limits)
        assert machine.numbers() == numbers


def main() -> None:
    """All claims."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-loops")
    work.mkdir(parents=True, exist_ok=True)
    tree = Tree(f"{PREFIX}loops-{os.getpid()}").build()
    with contextlib.closing(tree):
        check(Machine(tree, work))
    tell(ALL)


if __name__ == "__main__":
    main()
