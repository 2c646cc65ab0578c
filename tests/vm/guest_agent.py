"""Runs inside the guest: the real agent on a two-node machine, judged by what the kernel says afterwards.

Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}. Arguments: cgroup driver, and `resctrl`
where resctrl is mounted.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import random
import sys
import time

from guestclaims import ALL, claim, tell
from realnode import command, resctrl
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.quick import Child, Quick
from realnode.tree import PREFIX, Tree, parse_list
from realnode.waiting import until

SERVICE = Pod("service", "Burstable", "LS")
PINNED = Pod("pinned", "Guaranteed", "LSR", pinned="2-3")
BATCH = Pod("batch", containers=("main", "side"))
PODS = (SERVICE, PINNED, BATCH)
WORK = pathlib.Path("/tmp/koordlite-test")
soon = functools.partial(until, seconds=90)
"""With the patience an emulated machine needs."""
Found = tuple[dict[str, bytes], set[str]]
"""Bytes of limit files by path, and names of resctrl groups."""
RESCTRL_BE = {
    "clusterStrategy": {
        "beClass": {
            "resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 50}
        }
    }
}


class Guest:
    """The machine, its cluster and koordlite on it."""

    def __init__(self, quick: Quick, *, driver: str, with_resctrl: bool) -> None:
        self.tree = Tree(f"{PREFIX}guest", driver=driver).build()
        self.cluster = Manifests(WORK / "cluster")
        self.quick, self.with_resctrl = quick, with_resctrl
        self.every = parse_list(pathlib.Path("/sys/devices/system/cpu/online").read_text())
        self.options = ["--cluster", str(self.cluster.folder), "--state-dir", str(WORK / "state")]
        self.options += ["--kubepods", self.tree.top]
        self.busy: list[int] = []

    def settle(self) -> None:
        """All pods in place, the first best-effort container busy, CPUs 0 and 4 reserved: one of each node."""
        for pod in PODS:
            self.cluster.pod(pod)
            self.tree.add(pod)
        self.cluster.node(reservation={"reservedCPUs": "0,4"})
        self.configure("cpuset")
        self.busy = [self.tree.load(BATCH).pid, self.tree.load(BATCH, container="side", duty=0.01).pid]
        self.tree.load(SERVICE, duty=0.02)

    def configure(self, policy: str) -> None:
        """The ConfigMap, with this suppress policy."""
        self.cluster.config(threshold=threshold(policy, percent=100), qos=RESCTRL_BE)

    def enforce(self, *more: str) -> Child:
        """The agent at work."""
        quietly = ("--mode", "enforce", "--no-http", "-q", "--interval", "0.3")
        return self.quick.start("run", *self.options, *quietly, *more)

    def found(self) -> Found:
        """Everything the agent may change: bytes of limit files, names of resctrl groups."""
        return self.tree.content(), resctrl.groups() if self.with_resctrl else set()

    def best_effort(self) -> list[set[int]]:
        """The CPUs that best-effort groups may really use."""
        return [self.tree.effective(g) for g in (self.tree.qos("BestEffort"), *self.tree.groups_of(BATCH))]

    def service(self) -> set[int]:
        """The CPUs of the latency-sensitive container."""
        return self.tree.effective(self.tree.container(SERVICE, "main"))


def check_sets(guest: Guest) -> None:
    """cpusets against the reservation, by list, by number, over half the machine, and gone."""
    with claim("nobody runs on reserved CPUs of either node"):
        soon(lambda: not_on(guest, {0, 4}), guest.best_effort)
    with claim("the pinned pod has its CPUs, the shared pool leaves them out"):
        pinned = guest.tree.container(PINNED, "main")
        soon(lambda: guest.tree.effective(pinned) == {2, 3} and not guest.service() & {2, 3}, guest.service)
    with claim("a reservation by number takes whole cores"):
        guest.cluster.node(reservation={"resources": {"cpu": "2"}})
        soon(lambda: is_core(guest.every - guest.service() - {2, 3}), guest.service)
        reserved = guest.every - guest.service() - {2, 3}
        soon(lambda: not_on(guest, reserved), guest.best_effort)
    with claim("sets shrink to a quarter of the machine"):
        guest.cluster.node(reservation={"reservedCPUs": "0-1,4-7"})
        soon(lambda: all(cpus == {2, 3} for cpus in guest.best_effort()), guest.best_effort)
    with claim("sets grow again when nothing is reserved"):
        guest.cluster.node()
        soon(lambda: all(len(cpus) >= 5 for cpus in guest.best_effort()), guest.best_effort)
        soon(lambda: guest.service() == guest.every - {2, 3}, guest.service)


def not_on(guest: Guest, reserved: set[int]) -> bool:
    return all(cpus and not cpus & reserved for cpus in (*guest.best_effort(), guest.service()))


def is_core(cpus: set[int]) -> bool:
    """Whether these CPUs are all hyperthreads of one core."""
    if not cpus:
        return False
    siblings = f"/sys/devices/system/cpu/cpu{min(cpus)}/topology/thread_siblings_list"
    return parse_list(pathlib.Path(siblings).read_text()) == cpus


def check_resctrl(guest: Guest) -> None:
    """Schemata and threads of the class BE, and where a busy thread really ran."""
    whole = resctrl.schemata("")
    bits = max(whole["L3"].values()).bit_length()
    mask = (1 << -(-bits * 30 // 100)) - 1
    with claim("class BE has 30 % of each cache and half of the usable bandwidth"):
        wanted = {
            "L3": dict.fromkeys(whole["L3"], mask),
            # AMD counts in 1/8 GB/s, and percents are of 20 GB/s.
            "MB": {cache: 50 if value == 100 else 80 for cache, value in whole["MB"].items()},
        }
        soon(lambda: "BE" in resctrl.groups() and wanted.items() <= resctrl.schemata("BE").items(), resctrl.groups)
    with claim("threads of best-effort containers, and no others, are in class BE"):
        soon(lambda: resctrl.tasks("BE") == set(guest.busy), lambda: resctrl.tasks("BE"))
    with claim("the busy process really runs in that class"):
        number = resctrl.class_with_mask(mask)
        before = resctrl.run_ns()[number]
        soon(lambda: resctrl.run_ns()[number] - before > 200_000_000, resctrl.run_ns)


def check_quota(guest: Guest) -> None:
    """The other policy: a quota, and the whole set again."""
    group = guest.tree.qos("BestEffort")
    with claim("under cfsQuota best-effort has a quota and all its CPUs"):
        guest.configure("cfsQuota")
        soon(lambda: guest.tree.quota_us(group) > 0, lambda: guest.tree.quota_us(group))
        soon(lambda: all(cpus == guest.every for cpus in guest.best_effort()), guest.best_effort)
    with claim("back under cpuset the quota is lifted"):
        guest.configure("cpuset")
        soon(lambda: guest.tree.quota_us(group) == -1, lambda: guest.tree.quota_us(group))


def check_report(guest: Guest) -> None:
    """What the run says about itself."""
    document = command.report(WORK / "report")
    with claim("the kernel refused no write"):
        assert document["writes"] and not command.refusals(document), command.refusals(document)
    with claim("the report names the cgroup version and driver"):
        assert document["environment"]["cgroups"] == f"v{guest.tree.version}, {guest.tree.driver} driver"
    if not guest.with_resctrl:
        with claim("without resctrl each class is a skip that says so"):
            reasons = {d["reason"] for d in document["decisions"] if d["subject"].startswith("resctrl/")}
            assert reasons == {"NoResctrl"}, reasons


def check_restore(guest: Guest, found: Found, text: str) -> None:
    """`koordlite restore`, then everything as it was."""
    with claim(text):
        done = guest.quick.run("restore", *guest.options)
        assert done.said().endswith("exit 0\n"), done.said()
        wrong = not_restored(guest, found)
        assert not wrong, wrong
        if guest.with_resctrl:
            assert set(guest.busy) <= resctrl.tasks("")


def not_restored(guest: Guest, found: Found) -> str:
    """What is not as it was found, empty when all is."""
    wrong = guest.tree.changed(found[0])
    groups = guest.found()[1] ^ found[1]
    return f"files {wrong}, resctrl groups {groups}" if wrong or groups else ""


def check_kills(guest: Guest, found: Found) -> None:
    """kill -9 at random moments, each agent beginning with what the last one left."""
    chance = random.Random(7)
    for turn in range(3):
        guest.cluster.node(reservation={"reservedCPUs": str(turn)})
        kill_once(guest, found, turn=turn, after_seconds=chance.uniform(0, 1.0))
    check_restore(guest, found, "after three kills every byte and every thread is where it was")


def kill_once(guest: Guest, found: Found, *, turn: int, after_seconds: float) -> None:
    """One life of an agent."""
    agent = guest.enforce()
    if turn:
        with claim(f"agent {turn + 1} begins with what agent {turn} left"):
            soon(lambda: command.TAKEN_OVER in agent.said(), agent.said)
    with claim(f"agent {turn + 1} writes before it is killed"):
        soon(lambda: not_restored(guest, found), agent.said)
    time.sleep(after_seconds)
    agent.kill()


def check(guest: Guest) -> None:
    """The whole story: one orderly run, its restore, then lives that end by kill."""
    guest.settle()
    found = guest.found()
    agent = guest.enforce("--report", str(WORK / "report"))
    check_sets(guest)
    if guest.with_resctrl:
        check_resctrl(guest)
    check_quota(guest)
    with claim("a stop by SIGTERM is orderly"):
        agent.stop()
        assert agent.said().endswith("exit 0\n"), agent.said()
    check_report(guest)
    check_restore(guest, found, "restore gives every byte and every thread back")
    check_kills(guest, found)


def main() -> None:
    """All claims."""
    driver, with_resctrl = sys.argv[1], "resctrl" in sys.argv[2:]
    WORK.mkdir(parents=True)
    with Quick(WORK / "quick") as quick:
        guest = Guest(quick, driver=driver, with_resctrl=with_resctrl)
        with contextlib.closing(guest.tree):
            check(guest)
    tell(ALL)


if __name__ == "__main__":
    main()
