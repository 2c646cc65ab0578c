"""Walks of the cluster side, as of `walks`: a question to the extender, and a pod on reserved CPUs to its eviction.

`PYTHONPATH=.:tests/perf:tests/support:tests/perf/agent:tests/perf/scheduler python tests/perf/cluster_walks.py`. "All
calls" counts every call that is made for the question; the others are the calls under way at their points.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import types
from typing import Any

import measure
from walks import Walk

from descheduler.cycle import planner
from descheduler.evictors import eviction_api
from descheduler.policy import reader
from descheduler.snapshot import assemble, files
from koordlite.kube.client.answers import Answer
from koordlite.report.log_levels import LogLevels
from koordlite.scheduler.extender import Extender
from koordlite.scheduler.service import Service
from tests.descheduler import conftest

_FILTER = {
    "read",
    "Shapes.of",
    "NodeState.row",
    "Board.judge",
    "refusal",
    "admit",
    "AssumedPods.put",
    "Attempts.put",
    "filter_answer",
}
_EVICTION = {
    "keep",
    "reserved_cpus",
    "_judge_pod",
    "Guards.refusals",
    "FitSearch.search",
    "Budget.refusal",
    "eviction",
    "EvictionClient.send",
}


def filter_walks() -> tuple[Walk, Walk]:
    """One question about one node: all calls, and those at the points where something is worked out or kept."""
    dice = random.Random(1)
    asked = argparse.Namespace(strategy="LeastAllocated", policy="single-numa-node", numa_distance=False)
    shape, found = measure._shape(dice), []
    for every in (True, False):
        cluster = measure._cluster(1, asked, dice)
        service = Service(Extender(cluster, wall=time.time, binder=measure.Accepting()), LogLevels(now=time.monotonic))
        pod = measure._pod("pod-1", shape)
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": ["node-00000"]}).encode()
        walk = Walk(lambda frame, every=every: every or frame.f_code.co_qualname in _FILTER)
        with walk.followed():
            service.post("/filter", body)
        found.append(walk)
    return found[0], found[1]


class Accepting:
    """An API server that takes every eviction."""

    def request(self, *request: Any, **how: Any) -> Any:
        """Yes."""
        return Answer(201, {}, b'{"groupVersion": "v1", "resources": []}')


def reserved_cpus_to_eviction() -> Walk:
    """From the objects of the cluster to the request for the eviction."""
    cluster = conftest.Cluster()
    for name in ("a", "b"):
        cluster.node(name, reservation={"reservedCPUs": "0-1"})
        cluster.report(name)
    cluster.pinned("p", "a", "0-3")
    texts = [json.dumps(each).encode() for each in cluster.objects]
    setup = reader.setup(reader.default())

    def is_point(frame: types.FrameType) -> bool:
        return frame.f_code.co_qualname in _EVICTION

    walk = Walk(is_point)
    with walk.followed():
        objects = files.Objects()
        for text in texts:
            files.take(objects, text, "cluster.json")
        plan = planner.plan(assemble.view(objects, conftest.NOW), setup)
        assert [outcome.pod.pod.name for outcome in plan.evict] == ["p"]
        for outcome in plan.evict:
            client = eviction_api.EvictionClient(Accepting())
            eviction_api.evict_one(
                outcome,
                client=client,
                wait=lambda seconds: False,
                grace_period_seconds=None,
                stopped=lambda: False,
            )
    return walk


def main() -> None:
    """Print each walk with its files in their order."""
    whole, spine = filter_walks()
    for name, walk in {
        "extender filter, all calls": whole,
        "extender filter": spine,
        "pod on reserved CPUs to its eviction": reserved_cpus_to_eviction(),
    }.items():
        print(f"{name}: {len(walk.files)} files, {len(walk.returns)} returns")
        for file in walk.files:
            print(f"  {file}: {', '.join(dict.fromkeys(step for at, step in walk.steps if at == file))}")
        for file, step in walk.returns:
            print(f"  back into {file} by {step}")


if __name__ == "__main__":
    main()
