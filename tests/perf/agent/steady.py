"""What stays still: writes under a load that hardly changes, memory over many ticks, and how long a restore takes."""

from __future__ import annotations

import argparse
import sys
import time

import nodes

SIMULATED_SECONDS = 600
STEADY = "wave(low=6,high=6,period=60,noise=0.01)"
"""Six CPUs, one percent more or less each second."""
WINDOWS_FULL = 320
"""Ticks after which the longest window, five minutes, has let its first sample fall out."""
PODS = 250
RESTORE_SECONDS, MEMORY_GROWTH_MIB = 1.0, 16.0
WIDE = 4.0


def writes_under_steady_load(pods: int) -> int:
    """Writes during ten simulated minutes, after a minute in which the limits find their place."""
    with nodes.emulated(pods, front=STEADY) as (agent, files, step):
        for second in range(60 + SIMULATED_SECONDS):
            if second == 60:
                files.writes = 0
            agent.tick()
            step()
        return files.writes


def memory_over(ticks: int, pods: int) -> tuple[float, float, float]:
    """MiB after one tick, after the windows are full, and after `ticks` ticks in all, on real cgroups."""
    with nodes.real(pods, "observe") as (agent, _, step):
        sizes = []
        for number in range(1, ticks + 1):
            agent.tick()
            step()
            if number in (1, WINDOWS_FULL):
                sizes.append(nodes.rss_mib())
        return sizes[0], sizes[1], nodes.rss_mib()


def restore_seconds(pods: int) -> float:
    """How long it takes to give back what was found at so many pods."""
    with nodes.real(pods) as (agent, _, step):
        for _ in range(5):
            agent.tick()
            step()
        began = time.perf_counter()
        agent.put_back()
        return time.perf_counter() - began


def main() -> int:
    """Print the three; 1 when one is far beyond its budget."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--ticks", type=int, default=10_000, help="ticks over which memory has to stay flat")
    asked.add_argument("--memory-pods", type=int, default=PODS)
    asked.add_argument(
        "--pods", type=int, nargs="*", default=(10, 50, 110, PODS), help="sizes of nodes under steady load"
    )
    given = asked.parse_args()
    writes = 0
    for pods in given.pods:
        found = writes_under_steady_load(pods)
        print(
            f"writes in {SIMULATED_SECONDS} simulated seconds of steady load at {pods} pods: {found} (budget 0)",
            flush=True,
        )
        writes += found
    seconds = restore_seconds(PODS)
    print(f"restore at {PODS} pods: {seconds:.2f} s (budget {RESTORE_SECONDS} s)")
    first, before, after = memory_over(given.ticks, given.memory_pods)
    told = (
        f"{first:.1f} MiB after the first tick, {before:.1f} with full windows, {after:.1f} after {given.ticks} ticks"
    )
    print(f"memory at {given.memory_pods} pods: {told}")
    return int(writes > 0 or seconds > WIDE * RESTORE_SECONDS or after - before > MEMORY_GROWTH_MIB)


if __name__ == "__main__":
    sys.exit(main())
