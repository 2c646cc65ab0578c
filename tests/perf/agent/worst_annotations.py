"""What a tick costs when every pod has the worst annotations a tenant can write, beside a normal tick.

The budget is twice a normal tick; a run fails only far beyond it, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping

import nodes
import tenants
from emulated import Emulated

from koordlite.model import keys

BUDGET, WIDE = 2.0, 2.0
"""How many times a normal tick it may be, and by how much a run may be beyond that on a shared machine."""
ALL = (
    keys.RESOURCE_STATUS,
    keys.RESOURCE_SPEC,
    keys.NUMA_TOPOLOGY_SPEC,
    keys.POD_RESCTRL,
    keys.CPU_BURST,
    keys.MEMORY_QOS,
    keys.BLKIO_QOS,
    keys.OOM_SCORE_ADJ_SPEC,
    keys.EVICTION_POLICY,
)
_NAMES = json.dumps({f"{'k' * 50}{number}": [] for number in range(60)})
KINDS: Mapping[str, Mapping[str, str]] = {
    "normal": {},
    "250 KB each": {keys.RESOURCE_STATUS: json.dumps({"cpuset": ",".join(str(2 * n) for n in range(40_000))})},
    "long CPU lists": {keys.RESOURCE_STATUS: json.dumps({"cpuset": ",".join(f"{4 * n}-4096" for n in range(350))})},
    "no JSON": dict.fromkeys(ALL, "[" * 4000),
    "wrong names": dict.fromkeys(ALL, _NAMES),
    "everything": {
        keys.POD_RESCTRL: '{"llc":{"schemata":{"range":[0,100]}},"mb":{"schemata":{"percent":100}}}',
        keys.CPU_BURST: '{"policy":"auto","cpuBurstPercent":10000}',
        keys.MEMORY_QOS: '{"policy":"auto","minLimitPercent":100}',
        keys.BLKIO_QOS: json.dumps({"blocks": [{"name": f"/dev/n{n}", "type": "device"} for n in range(80)]}),
        keys.OOM_SCORE_ADJ: "-1000",
        keys.EVICTION_POLICY: "[]",
    },
}


def measure(pods: int, notes: Mapping[str, str], *, ticks: int) -> tuple[float, float]:
    """Median CPU time of a tick in milliseconds, and the memory of this process in MiB."""
    with tempfile.TemporaryDirectory(prefix="koordlite-perf-") as folder:
        node = Emulated("intel-2s-ht", pathlib.Path(folder))
        for number in range(pods):
            kind = nodes.KINDS[number % 2][1]
            requests = {keys.BATCH_CPU: "1000"} if kind == "BE" else {"cpu": "50m"}
            tenants.create(node, f"p{number}", kind, annotations=notes, requests=requests, cpu="0.05")
        with node.at_work("enforce") as agent:
            node.ticks(agent, 8)
            gc.collect()
            spent = []
            for _ in range(ticks):
                began = time.process_time()
                agent.tick()
                spent.append((time.process_time() - began) * 1000)
                node.sandbox.advance(1.0)
            return statistics.median(spent), nodes.rss_mib()


def main() -> int:
    """Print the table; 1 when one kind costs far more than its budget."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--pods", type=int, default=250)
    asked.add_argument("--ticks", type=int, default=20)
    given = asked.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {given.pods} pods, budget {BUDGET:g} × normal")
    print(f"{'annotations':16} {'CPU ms':>8} {'× normal':>9} {'RSS MiB':>8}")
    normal, late = 0.0, False
    for name, notes in KINDS.items():
        cost, memory = measure(given.pods, notes, ticks=given.ticks)
        normal = normal or cost
        print(f"{name:16} {cost:8.2f} {cost / normal:9.2f} {memory:8.1f}")
        late = late or cost > normal * BUDGET * WIDE
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
