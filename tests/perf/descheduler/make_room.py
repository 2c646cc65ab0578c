"""Time to find what has to move so that a pod fits, in a cluster from `clusters.py`.

    python tests/perf/descheduler/make_room.py [--nodes 5000]

Nodes with half of their CPUs free are cordoned. Each row is one waiting pod that asks for more CPUs than any other node
has free: how many, its priority, the answer, the
questions to the board, and seconds of processor time with empty caches. With priority -1 no pod may move for it.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

import clusters
import msgspec

from descheduler.arguments.evictor import Args
from descheduler.cli import source
from descheduler.filters import default_evictor
from descheduler.fit import room
from descheduler.fit.free_capacity import FreeCapacity
from descheduler.fit.search import FitSearch
from descheduler.framework import NodeView, View
from descheduler.snapshot import assemble, files

ASKED = ((-1, 1000), (1, 1000), (2, 1000), (3, 1000), (4, 1000), (2, 0), (9, 1000), (2, -1))
"""CPUs beyond the most that a node has free, and priority of the waiting pods."""


def waiting(view: View, cpus: int, priority: int) -> View:
    """The picture with one pod that waits."""
    objects = files.Objects()
    main = {"name": "main", "resources": {"requests": {"cpu": str(cpus), "memory": "1Gi"}}}
    meta = {"name": "big", "namespace": "ns-0", "uid": "big", "creationTimestamp": clusters.NOW}
    pod = {"kind": "Pod", "metadata": meta, "spec": {"containers": [main], "priority": priority}}
    files.take(objects, msgspec.json.encode(pod), "made")
    return msgspec.structs.replace(view, unbound=assemble.view(objects, clusters.NOW).unbound)


def cordoned(node: NodeView) -> NodeView:
    """The node, cordoned where half of it is free."""
    capacity = FreeCapacity.of(node)
    if 2 * capacity.unrequested.get("cpu", 0) < capacity.allocatable["cpu"].nano:
        return node
    spec = msgspec.structs.replace(node.object.spec, unschedulable=True)
    return msgspec.structs.replace(node, object=msgspec.structs.replace(node.object, spec=spec))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    nodes: int = parser.parse_args().nodes
    with tempfile.TemporaryDirectory() as folder, source.no_collection():
        clusters.write(pathlib.Path(folder), nodes)
        picture = assemble.view(files.read([folder]), clusters.NOW)
    picture = msgspec.structs.replace(picture, nodes={name: cordoned(node) for name, node in picture.nodes.items()})
    open_ = (node for node in picture.nodes.values() if not node.object.spec.unschedulable)
    free = max(FreeCapacity.of(node).unrequested.get("cpu", 0) for node in open_) // 10**9
    print(f"{nodes} nodes, {len(picture.by_uid)} pods, at most {free} CPUs free on a node")
    print(f"{'asks for':<24}{'moves':>6}{'exact':>7}{'questions':>11}{'seconds':>9}")
    for more, priority in ASKED:
        view = waiting(picture, free + more, priority)
        guards = default_evictor.Guards(view, (Args(),))
        fit, (pod,) = FitSearch(view), view.unbound
        began = time.process_time()
        found = room.find(
            view,
            fit,
            pod,
            inside="",
            objection=lambda pods, guards=guards: guards.refusals(pods[0])[0].text if guards.refusals(pods[0]) else "",
            most_moves=3,
        )
        seconds = time.process_time() - began
        moves = len(found.best.moves) if found.best else "none"
        asked = f"{free + more} CPUs, priority {priority}"
        print(f"{asked:<24}{moves:>6}{'yes' if found.exact else 'no':>7}{found.steps:>11}{seconds:>9.2f}")


if __name__ == "__main__":
    main()
