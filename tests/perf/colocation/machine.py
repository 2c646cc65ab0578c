"""This machine during a measurement: a private kubepods tree, and the CPU time of its groups and of everybody else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree, controller_point, mounts

SERVICE = Pod("service", "Burstable", "LS")
BATCH = Pod("batch")
STEM = f"{PREFIX}colocation-"
_BESIDE = {"agent": ("cpuacct", "cpu"), "client": ("cpuacct",)}
"""Groups outside kubepods by their controllers. On cgroup v1 the client stays in the root of `cpu`, where real-time
priority needs no budget."""
AGENT_SHARES = 40
"""What the 20m that the DaemonSet requests are beside a service's 500m, where all pods together have 1024."""
_WAIT_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU seconds since the groups were made, at a moment of the monotonic clock."""

    time: float
    service: float
    batch: float
    agent: float
    client: float
    others: float
    """All that is outside the groups and this process."""
    steal: float
    throttled: float
    """Seconds the best-effort group was throttled, as the kernel adds them up over CPUs."""


class Machine:
    """A node of two pods. Its groups are in `/sys/fs/cgroup` for as long as this process lives, and no longer."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self.program, self.folder = program, folder
        self.tree = Tree(f"{STEM}{os.getpid()}")
        self.base = self.tree.top.partition("/")[0]
        self.manifests = Manifests(folder / "cluster")
        self.cpus = len(os.sched_getaffinity(0))
        self._client: tuple[int, float] | None = None

    def build(self) -> None:
        """Make the groups. RuntimeError where the hierarchy with the cpu controller has no cpuset."""
        offered = self.tree.points["cpu"] / "cgroup.controllers"
        if self.tree.version == 2 and "cpuset" not in offered.read_text().split():
            raise RuntimeError(f"{offered} has no cpuset: unmount that controller where it is mounted as v1")
        self.tree.build()
        self.manifests.node()
        for pod in (SERVICE, BATCH):
            self.tree.add(pod)
            self.manifests.pod(pod)
        for name in _BESIDE:
            self._beside(name)
        self.tree.set_shares(f"{self.base}/agent", AGENT_SHARES)

    def _beside(self, name: str) -> None:
        for controller in _BESIDE[name]:
            (self.tree.points[controller] / self.base / name).mkdir(exist_ok=True)
        folder = self.tree.points["cpuacct"] / self.base / name
        # Where cpu and cpuacct are one hierarchy, a group has no real-time priority to give unless it is told so.
        for at in (folder.parent, folder):
            if (at / "cpu.rt_runtime_us").exists():
                (at / "cpu.rt_runtime_us").write_text("400000" if at == folder.parent else "200000")

    def inside(self, pod: Pod, *, slice_us: int = 0) -> list[str]:
        """What to put before a command so that it runs in the pod's container and ends with this process."""
        folders = dict.fromkeys(self.tree.points.values())
        groups = [str(point / self.tree.container(pod, "main")) for point in folders]
        return self._run(groups) + (["-s", str(slice_us)] if slice_us else []) + ["--"]

    def beside(self, name: str) -> list[str]:
        """The same for the group `agent` or `client`. On v2 the client goes to the root group: a kernel with
        RT_GROUP_SCHED gives no other one real-time priority there."""
        if name == "client" and self.tree.version == 2:
            return [*self._run([str(self.tree.points["cpu"])]), "--"]
        points = dict.fromkeys(self.tree.points[controller] for controller in _BESIDE[name])
        return [*self._run([str(point / self.base / name) for point in points]), "--"]

    def watch_client(self, pid: int) -> None:
        """Count the client by its process, where it has no group."""
        self._client = (pid, 0.0) if self.tree.version == 2 else None

    def _client_seconds(self) -> float:
        if self._client is None:
            return self._seconds(f"{self.base}/client")
        pid, seconds = self._client
        with contextlib.suppress(OSError, IndexError):  # It has ended.
            seconds = int(_first_line(f"/proc/{pid}/schedstat").split()[0]) / 1e9
        self._client = pid, max(seconds, self._client[1])
        return self._client[1]

    def _run(self, groups: Sequence[str]) -> list[str]:
        return [str(self.program), "run", *(word for group in groups for word in ("-g", group))]

    def usage(self) -> Usage:
        """What everybody has used by now."""
        total, steal = self._total_seconds()
        of = {"agent": self._seconds(f"{self.base}/agent"), "client": self._client_seconds()}
        kubepods = self._seconds(self.tree.top)
        batch = self._seconds(self.tree.qos("BestEffort"))
        others = total - kubepods - sum(of.values()) - time.process_time()
        return Usage(
            time.monotonic(), kubepods - batch, batch, of["agent"], of["client"], others, steal, self._throttled()
        )

    def _seconds(self, group: str) -> float:
        folder = self.tree.points["cpuacct"] / group
        if self.tree.version == 1:
            return int((folder / "cpuacct.usage").read_text()) / 1e9
        return int(_fields(folder / "cpu.stat")["usage_usec"]) / 1e6

    def _total_seconds(self) -> tuple[float, float]:
        """CPU seconds of all tasks, and those that another machine took away. The v1 counter is exact, and a hybrid
        machine may have it; that of /proc/stat, all there is on v2, may go by what the timer interrupt meets."""
        words = [float(word) / os.sysconf("SC_CLK_TCK") for word in _first_line("/proc/stat").split()[1:]]
        if (counter := controller_point("cpuacct")) is not None:
            return int((counter / "cpuacct.usage").read_text()) / 1e9, words[7]
        return sum(words[:3]) + sum(words[5:7]), words[7]

    def _throttled(self) -> float:
        fields = _fields(self.tree.points["cpu"] / self.tree.qos("BestEffort") / "cpu.stat")
        return (
            int(fields["throttled_time"]) / 1e9 if "throttled_time" in fields else int(fields["throttled_usec"]) / 1e6
        )

    def end(self, pod: Pod) -> None:
        """Kill every process of the pod, the ones it forks meanwhile too."""
        _kill_all([self.tree.points["cpuacct"] / self.tree.pod(pod)])

    def close(self) -> None:
        """Kill what still runs and remove all groups."""
        remove(self.base)


@contextlib.contextmanager
def private(program: pathlib.Path, folder: pathlib.Path) -> Iterator[Machine]:
    """The groups from their making to their removal, which a guard sees to when this process is killed."""
    sweep()
    machine = Machine(program, folder)
    guard = subprocess.Popen(
        [sys.executable, __file__, machine.base],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        machine.build()
        yield machine
    finally:
        assert guard.stdin
        guard.stdin.close()
        guard.wait()


def sweep() -> None:
    """Remove the groups of earlier runs whose process, and whose guard, are gone."""
    _, points = mounts()
    for folder in {f for point in points.values() for f in point.glob(f"{STEM}*")}:
        pid = folder.name.removeprefix(STEM)
        if pid.isdigit() and not pathlib.Path("/proc", pid).exists():
            remove(folder.name)


def remove(base: str) -> None:
    """Kill all processes below the group `base` and remove it from every hierarchy."""
    assert base.startswith(STEM)
    _, points = mounts()
    folders = [point / base for point in dict.fromkeys(points.values()) if (point / base).is_dir()]
    _kill_all(folders)
    deadline = time.monotonic() + _WAIT_SECONDS
    for folder in folders:
        for group in sorted((p for p in (folder, *folder.rglob("*/"))), key=lambda path: -len(path.parts)):
            while group.exists():
                try:
                    group.rmdir()
                except OSError:  # A process that was killed leaves its group a moment later.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)


def _kill_all(folders: Sequence[pathlib.Path]) -> None:
    """Until none is left: a storm of forks has new ones while the list is read."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while pids := {pid for folder in folders for pid in _pids(folder)}:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes that do not end: {json.dumps(sorted(pids))}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _pids(folder: pathlib.Path) -> Iterator[int]:
    for file in folder.rglob("cgroup.procs"):
        with contextlib.suppress(FileNotFoundError):
            yield from map(int, file.read_text().split())


def _fields(file: pathlib.Path) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in file.read_text().splitlines())


def _first_line(path: str) -> str:
    with pathlib.Path(path).open() as file:
        return file.readline()


if __name__ == "__main__":  # The guard: it sleeps until the pipe to its parent is closed, by whatever ended it.
    sys.stdin.read()
    remove(sys.argv[1])
