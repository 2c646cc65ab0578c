"""Runs inside the guest: resctrl on hardware of some shape, judged by the kernel's files and the hardware's registers.

Prints one line of JSON for each claim. The one argument is JSON: `values` the class BE is to have by resource and cache
id, `mounted` whether resctrl is mounted before the agent comes, `offline` the CPUs of the cache that goes away for a
while, `unit` the bytes an occupancy of 1 stands for (0: nothing is monitored), `others` how many groups somebody else
makes first, `refused` whether that leaves none for us, `reach` the MB/s that 100 % of the bandwidth are (0: untold).
"""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import subprocess
import sys
import time
import urllib.request
from typing import Any

from guestclaims import ALL, claim, tell
from realnode import resctrl
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.quick import Child, Quick
from realnode.tree import PREFIX, Tree
from realnode.waiting import until

WORK = pathlib.Path("/tmp/koordlite-test")
BATCH = Pod("batch")
soon = functools.partial(until, seconds=90)
"""With the patience an emulated machine needs."""
HALF = {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 50}
BREEDER = """
import threading, time
for _ in range(64 * 4):
    threading.Thread(target=time.sleep, args=(120,), daemon=True).start()
    time.sleep(1 / 64)
time.sleep(120)
"""
SETTINGS = "strategies:\n  resctrl:\n    monitorSeconds: 1\n"
THEIRS = resctrl.ROOT / "mon_groups" / "theirs"
"""Somebody else counts the busy process."""
EVENTS = {"llc": 1, "total": 2}


class Guest:
    """The machine, its cluster and koordlite on it."""

    def __init__(self, quick: Quick, shape: dict[str, Any]) -> None:
        self.shape, self.quick = shape, quick
        self.values = {name: {int(i): v for i, v in ids.items()} for name, ids in shape["values"].items()}
        self.tree = Tree(f"{PREFIX}guest").build()
        self.cluster = Manifests(WORK / "cluster")
        (WORK / "koordlite.yaml").write_text(f"{SETTINGS}    l3BandwidthMbps: {shape['reach']}\n")
        self.options = ["--cluster", str(self.cluster.folder), "--state-dir", str(WORK / "state")]
        self.options += ["--kubepods", self.tree.top, "--config", str(WORK / "koordlite.yaml")]

    @property
    def are_counted(self) -> bool:
        """Whether others have a monitoring group: not where we mount."""
        return bool(self.shape["mounted"])

    def settle(self) -> None:
        """One best-effort pod that is busy, the class BE enabled, and the groups of others, one for monitoring."""
        self.cluster.pod(BATCH)
        self.tree.add(BATCH)
        self.cluster.node()
        self.configure(True)
        self.busy = self.tree.load(BATCH).pid
        for number in range(self.shape["others"]):
            (resctrl.ROOT / f"other-{number}").mkdir()
        if self.are_counted:
            THEIRS.mkdir()
            (THEIRS / "tasks").write_text(str(self.busy))

    def configure(self, enable: bool) -> None:
        self.cluster.config(qos={"clusterStrategy": {"beClass": {"resctrlQOS": {**HALF, "enable": enable}}}})

    def enforce(self) -> Child:
        """The agent at work."""
        return self.quick.start("run", *self.options, "--mode", "enforce", "-q", "--interval", "0.3")

    def is_programmed(self) -> bool:
        """The class has what was asked, in every cache that is there."""
        return "BE" in resctrl.groups() and self.values.items() <= resctrl.schemata("BE").items()

    def breed(self) -> int:
        """A process in the container that makes 64 threads a second; its id."""
        process = subprocess.Popen([sys.executable, "-S", "-c", BREEDER], stdin=subprocess.DEVNULL)
        for point in set(self.tree.points.values()):
            (point / self.tree.container(BATCH, "main") / "cgroup.procs").write_text(str(process.pid))
        self.bred = process
        return process.pid


def schemata() -> object:
    return {group: resctrl.schemata(group) for group in ("", *resctrl.groups())}


def check_values(guest: Guest) -> None:
    with claim("class BE has its part of everything this hardware divides"):
        soon(guest.is_programmed, lambda: (schemata(), guest.agent.said()[-600:]))
    with claim("the busy process is in the class, and really runs in it"):
        soon(lambda: guest.busy in resctrl.tasks("BE"), lambda: resctrl.tasks("BE"))
        if "L3" in guest.values:
            number = resctrl.class_with_mask(next(iter(guest.values["L3"].values())))
            before = resctrl.run_ns()[number]
            soon(lambda: resctrl.run_ns()[number] - before > 200_000_000, resctrl.run_ns)


def check_threads(guest: Guest) -> None:
    """The process comes from outside, like a command executed in a container."""
    pid = guest.breed()
    with claim("a process that enters the container follows"):
        soon(lambda: pid in resctrl.tasks("BE"), lambda: sorted(resctrl.tasks("BE")))
    with claim("it makes threads"):
        soon(lambda: len(threads_of(pid)) > 1, lambda: threads_of(pid))
    with claim("64 threads born per second are in the class, all of them, all the time"):
        counts = []
        for _ in range(8):
            threads = threads_of(pid)
            counts.append((len(threads), len(threads - resctrl.tasks("BE"))))
            time.sleep(0.4)
        assert counts[-1][0] > counts[0][0] or counts[-1][0] > 200, counts
        assert all(outside == 0 for _, outside in counts[3:]), counts
    guest.bred.kill()
    guest.bred.wait()


def threads_of(pid: int) -> set[int]:
    return {int(folder.name) for folder in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def check_counters(guest: Guest) -> None:
    with claim("monitoring counters come out of /metrics"):
        for cache in resctrl.schemata("")["L3"]:
            for rmid in range(8):
                count(cache, rmid, "llc", 100, 0)
                count(cache, rmid, "total", 1000, 50)
        soon(lambda: metric("koordlet_resctrl_llc_occupancy") == 100 * guest.shape["unit"], metrics)
        soon(lambda: metric("koordlet_resctrl_memory_bandwidth", 'mb_type="total"') > 0, metrics)


def count(cache: int, rmid: int, event: str, value: int, rate: int) -> None:
    pathlib.Path("/proc/fake_rdt").write_text(f"ctr {cache} {rmid} {EVENTS[event]} {value} {rate}\n")


def metrics() -> str:
    with urllib.request.urlopen("http://127.0.0.1:9316/metrics", timeout=20) as answer:
        return "\n".join(line for line in answer.read().decode().splitlines() if "resctrl" in line)


def metric(name: str, label: str = "") -> float:
    """Of class BE in cache 0; -1 where there is none."""
    found = [line for line in metrics().splitlines() if line.startswith(f"{name}{{") and label in line]
    found = [line for line in found if 'qos="BE"' in line and 'cache_id="0"' in line]
    return float(found[0].rpartition(" ")[2]) if found else -1.0


def check_hotplug(guest: Guest) -> None:
    cpus = [pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/online") for cpu in guest.shape["offline"]]
    with claim("a cache goes with its last CPU and has the class's part again when it comes back"):
        for file in cpus:
            file.write_text("0")
        last = max(guest.values["L3"])
        assert last not in resctrl.schemata("")["L3"], schemata()
        for file in cpus:
            file.write_text("1")
        soon(guest.is_programmed, schemata)


def check_end(guest: Guest) -> None:
    with claim("a class that is switched off gives its group and its threads back"):
        guest.configure(False)
        soon(lambda: "BE" not in resctrl.groups(), schemata)
        assert guest.busy in resctrl.tasks("")
    with claim("after another run and kill -9, restore finds everything as it was"):
        guest.configure(True)
        soon(guest.is_programmed, schemata)
        guest.agent.kill()
        done = guest.quick.run("restore", *guest.options)
        assert done.said().endswith("exit 0\n"), done.said()
        if not guest.shape["mounted"]:
            assert list(resctrl.ROOT.iterdir()) == [], "it is still mounted"
        else:
            assert "BE" not in resctrl.groups(), resctrl.groups()
            assert guest.busy in resctrl.tasks("")
            counted = (THEIRS / "tasks").read_text().split() if guest.are_counted else [str(guest.busy)]
            assert str(guest.busy) in counted, "others do not count it any more"


def check_refusal(guest: Guest) -> None:
    with claim("hardware without a class left is told, and nobody else's group is touched"):
        soon(lambda: "all are taken" in explained(guest), lambda: explained(guest))
        assert resctrl.groups() == {f"other-{number}" for number in range(guest.shape["others"])}
        guest.agent.kill()
        assert "other-0" in guest.quick.run("resctrl", "show").said()


def explained(guest: Guest) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen("http://127.0.0.1:9316/explain?subject=resctrl") as page:
        return str(page.read().decode())
    return guest.agent.said()[-400:]


def check(guest: Guest) -> None:
    """The whole story."""
    guest.settle()
    guest.agent = guest.enforce()
    if guest.shape["refused"]:
        check_refusal(guest)
        return
    check_values(guest)
    check_threads(guest)
    if guest.shape["unit"]:
        check_counters(guest)
    if guest.shape["offline"]:
        check_hotplug(guest)
    check_end(guest)


def main() -> None:
    """All claims."""
    WORK.mkdir(parents=True)
    with Quick(WORK / "quick") as quick:
        guest = Guest(quick, json.loads(sys.argv[1]))
        with contextlib.closing(guest.tree):
            check(guest)
    tell(ALL)


if __name__ == "__main__":
    main()
