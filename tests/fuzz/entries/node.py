"""The whole agent on an emulated node: pods, files of the kernel, and its own journal. After each input every other pod
is served as before, and at last every value comes back."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Sequence
from random import Random

import msgspec
from emulated import BOOT, Emulated
from hooked_files import HookedFiles, unchanged
from prometheus_client import generate_latest

from koordlite.apply import restore
from koordlite.host.journal import journal
from koordlite.host.journal.journal import Journal
from koordlite.model.errors import UNREADABLE, JournalError
from koordlite.model.wire import objects
from koordlite.ports import ClusterView
from koordlite.report.metrics.collector import Metrics
from koordlite.report.tick import Tick
from tests.fuzz import mutate
from tests.fuzz.entries import pods
from tests.fuzz.frame import Entry

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
_DECODE = msgspec.json.Decoder(objects.PodObject).decode
FILES = {
    "small": "stat meminfo cpuset.cpus cpu.cfs_quota_us cpu.cfs_period_us cpuacct.usage memory.stat cgroup.procs",
    "intel-2s-ht": "cpu.max cpuset.cpus cpuset.cpus.effective memory.stat cpu.stat schemata tasks cpu.pressure online",
}


class Bench:
    """An agent that goes on from input to input, as on a node."""

    def __init__(self, shape: str) -> None:
        _FOLDERS.append(tempfile.TemporaryDirectory(prefix="koordlite-fuzz-"))
        self.node = Emulated(shape, pathlib.Path(_FOLDERS[-1].name))
        self.node.pod("web", "LS", f"{self.node.cpus * 250}m", request="1", memory="1Gi")
        self.node.pod("db", "LSR", "500m", request="1", status='{"cpuset":"1"}')
        self.node.pod("batch", "BE", "greedy", memory="1Gi")
        self.node.host()
        self.found = self.node.programmed()
        self.files = HookedFiles(self.node.sandbox.files)
        self.journal = self.node.journal()
        self.guest: objects.PodObject | None = None
        self._view = self.node.cluster.view
        self.node.cluster.view = self.view  # type: ignore[method-assign]
        self.agent = self.node.agent(self.journal, files=self.files)
        self._metrics, self._count = Metrics(), 0
        self.calm = self.said(self.tick(4))

    def view(self) -> ClusterView:
        """The cluster, with the pod of a stranger."""
        view = self._view()
        return msgspec.structs.replace(view, pods=(*view.pods, self.guest)) if self.guest else view

    def tick(self, count: int = 1) -> Tick:
        """The last of some rounds; none of which a fault has ended."""
        for _ in range(count):
            (tick,) = self.node.ticks(self.agent, 1)
            failed = [d for d in tick.decisions if d.reason in ("StrategyFailed", "SubjectFailed")]
            assert not failed, failed
            self._metrics.observe_tick(tick)
        return tick

    @staticmethod
    def said(tick: Tick) -> dict[tuple[str, str], str]:
        """Which rules speak of which of our pods."""
        return {(d.strategy, d.subject): d.reason for d in tick.decisions if d.subject.startswith("pod/ns/")}

    def served(self, tick: Tick) -> None:
        """Every other pod is, services have their floor, and best effort a limit."""
        assert self.calm.keys() <= self.said(tick).keys(), self.calm.keys() - self.said(tick).keys()
        own = {pod.name: len(pod.resource_status.cpuset) for pod in tick.snapshot.pods}
        assert own.pop("db", 1) == 1
        assert sum(own.values()) + 1 <= self.node.cpus // 2
        assert any(d.subject == "besteffort" and d.outcome for d in tick.decisions)

    def restored(self, *, exactly: bool = True) -> None:
        """Every value is as it was found; now and then, since it takes long. What was read wrong comes back wrong."""
        self._count += 1
        if self._count % 50:
            return
        generate_latest(self._metrics.registry)
        self.guest, self.files.content = None, unchanged
        self.tick(2)
        refused = [step for step in self.agent.put_back() if not step.ok]
        assert not exactly or not refused, refused
        assert not exactly or self.node.changed(self.found) == []
        self.tick(2)


@functools.cache
def bench(shape: str, entry: str) -> Bench:
    """One for each shape and entry: to make it takes longer than many inputs."""
    del entry
    return Bench(shape)


def pod(raw: bytes) -> str:
    """A pod of a tenant beside the others."""
    try:
        guest = _DECODE(raw)
    except UNREADABLE:
        return "a problem of the watch"
    meta = guest.metadata
    if meta.namespace == "ns" or meta.uid in ("uid-web", "uid-db", "uid-batch"):
        return "the API server gives each pod a name and a uid of its own"
    made = bench("small", "pods")
    made.guest = guest
    tick = made.tick(2)
    made.served(tick)
    said = sorted({d.reason for d in tick.decisions if d.subject == f"pod/{meta.namespace}/{meta.name}"})
    made.restored()
    return str(said)


def kernel_file(raw: bytes) -> str:
    """A file that the kernel would not print so."""
    head, _, content = raw.partition(b"\n")
    shape, _, name = head.decode(errors="replace").partition(" ")
    made = bench(shape if shape in FILES else "small", "files")
    made.files.content = lambda path, raw: content if path.rpartition("/")[2] == name else raw
    try:
        tick = made.tick(2)
        outcome = f"{tick.status} {tick.because[:16]} {len(tick.problems)}"
    finally:
        made.files.content = unchanged
    made.served(made.tick(2))
    made.restored(exactly=False)
    return f"{name[:20]} {outcome}"


def own_journal(raw: bytes) -> str:
    """The journal of an earlier run: what can be read of it is restored."""
    with tempfile.TemporaryDirectory(prefix="koordlite-fuzz-") as folder:
        path = pathlib.Path(folder)
        (path / "journal.json").write_bytes(raw)
        try:
            with Journal.open(path, boot_id=BOOT) as held:
                made = bench("small", "journal")
                steps = restore(made.node.host(), held)
                damaged = len(held.damaged)
        except JournalError as error:
            return f"refused: {str(error).rpartition('journal.json')[2][:24]}"
        journal.damaged(path)
        return f"{min(len(steps), 4)} steps, {sum(step.ok for step in steps) > 0}, {min(damaged, 3)} damaged"


def keep_head(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """As anything, but the file that is named in the first line stays."""
    head, _, content = data.partition(b"\n")
    return head + b"\n" + mutate.anything(random, content, [seed.partition(b"\n")[2] for seed in seeds])


def _kernel_seeds() -> list[bytes]:
    found = []
    for shape, names in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            node = Emulated(shape, pathlib.Path(folder))
            node.pod("web", "LS", "1")
            node.host()
            for name in names.split():
                paths = [path for path in node.sandbox.files.paths("/") if path.rpartition("/")[2] == name]
                found += [f"{shape} {name}\n".encode() + node.sandbox.files.read(path) for path in sorted(paths)[:2]]
    return found


def _journal_seed() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        node = Emulated("small", pathlib.Path(folder))
        node.pod("web", "LS", "3")
        node.pod("batch", "BE", "64")
        with node.journal() as held:
            node.ticks(node.agent(held), 3)
        return (node.state / "journal.json").read_bytes()


ENTRIES = [
    Entry(name="agent-pods", seeds=pods.SEEDS, run=pod, weight=6),
    Entry(name="agent-files", seeds=_kernel_seeds(), run=kernel_file, mutate=keep_head, weight=6),
    Entry(name="journal", seeds=[_journal_seed()], run=own_journal, weight=2),
]
