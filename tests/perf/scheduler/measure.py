"""What the extender costs: filter and prioritize from body to body, and the bookkeeping of a binding.

Prints CPU time of the answering thread (a shared machine says little by its wall clock), wall time for comparison,
pods a second, and resident memory. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from koordlite.model.wire import objects
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.service import filter_answer, question, scores_answer, settle_memory

BUDGETS = {1000: "p99 10 ms, 100 pods/s", 5000: "p99 40 ms, 150 MiB"}
PER_NODE = 20
"""Pods that run on each node already."""


class Accepting:
    """An API server that takes every binding at once."""

    def bind(self, pod: ClusterPod, node: str, annotations: Mapping[str, str]) -> None:
        """Nothing to do."""

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        """Never asked."""
        raise KeyError(name)


def main() -> None:
    """Measure for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--shapes", type=int, default=20, help="different templates among the pods")
    parser.add_argument("--strategy", default="LeastAllocated")
    parser.add_argument("--policy", default="single-numa-node", help="of kubelet's topology manager")
    parser.add_argument("--numa-distance", action="store_true", help="with the policy numadistance open")
    parser.add_argument(
        "--warm", action="store_true", help="judge waiting pods before they are asked about, as a server does"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for nodes in args.nodes:
        _measure(nodes, args)


def _measure(nodes: int, args: argparse.Namespace) -> None:
    dice = random.Random(args.seed)
    cluster = _cluster(nodes, args, dice)
    extender = Extender(cluster, wall=time.time, binder=Accepting())
    settle_memory()
    shapes = [_shape(dice) for _ in range(args.shapes)]
    cluster.refresh()
    names = sorted(cluster.rows)
    cpu, wall, binds, firsts = [], [], [], []
    asked_about: set[int] = set()
    for number in range(args.pods):
        shape = dice.randrange(len(shapes))
        pod = _pod(f"pod-{number}", shapes[shape])
        dice.shuffle(names)
        if args.warm:
            cluster.put_pod(msgspec.convert(pod, objects.PodObject))
            extender.warm()
        asked = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        passed, first = _timed(lambda asked=asked: _filter(extender, asked))
        asked = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": passed}).encode()
        best, second = _timed(lambda asked=asked: _prioritize(extender, asked)) if len(passed) > 1 else ("", (0.0, 0.0))
        cpu.append(first[0] + second[0])
        wall.append(first[1] + second[1])
        if shape not in asked_about:
            asked_about.add(shape)
            firsts.append(wall[-1])
        if best or passed:
            binds.append(_timed(lambda pod=pod, node=best or passed[0]: _bind(extender, pod, node))[1][0])
    state = "warm" if args.warm else "cold"
    per_pod = sum(cpu) / len(cpu) + sum(binds) / max(1, len(binds))
    print(
        f"{nodes} nodes, {args.pods} pods of {args.shapes} templates, {args.strategy}: filter + prioritize "
        f"p50 {_at(cpu, 0.5):.1f} ms, p99 {_at(cpu, 0.99):.1f} ms, max {max(cpu) * 1e3:.1f} ms of CPU "
        f"(wall p50 {_at(wall, 0.5):.1f}, p99 {_at(wall, 0.99):.1f}; the first about a template, {state}, "
        f"p50 {_at(firsts, 0.5):.1f}, max {max(firsts) * 1e3:.1f}); bind {_at(binds, 0.5):.2f} ms; "
        f"{1 / per_pod:.0f} pods/s on one core; RSS {_rss():.0f} MiB. Budget: {BUDGETS.get(nodes, 'none')}",
        flush=True,
    )


def _timed(call: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    cpu, wall = time.thread_time(), time.perf_counter()
    found = call()
    return found, (time.thread_time() - cpu, time.perf_counter() - wall)


def _filter(extender: Extender, body: bytes) -> list[str]:
    arguments, names = question(body, "filter")
    passed, refused = extender.filter(arguments.pod, names)
    filter_answer(arguments, names, passed, refused)
    return passed


def _prioritize(extender: Extender, body: bytes) -> str:
    arguments, names = question(body, "prioritize")
    scores = extender.prioritize(arguments.pod, names)
    scores_answer(scores)
    return max(scores, key=lambda pair: pair[1])[0]


def _bind(extender: Extender, pod: Any, node: str) -> None:
    meta = pod["metadata"]
    extender.bind(meta["namespace"], meta["name"], meta["uid"], node)
    bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
    extender.cluster.put_pod(msgspec.convert(bound, objects.PodObject))


def _cluster(nodes: int, args: argparse.Namespace, dice: random.Random) -> Cluster:
    cluster = Cluster(JudgeSettings(strategy=args.strategy, numa_distance=args.numa_distance), monotonic=time.monotonic)
    labels = {f"example.com/label-{n}": "value" * 4 for n in range(15)}
    running = [_shape(dice) for _ in range(30)]
    for number in range(nodes):
        name = f"node-{number:05}"
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
        node = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}
        cluster.put_node(msgspec.convert(node, objects.NodeObject))
        cluster.put_report(msgspec.convert(_report(name, args.policy, dice), objects.NRTObject))
        for slot in range(PER_NODE):
            pod = _pod(f"{name}-{slot}", dice.choice(running))
            pod["spec"]["nodeName"] = name
            pod["status"].update(phase="Running", startTime="2026-01-01T00:00:00Z")
            cluster.put_pod(msgspec.convert(pod, objects.PodObject))
    cluster.synced()
    return cluster


def _report(name: str, policy: str, dice: random.Random) -> Any:
    attributes = {"topologyManagerPolicy": policy, "topologyManagerScope": "container"}
    return {
        "metadata": {"name": name, "resourceVersion": "1"},
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
        "zones": [_zone(number, dice) for number in range(2)],
    }


def _zone(number: int, dice: random.Random) -> Any:
    most = {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "4"}
    free = {
        "cpu": str(dice.randint(0, 32)),
        "memory": f"{dice.randint(4, 128)}Gi",
        "nvidia.com/gpu": str(dice.randint(0, 4)),
    }
    rows = [{"name": k, "capacity": v, "allocatable": v, "available": free[k]} for k, v in most.items()]
    costs = [{"name": f"node-{other}", "value": 10 if other == number else 21} for other in range(2)]
    return {"name": f"node-{number}", "type": "Node", "costs": costs, "resources": rows}


def _shape(dice: random.Random) -> list[Any]:
    containers = []
    for number in range(dice.choice([1, 1, 2])):
        amounts = {"cpu": str(dice.randint(1, 12)), "memory": f"{dice.choice([1, 2, 4, 8, 16])}Gi"}
        if dice.random() < 0.3:
            amounts["nvidia.com/gpu"] = "1"
        containers.append({"name": f"c{number}", "resources": {"requests": amounts, "limits": amounts}})
    return containers


def _pod(name: str, containers: list[Any]) -> Any:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulerName": "koordlite-scheduler", "containers": containers},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def _at(seconds: list[float], part: float) -> float:
    return sorted(seconds)[int(len(seconds) * part)] * 1e3


def _rss() -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
