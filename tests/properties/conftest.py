"""A life of the agent on a node where things go wrong, watched write by write."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import cyaml
import pytest
from emulated import BOOT, Emulated
from hooked_files import HookedFiles

from koordlite.agent import Agent
from koordlite.apply import restore
from koordlite.host.journal import journal
from koordlite.host.journal.journal import FileEntry
from koordlite.lab.chaos import Chaos, Rates
from koordlite.lab.machine.tree import Tree
from koordlite.model.cpuset import CPUSet
from koordlite.model.status import AppliedStep
from koordlite.report.tick import Tick

TICKS = 25
RESERVED, EXCLUSIVE = CPUSet.parse("0"), CPUSet.parse("1")
CGROUPS = "/sys/fs/cgroup/"


@dataclasses.dataclass(frozen=True)
class Write:
    """One write the agent tried, as the kernel answered."""

    path: str
    text: str
    ok: bool


class Watched(HookedFiles):
    """`ports.Files` that keeps every write to a cgroup and lets somebody look right after each."""

    def __init__(self, files: Tree, look: Callable[[str], None]) -> None:
        super().__init__(files)
        self._after = look
        self.writes: list[Write] = []

    def write(self, path: str, data: bytes) -> None:
        ok = False
        try:
            self._files.write(path, data)
            ok = True
        finally:
            if path.startswith(CGROUPS):
                self.writes.append(Write(path, data.decode().strip(), ok))
                self._after(path)


class Life:
    """An agent that enforces everything, pods that come and go, an operator who changes his mind, and trouble."""

    def __init__(self, folder: Path, *, shape: str, seed: int, rates: Rates) -> None:
        self._random = random.Random(f"life/{seed}")
        self.node = Emulated(shape, folder)
        self._quality()
        self._pods = 0
        self.node.node(reservation=f'{{"reservedCPUs":"{RESERVED}"}}')
        self.node.pod("web", "LS", f"wave(low=100m,high={self.node.cpus - 1},period=11)", memory="1Gi")
        self.node.pod("pinned", "LSE", "500m", request="1", status=f'{{"cpuset":"{EXCLUSIVE}"}}')
        for _ in range(3):
            self._add()
        self.node.host()
        self.chaos = Chaos(self.node.sandbox, seed=seed, rates=rates)
        self.unjournalled: list[str] = []
        self.outside: list[str] = []
        self.overcommitted: list[str] = []
        self.overcommitted_at_last: list[str] = []
        self.files = Watched(self.node.sandbox.files, self._look)
        self.forbidden: list[str] = []
        self.refused: list[str] = []
        self.restored: tuple[AppliedStep, ...] = ()
        self.entries: list[FileEntry] = []
        self.ended = False

    def run(self, ticks: int = TICKS) -> Iterator[Tick]:
        """The ticks; afterwards all is put back."""
        with self.chaos.quiet():
            host = self.node.host(self.files)
        with self.node.journal() as kept:
            agent = Agent(host, self.node.cluster, self.node.settings(), kept)
            for _ in range(ticks):
                self._churn()
                self.chaos.stir()
                begun = len(self.files.writes)
                tick = agent.tick()
                self._check(self.files.writes[begun:])
                self.refused += [f"{step.place}: {step.error}" for step in tick.applied if not step.ok]
                yield tick
                self.node.sandbox.advance(1)
            self.chaos.end()
            # Places that somebody else fights for are left alone for a while.
            self.node.sandbox.advance(90)
            yield agent.tick()
            self.overcommitted_at_last = list(self._overcommitted())
            self.ended = True
            self.entries = [entry for entry in kept.entries if isinstance(entry, FileEntry)]
            self.restored = restore(host, kept, self.node.cluster)

    def wrong(self) -> dict[str, tuple[bytes, bytes]]:
        """Files that hold neither what was found nor what somebody else wrote: present and found, by path.

        A set that inherits cannot be given back while there are tasks: there any set that has the parent's CPUs will
        do.
        """
        differ = {}
        for entry in self.entries:
            try:
                present = self.node.sandbox.files.read(entry.path)
            except FileNotFoundError:
                continue
            inherits = entry.field == "cpuset.cpus" and not entry.raw.strip()
            if present not in (entry.raw, self.chaos.hostile.get(entry.path)) and not inherits:
                differ[entry.path] = (present, entry.raw)
        return differ

    def _add(self) -> None:
        self._pods += 1
        cpu, memory = self._random.choice(["greedy", "500m", "2"]), f"{self._random.randrange(1, 9) * 100}Mi"
        self.node.pod(f"batch-{self._pods}", "BE", cpu, memory=memory)

    def _quality(self) -> None:
        """Memory QoS for all classes, of an amount that changes, in the ConfigMap besides what is there."""
        config = cyaml.safe_load((self.node.folder / "config.yaml").read_text())["data"]
        quality = json.loads(config["resource-qos-config"])
        for name in ("lsClass", "beClass"):
            least = self._random.randrange(0, 100)
            memory = {"enable": self._random.random() < 0.9, "minLimitPercent": least, "lowLimitPercent": least // 2}
            quality.setdefault("clusterStrategy", {}).setdefault(name, {})["memoryQOS"] = memory
        self.node.raw_slo({**config, "resource-qos-config": quality})

    def _churn(self) -> None:
        chance = self._random.random()
        if chance < 0.15:
            self._add()
        elif chance < 0.3:
            present = sorted(self.node.folder.glob("pod-batch-*.yaml"))
            if present:
                self._random.choice(present).unlink()
        elif chance < 0.45:
            policy = self._random.choice(["cpuset", "cfsQuota"])
            self.node.slo(policy=policy, percent=self._random.randrange(20, 100), enable=self._random.random() < 0.8)
            self._quality()

    def _look(self, path: str) -> None:
        """Right after a write: is the way back on disk, and does no set reach beyond its parent's?

        On the way back also sets are written that were copied from ours, and were never ours themselves.
        """
        with self.chaos.quiet():
            kept = () if self.ended else journal.read(self.node.state, boot_id=BOOT)
            if not self.ended and path not in {entry.path for entry in kept if isinstance(entry, FileEntry)}:
                self.unjournalled.append(path)
            self.outside += self._outside()
            self.overcommitted += self._overcommitted()

    def _outside(self) -> Iterator[str]:
        top = self.node.sandbox.cgroups.cpuset.find(self.node.sandbox.kubelet.layout.kubepods)
        for group in top.walk() if top else ():
            if group.parent and group.parent.cpus and not group.cpus <= group.parent.cpus:
                yield f"{group.path}: {group.cpus} beyond {group.parent.cpus}"

    def _overcommitted(self) -> Iterator[str]:
        """Groups whose children are promised more memory than they are."""
        top = self.node.sandbox.cgroups.memory.find(self.node.sandbox.kubelet.layout.kubepods)
        for group in top.walk() if top else ():
            for field in ("memory_min", "memory_low"):
                below = sum(getattr(child, field) for child in group.children.values())
                if group.children and below > getattr(group, field):
                    yield f"{group.path}: children have {field} {below} of {getattr(group, field)}"

    def _check(self, writes: list[Write]) -> None:
        """What stands at the end of a tick in sets of best-effort groups, where our last write went through."""
        last = {write.path: write for write in writes if write.path.endswith("/cpuset.cpus")}
        for write in last.values():
            best_effort = self.node.sandbox.kubelet.layout.besteffort in write.path
            if best_effort and write.ok and CPUSet.parse(write.text) & (RESERVED | EXCLUSIVE):
                self.forbidden.append(f"{write.path} = {write.text}")


@pytest.fixture
def live(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Life]:
    """`live(shape="small", seed=3, rates=QUIET)`."""

    def make(**how: object) -> Life:
        return Life(tmp_path_factory.mktemp("life"), **how)  # type: ignore[arg-type]

    return make
