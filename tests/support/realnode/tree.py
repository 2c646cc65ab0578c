"""A private cgroup tree laid out as kubelet lays out its own, on this machine's kernel, with real processes in it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from realnode.pods import RUNTIME, SANDBOX, Pod
from realnode.waiting import until

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory")
_WELCOME = ("blkio",)
"""Used where they are mounted."""
FILES = {1: {"cpuset": "cpuset.cpus", "cpu": "cpu.cfs_quota_us"}, 2: {"cpuset": "cpuset.cpus", "cpu": "cpu.max"}}
PREFIX = "koordlite-test-"

# Busy for a share of each 20 ms; the share is read from a file, so that a test can change it.
_LOAD = """
import sys, time
while True:
    duty = float(open(sys.argv[1]).read() or 0)
    end = time.perf_counter() + 0.02 * duty
    while time.perf_counter() < end:
        pass
    time.sleep(0.02 * (1 - duty) + 0.0001)
"""


def mounts() -> tuple[int, dict[str, pathlib.Path]]:
    """The cgroup version that has the cpu controller, and the folder of each controller."""
    lines = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    points = {
        c: pathlib.Path(m[1])
        for m in lines
        if m[2] == "cgroup"
        for c in (*CONTROLLERS, *_WELCOME)
        if c in m[3].split(",")
    }
    if "cpu" in points:
        return 1, points
    # On a hybrid machine the unified hierarchy has the controllers that no v1 hierarchy has.
    unified = [pathlib.Path(m[1]) for m in lines if m[2] == "cgroup2"]
    with_cpu = [point for point in unified if "cpu" in (point / "cgroup.controllers").read_text().split()]
    return 2, dict.fromkeys(CONTROLLERS, (with_cpu or unified)[0])


def controller_point(controller: str) -> pathlib.Path | None:
    """Folder of the v1 hierarchy of a controller; None where there is none."""
    lines = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    return next((pathlib.Path(m[1]) for m in lines if m[2] == "cgroup" and controller in m[3].split(",")), None)


def _hierarchies() -> set[pathlib.Path]:
    """Every hierarchy of this machine: a container runtime makes its groups in all of them."""
    lines = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    return {pathlib.Path(m[1]) for m in lines if m[2] in ("cgroup", "cgroup2")}


class Load:
    """A process whose share of a CPU a test sets."""

    def __init__(self, process: subprocess.Popen[bytes], duty: pathlib.Path | None) -> None:
        self.process, self._duty = process, duty

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def set(self, duty: float) -> None:
        """Use this share of a CPU from here on."""
        assert self._duty is not None
        aside = self._duty.with_suffix(".new")
        aside.write_text(str(duty))
        aside.replace(self._duty)


class Tree:
    """The groups of one test. `top` is what koordlite's --kubepods gets."""

    def __init__(self, name: str, *, driver: str = "cgroupfs") -> None:
        assert name.startswith(PREFIX)
        self.version, self.points = mounts()
        self.driver = driver
        self._base = name
        self.top = f"{name}/kubepods" if driver == "cgroupfs" else f"{name}/kubepods.slice"
        self._loads: list[Load] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="koordlite-load-")

    def build(self) -> Tree:
        """Make kubelet's own three groups."""
        for group in (self._base, self.top, self.qos("Burstable"), self.qos("BestEffort")):
            self._make(group)
        self.set_shares(self.qos("BestEffort"), 2)
        self.set_shares(self.qos("Burstable"), 1024)
        return self

    def set_shares(self, group: str, shares: int) -> None:
        """Weight of a group, in shares of cgroup v1."""
        if self.version == 1:
            (self.points["cpu"] / group / "cpu.shares").write_text(str(shares))
        else:
            (self.points["cpu"] / group / "cpu.weight").write_text(str(max(1, shares * 100 // 1024)))

    def qos(self, kube_qos: str) -> str:
        """The group of a Kubernetes class; guaranteed pods lie in the top group itself."""
        if kube_qos == "Guaranteed":
            return self.top
        word = kube_qos.lower()
        return f"{self.top}/{word}" if self.driver == "cgroupfs" else f"{self.top}/kubepods-{word}.slice"

    def pod(self, pod: Pod) -> str:
        """The group of a pod."""
        parent = self.qos(pod.kube_qos)
        if self.driver == "cgroupfs":
            return f"{parent}/pod{pod.uid}"
        stem = parent.rpartition("/")[2].removesuffix(".slice")
        return f"{parent}/{stem}-pod{pod.uid.replace('-', '_')}.slice"

    def container(self, pod: Pod, name: str) -> str:
        """The group of a container, or of the pod's sandbox."""
        key = pod.container_id(name)
        return f"{self.pod(pod)}/{key}" if self.driver == "cgroupfs" else f"{self.pod(pod)}/cri-{RUNTIME}-{key}.scope"

    def groups_of(self, pod: Pod) -> list[str]:
        """The pod's group, then its sandbox and containers."""
        return [self.pod(pod), *(self.container(pod, name) for name in (SANDBOX, *pod.containers))]

    def add(self, pod: Pod) -> None:
        """Make the groups of a pod, as kubelet and the runtime do."""
        for group in self.groups_of(pod):
            self._make(group)

    def remove(self, pod: Pod) -> None:
        """Remove the groups of a pod; its processes must have ended."""
        for group in reversed(self.groups_of(pod)):
            self._rmdir(group)

    def load(self, pod: Pod, *, duty: float | None = None, container: str = "main") -> Load:
        """A process in a container: as busy as it can, or for the share `duty` of a CPU."""
        file = None
        command = ["sh", "-c", "while :; do :; done"]
        if duty is not None:
            file = pathlib.Path(self._scratch.name) / f"{len(self._loads)}.duty"
            file.write_text(str(duty))
            command = [sys.executable, "-S", "-c", _LOAD, str(file)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._loads.append(Load(process, file))
        for point in set(self.points.values()):
            (point / self.container(pod, container) / "cgroup.procs").write_text(str(process.pid))
        return self._loads[-1]

    def end(self, *loads: Load) -> None:
        """End processes that `load` began."""
        for load in loads:
            load.process.kill()
            load.process.wait()

    def file(self, group: str, controller: str) -> pathlib.Path:
        """The limit file of a group: its CPUs (`cpuset`) or its quota (`cpu`)."""
        return self.points[controller] / group / FILES[self.version][controller]

    def cpus(self, group: str) -> set[int]:
        """The CPUs a group may use, empty where a v2 group has no set of its own."""
        return parse_list(self.file(group, "cpuset").read_text())

    def effective(self, group: str) -> set[int]:
        """The CPUs a group really may use."""
        name = "cpuset.cpus" if self.version == 1 else "cpuset.cpus.effective"
        return parse_list((self.points["cpuset"] / group / name).read_text())

    def quota_us(self, group: str) -> int:
        """The quota of a group, -1 unlimited."""
        text = self.file(group, "cpu").read_text().split()[0]
        return -1 if text == "max" else int(text)

    def usage_ns(self, group: str) -> int:
        """CPU time a group has used (v1)."""
        return int((self.points["cpuacct"] / group / "cpuacct.usage").read_text())

    def groups(self) -> list[str]:
        """Every group of the tree, parents first."""
        return sorted(self._walk("cpuset"))

    def content(self) -> dict[str, bytes]:
        """The bytes of every limit file in the tree, by path."""
        files = (self.file(group, controller) for group in self.groups() for controller in ("cpuset", "cpu"))
        return {str(file): file.read_bytes() for file in files}

    def changed(self, found: Mapping[str, bytes]) -> dict[str, bytes | None]:
        """The limit files that do not hold what `content` found in them, with what they hold; None where one is gone.

        A v2 set that was empty, "as my parent", cannot be emptied again while processes are in the group (the kernel
        says ENOSPC): there the parent's CPUs, written out, count as found.
        """
        present = self.content()
        differ = {path: present.get(path) for path, raw in found.items() if present.get(path) != raw}
        return {p: raw for p, raw in differ.items() if found[p] != b"\n" or raw is None or not _like_parent(p)}

    def close(self) -> None:
        """End our processes and remove every group, whatever state a test left them in."""
        self.end(*self._loads)
        for group in sorted({*self._walk("cpuset"), *self._walk("cpu"), self._base}, reverse=True):
            self._rmdir(group)
        for point in _hierarchies() - set(self.points.values()):
            for folder, _, _ in os.walk(point / self._base, topdown=False):
                until(lambda folder=pathlib.Path(folder): _removed(folder), f"{folder} can be removed", seconds=3)
        self._scratch.cleanup()

    def _walk(self, controller: str) -> Iterator[str]:
        """All of it, however deep: pathlib and os.walk go down by recursion."""
        waiting = [self.top]
        while waiting:
            group = waiting.pop()
            yield group
            with contextlib.suppress(FileNotFoundError):
                waiting += [
                    f"{group}/{each.name}" for each in os.scandir(self.points[controller] / group) if each.is_dir()
                ]

    def _make(self, group: str) -> None:
        for point in set(self.points.values()):
            (point / group).mkdir(exist_ok=True)
        if self.version == 2:
            self._delegate(group)
            return
        folder = self.points["cpuset"] / group
        for name in ("cpuset.cpus", "cpuset.mems"):
            (folder / name).write_text((folder.parent / name).read_text().strip())

    def _delegate(self, group: str) -> None:
        """v2 gives a group only the controllers its parent passes down."""
        parent = (self.points["cpu"] / group).parent
        offered = (parent / "cgroup.controllers").read_text().split()
        wanted = [name for name in ("cpu", "cpuset", "memory", "io") if name in offered]
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))

    def _rmdir(self, group: str) -> None:
        for point in set(self.points.values()):
            until(lambda folder=point / group: _removed(folder), f"{point / group} can be removed", seconds=3)


def _like_parent(file: str) -> bool:
    """Whether a populated v2 group has its parent's CPUs."""
    group = pathlib.Path(file).parent
    populated = "populated 1" in (group / "cgroup.events").read_text()
    return populated and pathlib.Path(file).read_bytes() == (group.parent / "cpuset.cpus.effective").read_bytes()


def _removed(folder: pathlib.Path) -> bool:
    """A group whose last process has just ended refuses for a moment."""
    with contextlib.suppress(FileNotFoundError):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno == 16:  # EBUSY
                return False
            raise
    return True


def parse_list(text: str) -> set[int]:
    """`0-2,5` → {0, 1, 2, 5}: the kernel's list format, read independently of the product."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if part:
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus
