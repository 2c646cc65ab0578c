"""Time to find what has to move so that a pod fits, asked of an extender, and of the scheduler's questions meanwhile.

    python tests/perf/scheduler/make_room.py [--nodes 5000]

Each node has two NUMA nodes of 32 CPUs, of which its pods have all but a few. Each row is one waiting pod: its CPUs,
the moves, whether that is exact, seconds of processor time and by the clock; and milliseconds of the filter by the
clock, in another thread while room was looked for, and alone.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from typing import Any

import measure
import msgspec

from koordlite.model import keys
from koordlite.model.wire import objects
from koordlite.scheduler import making_room
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.service import Courtesy, settle_memory

ASKED = (8, 10, 12, 16, 20, 32, 40)
"""CPUs of the waiting pods."""
MOST_FREE = 7


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    args = parser.parse_args()
    dice = random.Random(1)
    cluster = scattered(args.nodes, dice)
    extender = Extender(cluster, wall=time.time, binder=measure.Accepting())
    names = sorted(name for name in cluster.nodes)
    cluster.refresh()
    settle_memory()
    print(f"{args.nodes} nodes, {len(cluster.pods)} pods")
    print("CPUs   moves  exact  CPU s  clock s  filter p50    p99    max  alone p50    p99")
    for number, cpus in enumerate(ASKED):
        requests = {"memory": "2Gi", "cpu": str(cpus)}
        waiting = measure._pod(f"w{number}", [{"name": "c", "resources": {"requests": requests, "limits": requests}}])
        waiting["spec"]["priority"] = 10
        cluster.put_pod(msgspec.convert(waiting, objects.PodObject))
        measure._filter(extender, question("probe", names))
        alone = [timed(extender, names) for _ in range(50)]
        stop, meanwhile = threading.Event(), list[float]()
        asking = threading.Thread(target=ask, args=(extender, names, stop, meanwhile))
        asking.start()
        began, cpu = time.perf_counter(), time.thread_time()
        found: Any = making_room.document(extender, f"default/w{number}", Courtesy())
        cpu, clock = time.thread_time() - cpu, time.perf_counter() - began
        stop.set()
        asking.join()
        made = found.get("makeRoom", {"nodes": [], "exact": True})
        moves = len(made["nodes"][0]["moves"]) if made["nodes"] else "fits" if found["fits"] else "none"
        figures = f"{at(meanwhile, 0.5):>12.1f}{at(meanwhile, 0.99):>7.1f}{max(meanwhile) * 1e3:>7.1f}"
        exact = "yes" if made["exact"] else "no"
        figures += f"{at(alone, 0.5):>11.1f}{at(alone, 0.99):>7.1f}"
        print(f"{cpus:<6}{moves:>6}{exact:>7}{cpu:>7.2f}{clock:>9.2f}{figures}")


def scattered(nodes: int, dice: random.Random) -> Cluster:
    """Nodes full of pods of 1 to 6 CPUs, each with a controller, whose reports say where they are."""
    cluster = Cluster(JudgeSettings(), monotonic=time.monotonic)
    owner = [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]
    for number in range(nodes):
        name, zones, rows = f"node-{number:05}", [], []
        for zone in (0, 1):
            left = 32
            while left > MOST_FREE or (left and dice.random() < 0.3):
                cpus = dice.randint(1, min(6, left))
                left -= cpus
                requests = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
                pod = measure._pod(
                    f"{name}-{len(rows)}", [{"name": "c", "resources": {"requests": requests, "limits": requests}}]
                )
                pod["spec"]["nodeName"], pod["metadata"]["ownerReferences"] = name, owner
                pod["spec"]["priority"] = dice.randint(0, 9)
                pod["status"].update(phase="Running", startTime="2026-01-01T00:00:00Z")
                cluster.put_pod(msgspec.convert(pod, objects.PodObject))
                place = {"namespace": "default", "pod": f"{name}-{len(rows)}", "uid": "", "container": "c"}
                rows.append({**place, "source": "kubelet", "exclusive": True, "promisedNodes": [zone]})
            amounts = (("cpu", "32", str(left)), ("memory", "128Gi", "64Gi"))
            listed = [{"name": k, "capacity": v, "allocatable": v, "available": free} for k, v, free in amounts]
            zones.append({"name": f"node-{zone}", "type": "Node", "resources": listed})
        told = json.dumps({"observedAt": "2026-01-01T00:00:00Z", "generation": 1, "containers": rows})
        attributes = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container"}
        report = {
            "metadata": {"name": name, "resourceVersion": "1", "annotations": {keys.PLACEMENT: told}},
            "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
            "zones": zones,
        }
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        node = {"metadata": {"name": name}, "status": {"allocatable": allocatable}}
        cluster.put_node(msgspec.convert(node, objects.NodeObject))
        cluster.put_report(msgspec.convert(report, objects.NRTObject))
    cluster.synced()
    return cluster


def question(name: str, names: list[str]) -> bytes:
    amounts = {"cpu": "2", "memory": "1Gi"}
    made = measure._pod(name, [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}])
    return json.dumps({"Pod": made, "Nodes": None, "NodeNames": names}).encode()


def timed(extender: Extender, names: list[str]) -> float:
    body = question("probe", names)
    began = time.perf_counter()
    measure._filter(extender, body)
    return time.perf_counter() - began


def ask(extender: Extender, names: list[str], stop: threading.Event, seconds: list[float]) -> None:
    while not stop.is_set() or not seconds:
        seconds.append(timed(extender, names))
        stop.wait(0.005)


def at(seconds: list[float], part: float) -> float:
    return sorted(seconds)[int(len(seconds) * part)] * 1e3


if __name__ == "__main__":
    main()
