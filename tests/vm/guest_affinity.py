"""Runs on a real kernel with two NUMA nodes: pods with TCP connections to each other come onto one node, and go back.

Each pod has a network namespace of its own. Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}.
The argument is a folder to work in.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

from guestclaims import ALL, claim, tell
from realnode import command, talkers
from realnode.command import Command
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree, parse_list
from realnode.waiting import for_a_while, until

PATIENCE_SECONDS = 240
"""An emulated machine whose host is busy takes minutes to start Python."""
CACHE, FRONT, OTHER = (Pod(name, "Burstable", "LS") for name in ("cache-0", "front", "other"))
ADDRESSES = {CACHE: "10.99.0.1", FRONT: "10.99.0.2", OTHER: "10.99.0.3"}
ELSEWHERE = "10.99.9.9:443"
BETWEEN, BEYOND = 40, 8
SAMPLES = 100
SETTINGS = """
strategies:
  numaAffinity: {mode: enforce, sampleSeconds: 2, rounds: 2}
"""
NODES = {
    int(folder.name.removeprefix("node")): parse_list((folder / "cpulist").read_text())
    for folder in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")
}


class Shop:
    """The pods, each with one process of four threads."""

    def __init__(self, tree: Tree, work: pathlib.Path) -> None:
        self.tree, self.work = tree, work
        self.manifests = Manifests(work / "cluster")
        self.manifests.node()
        self.manifests.kubelet(cpuManagerPolicy="none")
        self.manifests.config(threshold={"clusterStrategy": {"enable": False}})
        (work / "koordlite.yaml").write_text(SETTINGS)
        cache, front = ADDRESSES[CACHE], ADDRESSES[FRONT]
        self.processes = {
            CACHE: self._start(CACHE, [f"6379-{front}:{40000 + n}" for n in range(BETWEEN)]),
            FRONT: self._start(
                FRONT,
                [
                    *(f"{40000 + n}-{cache}:6379" for n in range(BETWEEN)),
                    *(f"{50000 + n}-{ELSEWHERE}" for n in range(BEYOND)),
                ],
            ),
            OTHER: self._start(OTHER, [f"{40000 + n}-{ELSEWHERE}" for n in range(BETWEEN)]),
        }

    def _start(self, pod: Pod, others: list[str]) -> subprocess.Popen[bytes]:
        self.manifests.pod(pod)
        path = self.manifests.folder / f"pod-{pod.name}.yaml"
        body = json.loads(path.read_text())
        limits = {"cpu": "2", "memory": "32Mi"}
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}, "limits": limits}
        path.write_text(json.dumps(body))
        self.tree.add(pod)
        ready = self.work / f"{pod.name}.ready"
        program = ["unshare", "-n", sys.executable, "-S", talkers.__file__, str(ready), ADDRESSES[pod], *others]
        process = subprocess.Popen(program, stdin=subprocess.DEVNULL)
        for point in set(self.tree.points.values()):
            (point / self.tree.container(pod, "main") / "cgroup.procs").write_text(str(process.pid))
        until(ready.exists, f"{pod.name} has its connections", seconds=PATIENCE_SECONDS)
        return process

    def allowed(self, pod: Pod) -> set[tuple[str, ...]]:
        """The lines about allowed CPUs and memory of every thread, as the kernel prints them."""
        tasks = pathlib.Path(f"/proc/{self.processes[pod].pid}/task").iterdir()
        texts = [(task / "status").read_text().splitlines() for task in tasks]
        assert len(texts) == 4, texts
        wanted = ("Cpus_allowed", "Mems_allowed")
        return {tuple(line for line in lines if line.startswith(wanted)) for lines in texts}

    def nodes(self, pod: Pod) -> tuple[set[int], set[int]]:
        """The NUMA nodes of all CPUs that its threads may use, and those of its memory; none while threads differ."""
        found = self.allowed(pod)
        if len(found) > 1:
            return set(), set()
        (lines,) = found
        pairs = (line.split(":\t") for line in lines)
        lists = {name: parse_list(text) for name, text in pairs if name.endswith("_list")}
        cpus = lists["Cpus_allowed_list"]
        return {node for node, held in NODES.items() if cpus & held}, lists["Mems_allowed_list"]

    def side_by_side(self, samples: int) -> float:
        """In which percent of so many looks a thread of each of the two pods last ran on the same NUMA node."""
        alike = looks = 0
        for _ in range(samples):
            here, there = (self._last_ran(pod) for pod in (FRONT, CACHE))
            alike += sum(one == other for one in here for other in there)
            looks += len(here) * len(there)
            time.sleep(0.05)
        return 100 * alike / looks

    def _last_ran(self, pod: Pod) -> list[int]:
        """The NUMA nodes of the CPUs on which its threads ran last."""
        tasks = pathlib.Path(f"/proc/{self.processes[pod].pid}/task").iterdir()
        cpus = [int((task / "stat").read_text().rpartition(")")[2].split()[36]) for task in tasks]
        return [next(node for node, held in NODES.items() if cpu in held) for cpu in cpus]

    def together(self) -> bool:
        """Both pods on one NUMA node, with all of its CPUs and its memory."""
        (cpus, mems), other = self.nodes(FRONT), self.nodes(CACHE)
        return (cpus, mems) == other and len(cpus) == 1 and cpus == mems

    def agent(self, *more: str) -> Command:
        """The agent at work."""
        options = ["--cluster", str(self.manifests.folder), "--state-dir", str(self.work / "state")]
        options += ["--kubepods", self.tree.top, "--config", str(self.work / "koordlite.yaml")]
        modes = ["--mode", "observe", "--strategy", "cpusetPools=enforce", "--strategy", "numaAffinity=enforce"]
        log = self.work / f"log-{len(list(self.work.glob('log-*')))}"
        return Command(["run", *options, *modes, "--no-http", "-q", "--interval", "0.5", *more], log)

    def files(self) -> dict[str, bytes]:
        """Every file that may be changed: CPUs, quotas and memory nodes."""
        mems = (self.tree.file(group, "cpuset").with_name("cpuset.mems") for group in self.tree.groups())
        return {**self.tree.content(), **{str(path): path.read_bytes() for path in mems}}


def soon(shop: Shop, agent: Command) -> None:
    """Until the two pods are together."""
    try:
        until(shop.together, "", seconds=PATIENCE_SECONDS)
    except AssertionError:
        found = {pod.name: shop.allowed(pod) for pod in shop.processes}
        raise AssertionError(f"{found}\n{agent.said()[-800:]}") from None


def check(shop: Shop) -> None:
    """Together, through a kill, and back."""
    found = {pod: shop.allowed(pod) for pod in shop.processes}
    files = shop.files()
    with claim("before, every thread may use every CPU and all memory"):
        assert [shop.nodes(pod) for pod in shop.processes] == [({0, 1}, {0, 1})] * 3, found
    apart = shop.side_by_side(SAMPLES)
    agent = shop.agent("--report", str(shop.work / "report"))
    with claim("all threads of pods that talk have the CPUs and the memory of one NUMA node"):
        soon(shop, agent)
        ((lines),) = shop.allowed(FRONT)
        tell(f"seen: {'; '.join(lines)}")
    with claim("threads of both really run on one NUMA node"):
        beside = shop.side_by_side(SAMPLES)
        tell(
            f"seen: their threads ran on the same NUMA node in {apart:.0f} % of the looks before, {beside:.0f} % after"
        )
        assert beside == 100
    with claim("a pod that talks to others only stays where it was"):
        assert shop.allowed(OTHER) == found[OTHER]
    with claim("the decision says how much of its connections are where"):
        assert agent.stop() == 0, agent.said()[-600:]
        document = command.report(shop.work / "report")
        decisions = [d for d in document["decisions"] if d["subject"] == f"pod/default/{FRONT.name}"]
        said = [d for d in decisions if d["strategy"] == "numaAffinity"][-1]
        assert "83 % of its connections (40 of 48) are with default/cache-0 there" in said["sentence"], said
        assert not command.refusals(document), command.refusals(document)
    third = None
    with claim("a stop leaves them, and an agent that is killed and started again changes nothing"):
        assert shop.together()
        second = shop.agent()
        until(lambda: command.TAKEN_OVER in second.said(), "it begins", seconds=PATIENCE_SECONDS)
        second.kill()
        third = shop.agent("--on-stop", "restore")
        until(lambda: command.TAKEN_OVER in third.said(), "it begins again", seconds=PATIENCE_SECONDS)
        for_a_while(shop.together, "they stay together", seconds=5.0)
    with claim("after restore every line of every thread is as it was, byte for byte"):
        assert third and third.stop() == 0, third and third.said()[-600:]
        assert {pod: shop.allowed(pod) for pod in shop.processes} == found
    with claim(
        "and every file, but for empty sets of version 2, which no kernel takes back while tasks are in a group"
    ):
        present = shop.files()
        differ = {path: (raw, present[path]) for path, raw in files.items() if present[path] != raw}
        assert all(raw == b"\n" for raw, _ in differ.values()), differ
        assert shop.tree.version == 2 or not differ, differ
        tell(f"files that had an empty set: {len(differ)}")


def main() -> None:
    """All claims."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-affinity")
    work.mkdir(parents=True, exist_ok=True)
    tree = Tree(f"{PREFIX}affinity-{os.getpid()}").build()
    with contextlib.closing(tree):
        shop = Shop(tree, work)
        try:
            check(shop)
        finally:
            for process in shop.processes.values():
                process.kill()
                process.wait()
    tell(ALL)


if __name__ == "__main__":
    main()
