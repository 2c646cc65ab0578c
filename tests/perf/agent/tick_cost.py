"""Cost of one tick at 10 to 500 pods: CPU, wall time, file operations, memory. Fails only far beyond the budget."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import pathlib
import statistics
import sys
import time

import nodes

PODS = (10, 50, 110, 250, 500)
BUDGET_MILLISECONDS_AT_250 = 10.0
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


def measure(pods: int, *, ticks: int, emulated: bool, mode: str, full: bool = False) -> Cost:
    """Medians of CPU and wall time, means of the counts, over `ticks` ticks."""
    make = nodes.emulated if emulated else nodes.real
    with make(pods, mode, full=full) as (agent, files, step):
        for _ in range(12):
            agent.tick()
            step()
        gc.collect()
        before = (system_calls(), files.reads, files.lists, files.writes)
        cpu, wall = [], []
        for _ in range(ticks):
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
        return Cost(pods, statistics.median(cpu), least, statistics.median(wall), *counts, nodes.rss_mib())


def system_calls() -> int:
    """read(2), pread(2), write(2) and their kin of this process so far."""
    rows = dict(line.split(": ") for line in pathlib.Path("/proc/self/io").read_text().splitlines())
    return int(rows["syscr"]) + int(rows["syscw"])


def main() -> int:
    """Print a row for each number of pods; 1 when a tick at 250 pods is far beyond its budget."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--pods", type=int, nargs="*", default=PODS)
    asked.add_argument("--ticks", type=int, default=40)
    asked.add_argument("--emulated", action="store_true")
    asked.add_argument("--mode", default="enforce")
    asked.add_argument("--full", action="store_true", help="with everything switched on that is off by default")
    given = asked.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {'emulated' if given.emulated else 'real cgroups'}")
    print(
        f"{'pods':>5} {'CPU ms':>8} {'least':>7} {'wall ms':>8} {'µs/pod':>7} {'calls':>7} {'reads':>7} {'lists':>6} "
        f"{'writes':>6} {'RSS MiB':>8}"
    )
    late = False
    for pods in given.pods:
        cost = measure(pods, ticks=given.ticks, emulated=given.emulated, mode=given.mode, full=given.full)
        each = cost.cpu_ms * 1000 / pods
        print(
            f"{pods:5} {cost.cpu_ms:8.2f} {cost.least_ms:7.2f} {cost.wall_ms:8.2f} {each:7.1f} {cost.calls:7.0f} "
            f"{cost.reads:7.0f} {cost.lists:6.0f} {cost.writes:6.1f} {cost.rss_mib:8.1f}"
        )
        late = late or (pods <= 250 and not given.emulated and cost.cpu_ms > WIDE * BUDGET_MILLISECONDS_AT_250)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
