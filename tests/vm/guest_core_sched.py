"""Runs inside the guest: an agent gives real pods their cookies, the kernel keeps them off each other's cores, and all
comes back. Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping

from guestclaims import ALL, claim, tell
from realnode.manifests import Manifests
from realnode.pods import SANDBOX, Pod
from realnode.tree import PREFIX, Load, Tree

from koordlite import config
from koordlite.agent import Agent
from koordlite.apply import restore
from koordlite.clock import RealClock
from koordlite.host import bundle
from koordlite.host.bundle import Host
from koordlite.host.core_scheduling import RealCoreScheduling
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal
from koordlite.kube.folder.manifests import ManifestCluster

GROUP, POLICY = "koordinator.sh/core-sched-group-id", "koordinator.sh/core-sched-policy"
WEB, API = Pod("web", "Burstable", "LS"), Pod("api", "Burstable", "LS")
DB = Pod("db", "Burstable", "LS", labels=((GROUP, "db"),))
ALONE = Pod("alone", "Burstable", "LS", labels=((POLICY, "exclusive"),))
OPEN = Pod("open", "Burstable", "LS", labels=((POLICY, "none"),))
BATCH = Pod("batch")
PODS = (WEB, API, DB, ALONE, OPEN, BATCH)
ON = {
    "clusterStrategy": {
        "policies": {"cpuPolicy": "coreSched"},
        "lsClass": {"cpuQOS": {"enable": True, "coreExpeller": True}},
        "beClass": {"cpuQOS": {"enable": True, "coreExpeller": False, "schedIdle": 1}},
    }
}
KERNEL = RealCoreScheduling()
WINDOW_SECONDS = 3.0


def siblings() -> set[int]:
    """Two hyperthreads of one core."""
    text = pathlib.Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").read_text().strip()
    first, last = text.replace("-", ",").split(",")
    return {int(first), int(last)}


def used_seconds(pid: int) -> float:
    """CPU time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def together(*pids: int) -> float:
    """CPUs that these processes use together."""
    began, before = time.monotonic(), sum(map(used_seconds, pids))
    time.sleep(WINDOW_SECONDS)
    return (sum(map(used_seconds, pids)) - before) / (time.monotonic() - began)


class Guest:
    """The machine with pods of several groups, and an agent of which only core scheduling is on."""

    def __init__(self, work: pathlib.Path, tree: Tree) -> None:
        self.tree, self.manifests = tree, Manifests(work / "cluster")
        self.manifests.node()
        self.manifests.config(qos=ON)
        self.loads: dict[str, Load] = {}
        for pod in PODS:
            self.manifests.pod(pod)
            tree.add(pod)
            self.loads[pod.name] = tree.load(pod)
        self.host: Host = bundle.bind(RealFiles(), RealClock(), kubepods=tree.top)
        self.cluster = ManifestCluster(self.manifests.folder, clock=self.host.clock)
        self.journal = Journal.open(work / "state")

    def agent(self) -> Agent:
        """An agent on this machine."""
        settings = config.with_modes(config.with_modes(config.default(), "off"), "enforce", frozenset({"coreSched"}))
        return Agent(self.host, self.cluster, settings, self.journal)

    def cookies(self) -> Mapping[str, int]:
        """Of the busy process of each pod."""
        return {name: KERNEL.cookie(load.pid) for name, load in self.loads.items()}


def enter(tree: Tree, pod: Pod, container: str) -> subprocess.Popen[bytes]:
    """A process that enters a container from outside, as `kubectl exec` does."""
    process = subprocess.Popen(["sleep", "600"])
    for point in set(tree.points.values()):
        (point / tree.container(pod, container) / "cgroup.procs").write_text(str(process.pid))
    return process


def check_groups(guest: Guest, agent: Agent) -> None:
    """Who shares a core with whom, by the cookies and by the CPU time of two that want the same core."""
    both = siblings()
    for name in ("web", "batch"):
        os.sched_setaffinity(guest.loads[name].pid, both)
    before = together(guest.loads["web"].pid, guest.loads["batch"].pid)
    tick = agent.tick()
    with claim("no write was refused"):
        refused = [f"{step.place}: {step.error}" for step in tick.applied if not step.ok]
        assert tick.applied, [f"{d.subject} {d.reason} {dict(d.evidence)}" for d in tick.decisions]
        assert not refused, refused
    held = guest.cookies()
    with claim("pods of one group have one cookie, others have others, and those that want none have none"):
        assert held["open"] == 0, held
        assert held["web"] == held["api"], held
        assert len({held[name] for name in ("web", "db", "alone", "batch", "open")}) == 5, held
    after = together(guest.loads["web"].pid, guest.loads["batch"].pid)
    for name in ("web", "api"):
        os.sched_setaffinity(guest.loads[name].pid, both)
    same = together(guest.loads["web"].pid, guest.loads["api"].pid, guest.loads["batch"].pid)
    with claim("on one core two groups take turns, where they ran side by side before"):
        assert before > 1.5, (before, after, same)
        assert after < 1.2, (before, after, same)
    guest.tree.end(guest.loads.pop("batch"))
    os.sched_setaffinity(guest.loads["db"].pid, set(range(os.cpu_count() or 1)) - both)
    friends = together(guest.loads["web"].pid, guest.loads["api"].pid)
    with claim("two of one group still run side by side"):
        assert friends > 1.5, (friends, same)
    with claim("the group of a pod whose class is schedIdle is idle"):
        raw = guest.host.cgroups.read_raw(guest.tree.pod(BATCH), "cpu.idle")
        assert raw.strip() == b"1", raw


def check_later(guest: Guest, agent: Agent) -> None:
    """What begins later, and what has a cookie of its own."""
    stranger, sleeper = enter(guest.tree, WEB, "main"), enter(guest.tree, DB, SANDBOX)
    own = enter(guest.tree, API, "main")
    with KERNEL.helper() as helper:
        made = helper.create()
        helper.give(own.pid, whole_process=True)
    agent.tick()
    agent.tick()
    held = guest.cookies()
    with claim("a process that enters a container later gets its cookie, in the pause container as well"):
        assert KERNEL.cookie(stranger.pid) == held["web"], held
        assert KERNEL.cookie(sleeper.pid) == held["db"], held
    with claim("a process that made itself a cookie keeps it"):
        assert KERNEL.cookie(own.pid) == made
    with claim("a second agent goes on with the cookies there are"):
        later = guest.agent()
        later.take_over()
        tick = later.tick()
        assert guest.cookies() == held
        assert not tick.applied, tick.applied
    with claim("what was made is put back, with what entered later, and what was not ours stays"):
        steps = restore(guest.host, guest.journal)
        assert all(step.ok for step in steps), steps
        assert {*guest.cookies().values(), KERNEL.cookie(stranger.pid), KERNEL.cookie(sleeper.pid)} == {0}
        assert KERNEL.cookie(own.pid) == made
        assert guest.journal.entries == ()
        assert guest.host.cgroups.read_raw(guest.tree.pod(BATCH), "cpu.idle").strip() == b"0"
    for process in (stranger, sleeper, own):
        process.kill()
        process.wait()


def main() -> None:
    """All claims; the argument is a folder to work in."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-core-sched")
    tree = Tree(f"{PREFIX}cores-{os.getpid()}").build()
    with contextlib.closing(tree):
        guest = Guest(work, tree)
        agent = guest.agent()
        check_groups(guest, agent)
        check_later(guest, agent)
    tell(ALL)


if __name__ == "__main__":
    main()
