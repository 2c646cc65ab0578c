"""Runs inside the guest: the product's applier writes every cgroup value there is, and puts every byte back.

Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}. A file this kernel does not have is a claim
that says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import get_args

from guestclaims import ALL, claim, tell
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree

from koordlite import config, plan
from koordlite.agent import Agent
from koordlite.apply import Applier, restore
from koordlite.changes.block_device import BlockChange
from koordlite.changes.cgroup import CgroupChange
from koordlite.clock import RealClock
from koordlite.formulas import blkio
from koordlite.host import block, bundle
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.blocks import ROOT, BlockField
from koordlite.model.snapshot import Snapshot

BATCH = Pod("batch")
BUSY = Pod("busy")
MiB = 2**20
WANTED: dict[CgroupField, int | CPUSet] = {
    "cpuset.cpus": CPUSet(sorted(os.sched_getaffinity(0))[1::2]),
    "cpu.quota": 50_000,
    "cpu.burst": 20_000,
    "cpu.shares": 517,
    "memory.min": 4 * MiB,
    "memory.low": 8 * MiB,
    "memory.high": 256 * MiB,
    "memory.limit": 512 * MiB,
    "memory.swap.max": 64 * MiB,
    "memory.oom.group": 1,
    "cpu.bvt_warp_ns": -1,
    "memory.wmark_ratio": 95,
    "memory.wmark_scale_factor": 20,
    "memory.wmark_min_adj": 50,
    "memory.priority": 3,
    "memory.use_priority_oom": 1,
    "memory.pagecache_limit.enable": 1,
    "memory.pagecache_limit.size": 64 * MiB,
    "memory.pagecache_limit.sync": 1,
}
"""All but cpu.idle, which has a group of its own: an idle group takes no shares."""
LIMITS: Mapping[BlockField, int] = {
    "io.read_bps": 100 * MiB,
    "io.write_bps": 50 * MiB,
    "io.read_iops": 1000,
    "io.write_iops": 500,
    "io.weight": 60,
}
MODEL = "ctrl=user rbps=500000000 rseqiops=60000 rrandiops=50000 wbps=400000000 wseqiops=40000 wrandiops=30000"
TARGETS = "enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=5000"


class Guest:
    """kubelet's groups with two best-effort pods, and the product's own ways to them."""

    def __init__(self, tree: Tree, work: pathlib.Path) -> None:
        manifests = Manifests(work / "cluster")
        manifests.node()
        manifests.config()
        for pod in (BATCH, BUSY):
            manifests.pod(pod)
            tree.add(pod)
        self.host: Host = bundle.bind(RealFiles(), RealClock(), kubepods=tree.top)
        self.cluster = ManifestCluster(manifests.folder, clock=self.host.clock)
        self.journal = Journal.open(work / "state")
        self.groups = tuple(tree.groups_of(BATCH))
        self.idle = tree.container(BUSY, "main")

    def seen(self) -> Snapshot:
        """A picture of now."""
        watching = Agent(self.host, self.cluster, config.with_modes(config.default(), "observe"))
        watching.tick()
        assert watching.snapshot is not None
        return watching.snapshot

    def raw(self) -> dict[str, bytes]:
        """Every file that may be written, as it is."""
        found: dict[str, bytes] = {}
        for group in (*self.groups, self.idle):
            for field in get_args(CgroupField):
                raw = self.read(group, field)
                if raw is not None:
                    found[f"{group}/{field}"] = raw
        return found

    def read(self, group: str, field: CgroupField) -> bytes | None:
        """The bytes of a file; None where this kernel has none."""
        try:
            return self.host.cgroups.read_raw(group, field)
        except (OSError, KeyError, ValueError):
            return None

    def apply(self, changes: Sequence[CgroupChange | BlockChange]) -> list[str]:
        """Write them as one plan; what was refused."""
        seen = self.seen()
        made = plan.make([Decision("test", "set", "Test", changes=tuple(changes), strategy="test")], seen.cgroups)
        steps = Applier(self.host, self.cluster, self.journal).apply(made, seen)
        return [f"{step.place} = {step.value}: {step.error}" for step in steps if not step.ok]


def check(guest: Guest) -> None:
    """Write, look, put back, look."""
    before = guest.raw()
    for field in (*WANTED, "cpu.idle"):
        if f"{guest.groups[0]}/{field}" not in before:
            with claim(f"this kernel has no {field}"):
                assert "pagecache" in field or guest.host.cgroups.layout.kubepods
    present = {field: value for field, value in WANTED.items() if f"{guest.groups[0]}/{field}" in before}
    changes = [CgroupChange(group, field, value) for group in guest.groups for field, value in present.items()]
    if f"{guest.idle}/cpu.idle" in before:
        changes.append(CgroupChange(guest.idle, "cpu.idle", 1))
    with claim("one plan of every value is refused nowhere"):
        refused = guest.apply(changes)
        assert not refused, refused
    for change in changes:
        with claim(f"{change.place} holds {change.value}"):
            raw = guest.read(change.group, change.field)
            assert raw is not None
            wanted = guest.host.cgroups.settled(change.field, change.value)
            held = guest.host.cgroups.decode(change.field, raw)
            assert held == wanted, raw
    with claim("the kernel refuses a burst above the quota, and says EINVAL"):
        assert refusal(guest, "cpu.burst", 60_000) == errno.EINVAL
    with claim("an idle group takes no shares, and says EINVAL"):
        assert f"{guest.idle}/cpu.idle" not in before or refusal(guest, "cpu.shares", 600, guest.idle) == errno.EINVAL
    with claim("restore is refused nowhere"):
        steps = restore(guest.host, guest.journal)
        assert steps, "nothing was restored"
        assert all(step.ok for step in steps), [step for step in steps if not step.ok]
    with claim("every byte is as it was found"):
        after = guest.raw()
        differ = {path: (before[path], after.get(path)) for path in before if after.get(path) != before[path]}
        assert not differ, differ
        assert not guest.journal.entries


def refusal(guest: Guest, field: CgroupField, value: int, group: str = "") -> int | None:
    """The errno of one write."""
    try:
        guest.host.cgroups.write(group or guest.groups[0], field, value)
    except OSError as error:
        return error.errno
    return None


def check_disks(guest: Guest) -> None:
    """Limits of a group and targets of the machine, line by line, and back."""
    disk, group = some_disk(), guest.groups[0]
    wanted = [BlockChange(group, disk, field, str(amount)) for field, amount in LIMITS.items()]
    wanted += [BlockChange(ROOT, disk, "io.cost.model", MODEL), BlockChange(ROOT, disk, "io.cost.qos", TARGETS)]
    wanted = [change for change in wanted if lines(guest, change) is not None]
    before = {change.place: lines(guest, change) for change in wanted}
    with claim(f"disk {disk} takes {', '.join(change.field for change in wanted)}"):
        assert len(wanted) >= 4
        refused = guest.apply(wanted)
        assert not refused, refused
    for change in wanted:
        with claim(f"{change.place} holds {change.value}"):
            held = (lines(guest, change) or {}).get(disk, "")
            assert blkio.holds(held, change.value or ""), held
    with claim("restore of disks is refused nowhere, and they are as they were found"):
        steps = restore(guest.host, guest.journal)
        assert steps
        assert all(step.ok for step in steps), [step for step in steps if not step.ok]
        for change in wanted:
            # A disk that was told about once keeps its line, with the kernel's own values in it.
            found, now = (
                held.get(disk, blkio.UNSET[change.field]) for held in (before[change.place], lines(guest, change))
            )
            assert blkio.holds(now, found), (change.place, found, now)
        assert not guest.journal.entries


def lines(guest: Guest, change: BlockChange) -> dict[str, str] | None:
    """The file of a change, by disk."""
    return block.read(guest.host.files, guest.host.cgroups, change.group, change.field)


def some_disk() -> str:
    """The number of a disk that nobody uses, else of the first."""
    names = sorted(path.name for path in pathlib.Path("/sys/block").iterdir())
    name = "loop0" if "loop0" in names else names[0]
    (number,) = block.of_device(RealFiles(), name)
    return number


def main() -> None:
    """All claims; the argument is a folder to work in."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-qos")
    work.mkdir(parents=True, exist_ok=True)
    tree = Tree(f"{PREFIX}qos-{os.getpid()}").build()
    with contextlib.closing(tree):
        guest = Guest(tree, work)
        check(guest)
        check_disks(guest)
    tell(ALL)


if __name__ == "__main__":
    main()
