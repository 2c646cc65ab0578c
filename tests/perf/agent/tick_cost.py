"""Cost of one tick at 10 to 500 pods: CPU, wall time, file operations, memory. Fails only far beyond the budget.

`--beside-go` has a Go program read files of the same groups right after the ticks: those of one tick of ours, and those
that koordlet reads each second (CPU time, memory and throttling of every pod and container). It is what an agent in Go
pays before it has decided anything. It needs `go`.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import nodes

PODS = (10, 50, 110, 250, 500)
BUDGET_MILLISECONDS_AT_250 = 10.0
GO_ROUNDS = 40
WIDE = 4.0
"""The machine may be shared: a run fails beyond this many times the budget."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Medians over the ticks after warming up."""

    pods: int
    cpu_ms: float
    least_ms: float
    """CPU time of the quickest tenth: what a tick costs while nobody else uses the core's caches and its twin."""
    wall_ms: float
    calls: float
    """read(2) and write(2) calls, as the kernel counts them for the process."""
    reads: float
    lists: float
    writes: float
    rss_mib: float
    go_ms: float | None = None
    """CPU time in which a Go program reads the files of one tick of ours."""
    koordlet_ms: float | None = None
    """CPU time in which it reads those of koordlet."""


def measure(
    pods: int, *, ticks: int, emulated: bool, mode: str, full: bool = False, reader: pathlib.Path | None = None
) -> Cost:
    """Medians of CPU and wall time, means of the counts, over `ticks` ticks; `reader` is the Go program."""
    make = nodes.emulated if emulated else nodes.real
    with make(pods, mode, full=full) as (agent, files, step):
        for _ in range(12):
            agent.tick()
            step()
        gc.collect()
        before = (system_calls(), files.reads, files.lists, files.writes)
        cpu, wall = [], []
        for _ in range(ticks):
            files.paths.clear()
            began, spent = time.perf_counter(), time.process_time()
            agent.tick()
            cpu.append((time.process_time() - spent) * 1000)
            wall.append((time.perf_counter() - began) * 1000)
            step()
        counts = [
            (now - then) / ticks
            for now, then in zip((system_calls(), files.reads, files.lists, files.writes), before, strict=True)
        ]
        least = statistics.quantiles(cpu, n=10)[0]
        resident = nodes.rss_mib()
        cost = Cost(pods, statistics.median(cpu), least, statistics.median(wall), *counts, resident)
        if reader is None:
            return cost
        others = read_by_go(reader, files_of_koordlet(files.paths))
        return dataclasses.replace(cost, go_ms=read_by_go(reader, files.paths), koordlet_ms=others)


def files_of_koordlet(paths: list[str]) -> list[str]:
    """Files that koordlet's collectors podresource and podthrottled read, each second by default, in the groups of pods
    among `paths`."""
    places = {pathlib.PurePath(path).parent for path in paths if "/pod" in path}
    groups = {place.relative_to("/sys/fs/cgroup") for place in places}
    if not pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
        groups = {group.relative_to(group.parts[0]) for group in groups}
        names = ("cpuacct/{}/cpuacct.usage", "memory/{}/memory.stat", "cpu/{}/cpu.stat")
    else:
        names = ("{}/cpu.stat", "{}/memory.stat")
    return sorted(f"/sys/fs/cgroup/{name.format(group)}" for group in groups for name in names)


def beside(cost: Cost) -> str:
    """The figures of the Go program, and ours as parts of them."""
    if cost.go_ms is None or cost.koordlet_ms is None:
        return ""
    ours, theirs = cost.cpu_ms / cost.go_ms, cost.cpu_ms / cost.koordlet_ms
    return f"   Go: our files {cost.go_ms:.2f} ms ({ours:.2f}), koordlet's {cost.koordlet_ms:.2f} ms ({theirs:.2f})"


def build_reader(folder: pathlib.Path) -> pathlib.Path | None:
    """Compile reader.go; None, and told, where there is no `go`."""
    go = shutil.which("go")
    if go is None:
        print("go is not installed: nothing to compare with")
        return None
    target = folder / "reader"
    source = pathlib.Path(__file__).with_name("reader.go")
    subprocess.run([go, "build", "-o", target, source], check=True, env={**os.environ, "GO111MODULE": "off"})
    return target


def read_by_go(reader: pathlib.Path, paths: list[str]) -> float:
    """CPU time in ms, the median of its rounds."""
    command = [str(reader), str(GO_ROUNDS)]
    answer = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=True).stdout
    return float(answer.split()[0])


def system_calls() -> int:
    """read(2), pread(2), write(2) and their kin of this process so far."""
    rows = dict(line.split(": ") for line in pathlib.Path("/proc/self/io").read_text().splitlines())
    return int(rows["syscr"]) + int(rows["syscw"])


def main() -> int:
    """Read the options, and print the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--pods", type=int, nargs="*", default=PODS)
    asked.add_argument("--ticks", type=int, default=40)
    asked.add_argument("--emulated", action="store_true")
    asked.add_argument("--mode", default="enforce")
    asked.add_argument("--full", action="store_true", help="with everything switched on that is off by default")
    asked.add_argument("--beside-go", action="store_true", help="a Go program reads the same files, in turns")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="koordlite-perf-") as folder:
        return table(given, build_reader(pathlib.Path(folder)) if given.beside_go else None)


def table(given: argparse.Namespace, reader: pathlib.Path | None) -> int:
    """Print a row for each number of pods; 1 when a tick at 250 pods is far beyond its budget."""
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {'emulated' if given.emulated else 'real cgroups'}")
    print(
        f"{'pods':>5} {'CPU ms':>8} {'least':>7} {'wall ms':>8} {'µs/pod':>7} {'calls':>7} {'reads':>7} {'lists':>6} "
        f"{'writes':>6} {'RSS MiB':>8}"
    )
    late = False
    for pods in given.pods:
        cost = measure(
            pods, ticks=given.ticks, emulated=given.emulated, mode=given.mode, full=given.full, reader=reader
        )
        each = cost.cpu_ms * 1000 / pods
        print(
            f"{pods:5} {cost.cpu_ms:8.2f} {cost.least_ms:7.2f} {cost.wall_ms:8.2f} {each:7.1f} {cost.calls:7.0f} "
            f"{cost.reads:7.0f} {cost.lists:6.0f} {cost.writes:6.1f} {cost.rss_mib:8.1f}" + beside(cost)
        )
        late = late or (pods <= 250 and not given.emulated and cost.cpu_ms > WIDE * BUDGET_MILLISECONDS_AT_250)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
