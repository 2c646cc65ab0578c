"""Runs inside the guest: pressure of containers is read, and counters of a group count that group and no other.

The emulated CPU has no hardware counters: what the agent says of that is a claim, and software counters stand in.
Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time

from guestclaims import ALL, claim, tell
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree

from koordlite.clock import RealClock
from koordlite.host import bundle
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.host.perf_events import CgroupCounters
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.model.errors import HardwareAbsent
from koordlite.model.settings import MetricsSettings
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer, cpi

QUIET, BUSY = Pod("quiet"), Pod("busy")
CLOCK = (1, 0)
"""PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK: nanoseconds on the CPU."""


def observed(host: Host, manifests: Manifests) -> Snapshot:
    """A picture with all interference metrics, once a short window has passed."""
    metrics = MetricsSettings(container_cpi=True, container_psi=True, cpi_window_seconds=0.1)
    observer = Observer(host, ManifestCluster(manifests.folder, clock=host.clock), tasks_seconds=5.0, metrics=metrics)
    observer.observe()
    time.sleep(1.0)
    return observer.observe()


def check_picture(seen: Snapshot, containers: tuple[str, ...], *, version: int) -> None:
    """What one picture says."""
    with claim("hardware counters that are missing are named, and nothing is counted"):
        (problem,) = (each for each in seen.problems if each.field == "metrics.containerCpi")
        assert "perf_event_open: ENOENT" in problem.why if version == 2 else "no group" in problem.why, problem.why
        assert not seen.hardware_counts
    with claim("pressure of each container is read on v2, and there is none on v1"):
        found = {group for group in containers if set(seen.pressure.get(group, {})) == {"cpu", "memory", "io"}}
        assert found == (set(containers) if version == 2 else set()), seen.pressure.keys()


def check_counters(host: Host, tree: Tree) -> None:
    """What groups are counted as: one works, one does nothing, one is gone."""
    cpus = sorted(os.sched_getaffinity(0))
    counts = {}
    with contextlib.ExitStack() as stack:
        opened = {}
        for pod in (QUIET, BUSY):
            folder = host.cgroups.folder(tree.container(pod, "main"), "perf_event")
            opened[pod.name] = CgroupCounters(folder, cpus, (CLOCK, CLOCK))
            stack.callback(opened[pod.name].close)
        time.sleep(2.0)
        counts = {name: cpi.sums(counters.read()) for name, counters in opened.items()}
    with claim("a busy group is counted, in both counters, and a group without processes is not"):
        busy, quiet = counts["busy"], counts["quiet"]
        assert busy is not None
        assert quiet is not None
        assert min(busy.cycles, busy.instructions) > 100_000_000, busy
        assert (quiet.cycles, quiet.instructions) == (0, 0), quiet
    with claim("a group that is gone is told apart from a kernel that does not count"):
        try:
            CgroupCounters(host.cgroups.folder(f"{tree.top}/gone", "perf_event"), cpus)
        except FileNotFoundError:
            pass
        else:
            raise AssertionError("it was opened")
    with claim("without the capability the reason names it"):
        check_refusal(host.cgroups.folder(tree.container(BUSY, "main"), "perf_event"), cpus)


def check_refusal(folder: str, cpus: list[int]) -> None:
    """Ask in a child that gave root up."""
    pathlib.Path("/proc/sys/kernel/perf_event_paranoid").write_text("2")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            CgroupCounters(folder, cpus, (CLOCK,))
        except (HardwareAbsent, OSError) as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    said = os.read(reading, 4096).decode()
    assert "EACCES" in said, said
    assert "PERFMON" in said, said


def main() -> None:
    """All claims; the argument is a folder to work in."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-interference")
    manifests = Manifests(work / "cluster")
    manifests.node()
    manifests.config()
    tree = Tree(f"{PREFIX}interference-{os.getpid()}").build()
    with contextlib.closing(tree):
        for pod in (QUIET, BUSY):
            manifests.pod(pod)
            tree.add(pod)
        tree.load(BUSY)
        host = bundle.bind(RealFiles(), RealClock(), kubepods=tree.top)
        containers = tuple(tree.container(pod, "main") for pod in (QUIET, BUSY))
        check_picture(observed(host, manifests), containers, version=tree.version)
        if tree.version == 2:
            check_counters(host, tree)
    tell(ALL)


if __name__ == "__main__":
    main()
