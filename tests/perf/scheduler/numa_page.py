"""What the NUMA page costs in a large cluster: wall time and size of the overview, of a search, of one node.

Budget for 1,000 nodes: 300 ms and 300 KiB. `first` works out every node once; a server does that beside its answers.
Nothing is asserted. Run: PYTHONPATH=tests/support python -m tests.perf.scheduler.numa_page
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from koordlite.scheduler.numa_api.service import NumaService
from tests.scheduler.builders import Scene
from tests.scheduler.numa_scene import TOTALS, container, notes, placed

PER_NODE, ZONES = 20, 4
ASKED: Mapping[str, tuple[str, dict[str, str]]] = {
    "first": ("/numa", {}),
    "overview": ("/numa", {}),
    "search": ("/numa", {"q": "p77-", "sort": "cpu"}),
    "node": ("/numa/nodes/worker-0001", {}),
    "REST nodes": ("/rest/scheduling/v1/numa/nodes", {}),
}


def cluster(nodes: int) -> Scene:
    """Nodes with four NUMA nodes and twenty pods, each of which is on the wrong NUMA node by its promise."""
    made = Scene()
    for number in range(nodes):
        names = [f"p{number}-{each}" for each in range(PER_NODE)]
        zones = ({"cpu": str(number % 8), "memory": f"{number % 32}Gi"} for _ in range(ZONES))
        held = notes(*(container(name, cpuset="4-7") for name in names), wall=made.clock.wall)
        made.node(f"worker-{number:04}", *zones, totals=TOTALS, annotations=held)
        for name in names:
            made.put(placed(name, f"worker-{number:04}"))
    return made


def main() -> None:
    """Print one line for each question."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    scene = cluster(parser.parse_args().nodes)
    service = NumaService(scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "")
    for name, (path, query) in ASKED.items():
        began = time.perf_counter()
        body = service.answer(path, query, "").body
        print(f"{name:<12} {1000 * (time.perf_counter() - began):7.0f} ms {len(body) / 1024:7.0f} KiB")


if __name__ == "__main__":
    main()
