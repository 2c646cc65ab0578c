"""Nodes to measure: this machine's own cgroups, or an emulated one, with any number of pods of two containers."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence

import msgspec
from emulated import Emulated
from hooked_files import HookedFiles
from realnode import tree
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod

from koordlite import config
from koordlite.agent import Agent
from koordlite.clock import RealClock
from koordlite.host import bundle
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.ports import Files

_NUMBERS = itertools.count()
KINDS = (("BestEffort", "BE"), ("Burstable", "LS"))


class Counting(HookedFiles):
    """Files that count what is asked of them: one system call each when the descriptor is kept, three otherwise."""

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        # Its own methods, not hooks: these figures are measured.
        self.reads = self.writes = self.lists = 0
        self.paths: list[str] = []
        """Files read since it was last emptied."""

    def read(self, path: str) -> bytes:
        """As `ports.Files`."""
        self.reads += 1
        self.paths.append(path)
        return self._files.read(path)

    def write(self, path: str, data: bytes) -> None:
        """As `ports.Files`."""
        self.writes += 1
        self._files.write(path, data)

    def list(self, path: str) -> Sequence[str]:
        """As `ports.Files`."""
        self.lists += 1
        return self._files.list(path)


class Ahead:
    """This machine's clock, but seconds pass at once."""

    def __init__(self) -> None:
        self._clock, self._ahead = RealClock(), 0.0

    def monotonic(self) -> float:
        """As `ports.Clock`."""
        return self._clock.monotonic() + self._ahead

    def wall(self) -> float:
        """As `ports.Clock`."""
        return self._clock.wall() + self._ahead

    def wait(self, seconds: float) -> bool:
        """As `ports.Clock`, without waiting."""
        self._ahead += max(0.0, seconds)
        return False


Step = Callable[[], object]


def populate(built: tree.Tree, manifests: Manifests, pods: int, *, batch: tuple[int, int] | None = None) -> None:
    """Make pods of two containers, best-effort ones, which ask for `batch`, and services in turns."""
    for number in range(pods):
        kube, koord = KINDS[number % 2]
        pod = Pod(f"p{number}", kube, koord, ("one", "two"), batch=batch if koord == "BE" else None)
        manifests.pod(pod)
        built.add(pod)


@contextlib.contextmanager
def private(name: str, about: str, *, where: str | None = None) -> Iterator[tuple[tree.Tree, pathlib.Path]]:
    """A private tree and a folder in `where`, of which a line tells together with the machine."""
    built = tree.Tree(f"{tree.PREFIX}{name}{os.getpid()}")
    with contextlib.closing(built), tempfile.TemporaryDirectory(prefix="koordlite-perf-", dir=where) as folder:
        built.build()
        print(f"cgroup v{built.version}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {about}")
        yield built, pathlib.Path(folder)


@contextlib.contextmanager
def enforcing(built: tree.Tree, manifests: Manifests, folder: pathlib.Path, *more: str) -> Iterator[Command]:
    """An agent in a process of its own, which restores when it is stopped and is killed at the latest at the end."""
    options = ["--cluster", str(manifests.folder), "--kubepods", built.top, "--state-dir", str(folder / "state")]
    options += ["--mode", "enforce", "-q", "--no-http", "--on-stop", "restore", *more]
    agent = Command(["run", *options], folder / "agent.log")
    try:
        yield agent
    finally:
        if agent.alive():
            agent.kill()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib() -> float:
    """Memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextlib.contextmanager
def real(
    pods: int, mode: config.Mode = "enforce", *, off: str = "", batch: bool = False, full: bool = False
) -> Iterator[tuple[Agent, Counting, Step]]:
    """An agent on this machine's cgroups; `Step` passes a little time. The strategy `off` is off; with `batch`, the
    containers of best-effort pods ask for batch resources; `full` as in `everything`."""
    built = tree.Tree(f"{tree.PREFIX}perf-{os.getpid()}-{next(_NUMBERS)}")
    with tempfile.TemporaryDirectory(prefix="koordlite-perf-") as folder, RealFiles() as files:
        manifests = Manifests(pathlib.Path(folder) / "cluster")
        manifests.node(reservation={"reservedCPUs": "0"})
        manifests.config(threshold=threshold("cpuset"))
        try:
            built.build()
            populate(built, manifests, pods, batch=(100, 64 * 2**20) if batch else None)
            counting, clock = Counting(files), Ahead()
            host = bundle.bind(counting, clock, kubepods=built.top)
            settings = config.with_modes(config.default(), mode)
            settings = everything(settings) if full else settings
            if off:
                settings = config.with_modes(settings, "off", frozenset({off}))
            with Journal.open(pathlib.Path(folder) / "state") as journal:
                agent = Agent(host, ManifestCluster(manifests.folder, clock=clock), settings, journal)
                yield agent, counting, lambda: clock.wait(1.0)
                agent.put_back()
        finally:
            built.close()


@contextlib.contextmanager
def emulated(
    pods: int, mode: config.Mode = "enforce", *, front: str = "", full: bool = False, policy: str = "cpuset"
) -> Iterator[tuple[Agent, Counting, Step]]:
    """An agent on an emulated machine; `Step` passes a second of its time. `front` is the use of one more service,
    `full` as in `everything`, `policy` that of cpuSuppress."""
    with tempfile.TemporaryDirectory(prefix="koordlite-perf-") as folder:
        node = Emulated("intel-2s-ht", pathlib.Path(folder))
        node.slo(core_sched=full, policy=policy)
        for number in range(pods):
            node.pod(f"p{number}", KINDS[number % 2][1], "0.05")
        if front:
            node.pod("front", "LS", front)
        node.cluster.view()
        counting = Counting(node.sandbox.files)
        with node.journal() as journal:
            settings = everything(node.settings(mode)) if full else node.settings(mode)
            agent = Agent(node.host(counting), node.cluster, settings, journal)
            yield agent, counting, lambda: node.sandbox.advance(1.0)


def everything(settings: config.Settings) -> config.Settings:
    """With what is off by default: predictions, what a NodeMetric needs, evictions and their last resort, and core
    scheduling, which only the ConfigMap of the emulated node asks for: many real CPUs have no hyperthreads."""
    on = {
        "midAllocatable": {"predict": True, "cold_start_seconds": 60.0},
        "memoryEvict": {"be_memory_evict": True, "memory_evict": True, "be_memory_last_resort_seconds": 30.0},
        "cpuEvict": {"be_cpu_evict": True, "cpu_evict": True},
        "resctrl": {"monitor_pods": True},
        "coreSched": {"mode": settings.strategies["cpuSuppress"].mode},
    }
    sections = {**settings.strategies}
    for name, more in on.items():
        sections[name] = dataclasses.replace(sections[name], **more)
    return msgspec.structs.replace(
        settings, strategies=sections, publish=dataclasses.replace(settings.publish, node_metric="create")
    )
