"""What batchResource adds to a tick: off and enforcing in turns on real cgroups, CPU time and writes."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

import nodes

MOST_MORE = 0.10
"""How much longer a tick may take."""
WIDE = 4.0
TICKS_A_TURN, WARM_TICKS = 5, 12


def main() -> int:
    """Print the table; 1 when the difference is far beyond what it may be, or anything is written at rest."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--pods", type=int, default=250)
    asked.add_argument("--turns", type=int, default=20)
    given = asked.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {given.pods} pods, half of them batch pods")
    spent: dict[str, list[float]] = {"off": [], "enforce": []}
    writes: dict[str, int] = {}
    off, on = nodes.real(given.pods, off="batchResource", batch=True), nodes.real(given.pods, batch=True)
    with off as without, on as with_it:
        agents = {"off": without, "enforce": with_it}
        for agent, files, step in agents.values():
            for _ in range(WARM_TICKS):
                agent.tick()
                step()
            files.writes = 0
        for _ in range(given.turns):
            for mode, (agent, _, step) in agents.items():
                for _ in range(TICKS_A_TURN):
                    began = time.process_time()
                    agent.tick()
                    spent[mode].append((time.process_time() - began) * 1000)
                    step()
        writes = {mode: files.writes for mode, (_, files, _) in agents.items()}
    for mode, times in spent.items():
        tenth = statistics.quantiles(times, n=10)[0]
        print(
            f"{mode:8} median {statistics.median(times):6.2f} ms, quickest tenth {tenth:6.2f} ms, {writes[mode]} writes"
        )
    least = [statistics.quantiles(spent[mode], n=10)[0] for mode in ("off", "enforce")]
    more = least[1] / least[0] - 1
    print(f"the quickest tenth is {100 * more:+.1f} %")
    return int(more > WIDE * MOST_MORE or writes["enforce"] > 0)


if __name__ == "__main__":
    sys.exit(main())
