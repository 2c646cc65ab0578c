"""The scheduler's side: questions of a scheduler, pages and REST, and what nodes and tenants write.

After every input the extender still answers about a good pod and a good node.
"""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import msgspec

from koordlite.cli.services import load_aware
from koordlite.fault_guard import SubjectFaults
from koordlite.kube.watch.reflector import Source
from koordlite.kube.watch.store import Feed
from koordlite.model import keys
from koordlite.model.errors import InputError
from koordlite.model.wire import metrics, objects
from koordlite.report.log_levels import LogLevels
from koordlite.report.night import Night
from koordlite.reservation import step
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.reservation.world import World
from koordlite.scheduler import watches
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.load import LoadAwareSchedulingArgs
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.loads import Loads
from koordlite.scheduler.numa_api import charts, nights_page
from koordlite.scheduler.numa_api.service import NumaService
from koordlite.scheduler.report import documents
from koordlite.scheduler.service import Service
from tests.fuzz.frame import Entry
from tests.scheduler.builders import Scene, as_object, bound, pod, report
from tests.scheduler.test_reservations import placeholder, reservation

ZONE = {"cpu": "8", "memory": "32Gi", "example.com/gpu": "2"}
TOPOLOGY = json.dumps({"detail": [{"id": n, "core": n // 2, "socket": 0, "node": n // 8} for n in range(16)]})
NOTES = {
    keys.CPU_TOPOLOGY: TOPOLOGY,
    keys.CPU_MANAGER_POLICY: '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}',
    keys.POD_CPU_ALLOCS: '[{"namespace":"ns","name":"p","uid":"u","cpuset":"2-3","managedByKubelet":true}]',
    keys.PLACEMENT: '{"observedAt":"2026-01-01T00:00:00Z","generation":1,"containers":[{"namespace":"ns","pod":"p",'
    '"uid":"uid-there","container":"c","source":"koordinator","exclusive":true,"cpuset":"2-3","promisedCPUs":"2-3"}]}',
    keys.RESERVATION: '{"reservedCPUs":"0-1"}',
    keys.SYSTEM_QOS: '{"cpuset":"15"}',
    keys.AMPLIFICATION_RATIO: '{"cpu":1.5}',
}
LOAD_NOTES = {
    keys.RAW_ALLOCATABLE: '{"cpu":"12","memory":"60Gi"}',
    keys.USAGE_THRESHOLDS: '{"usageThresholds":{"cpu":70},"prodUsageThresholds":{"cpu":55},"aggregatedUsage":'
    '{"usageThresholds":{"cpu":60},"usageAggregationType":"p95","usageAggregatedDuration":"5m"}}',
}
ASKS = {
    keys.RESOURCE_SPEC: '{"preferredCPUBindPolicy":"FullPCPUs"}',
    keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}',
    keys.RESERVATION_AFFINITY: '{"reservationSelector":{"app":"r"},"requiredDuringSchedulingIgnoredDuringExecution":'
    '{"reservationSelectorTerms":[{"matchExpressions":[{"key":"\\u0061","operator":"Gt","values":["1"]}]}]}}',
    "topology.crane.io/cpu-policy": "numa",
    "topology.crane.io/topology-awareness": "true",
    "volcano.sh/numa-topology-policy": "restricted",
}
STATUS = '{"cpuset":"4-5","numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}'
PATHS = ("/numa", "/numa/nodes/bad", "/rest/scheduling/v1/numa/nodes", "/rest/scheduling/v1/numa/violations")
_PODS = itertools.count()
_TEMPORARY = tempfile.TemporaryDirectory(prefix="koordlite-fuzz-")
_FOLDER = pathlib.Path(_TEMPORARY.name)


class Side:
    """An extender with one node that hostile inputs are about, and one that they are not; and what is served of it."""

    def __init__(self) -> None:
        self.scene = Scene(JudgeSettings(strategy="LeastNUMANodes", numa_distance=True))
        cluster = self.scene.cluster
        args = LoadAwareSchedulingArgs(allow_customize_estimation=True, dominant_resource_weight=1)
        loads = self.scene.extender.loads = Loads(args, wall=lambda: self.scene.clock.wall, faults=cluster.faults)
        for name in ("good", "bad"):
            self.scene.node(name, ZONE, ZONE, annotations=NOTES, distances=[[10, 21], [21, 10]])
        self.scene.put(bound(asking("there", annotations={keys.RESOURCE_STATUS: STATUS}), "bad"))
        self.service = Service(self.scene.extender, LogLevels(now=time.monotonic))
        self.numa = NumaService(cluster, wall=time.time, not_ready=lambda: "", may_switch=True)
        self.reports = feed(watches.REPORTS, cluster.put_report, cluster.remove_report)
        self.crane = feed(watches.CRANE, cluster.put_crane, cluster.remove_crane)
        self.pods = feed(watches.PODS, watches.both(cluster.put_pod, loads.put_pod), cluster.remove_pod)
        self.nodes = feed(watches.NODES, watches.both(cluster.put_node, loads.put_node), cluster.remove_node)
        self.metrics = feed(watches.METRICS, loads.put_metric, loads.remove_metric)
        self.reservations = feed(watches.RESERVATIONS, cluster.put_reservation, cluster.remove_reservation)

    def judged(self) -> str:
        """Everything that is asked of the cluster, after an input came."""
        cluster = self.scene.cluster
        self.scene.clock.pass_(100.0)
        for made in (pod("plain"), asking("asks"), lsr("bound")):
            made["metadata"]["uid"] += str(next(_PODS))
            passed, refused = self.scene.filter(made, "good", "bad")
            # A Reservation whose owners are all pods takes this one, too, which then goes to the node reserved for it.
            served = "good" in passed or refused["good"] == judge.ELSEWHERE
            assert served or made["metadata"]["name"] != "plain", refused
            self.scene.schedule(made, "good", "bad")
            documents.of_pod(self.scene.extender, f"ns/{made['metadata']['name']}")
            self.scene.put({**made, "status": {"phase": "Succeeded"}})
            cluster.remove_pod(f"ns/{made['metadata']['name']}")
        path = PATHS[next(_PODS) % len(PATHS)]
        assert self.numa.answer(path, {}, "").status == 200
        assert loads_within_bounds(self.scene.extender.loads)
        documents.of_node(cluster, "bad")
        documents.of_all(self.scene.extender, [])
        row = cluster.row("bad")
        return row.unusable[:40] if row else "no row"


def loads_within_bounds(loads: Loads | None) -> bool:
    """Whatever was said of the node, it gets no more points than an idle one."""
    assert loads is not None
    judged = loads.judge(as_object(pod("plain")))
    return bool(judged.terms("bad")) and all(0 <= judged.scored(name, 0) <= 100 for name in ("good", "bad"))


def lsr(name: str) -> Any:
    made = pod(name, "2", annotations={keys.RESOURCE_SPEC: ASKS[keys.RESOURCE_SPEC]})
    made["metadata"]["labels"] = {keys.QOS_CLASS: "LSR", "app": "r"}
    return made


def asking(name: str, **given: Any) -> Any:
    made = pod(name, "2", annotations={**ASKS, **given.get("annotations", {})}, requests={"example.com/gpu": "1"})
    made["metadata"]["labels"] = {keys.QOS_CLASS: "LSR", "app": "r"}
    return made


def feed(source: Source[Any], put: Callable[[Any], None], gone: Callable[[str], None]) -> Feed[Any]:
    return Feed(source.kind, source.shape, put=put, removed=gone)


@functools.cache
def _side(_number: int) -> Side:
    return Side()


def side() -> Side:
    """One that has not taken too many inputs yet."""
    number = next(_PODS) // 3000
    if _side.cache_info().currsize > 1:
        _side.cache_clear()
    return _side(number)


def _again(_faults: SubjectFaults, _subject: str, error: Exception) -> str:
    raise error


def bare(run: Callable[[bytes], str]) -> Callable[[bytes], str]:
    """Without the guards that let a fault of ours cost one subject: here each is to be found."""

    def unguarded(data: bytes) -> str:
        with mock.patch.object(SubjectFaults, "note", _again):
            return run(data)

    return unguarded


def _named(data: bytes, name: str) -> bytes:
    """The object under its own name, as an admission policy holds a node to it."""
    try:
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError, MemoryError):  # What the product makes of it is looked at, not this.
        return data
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict):
        found["metadata"] |= {"name": name, "resourceVersion": ""}
        return msgspec.json.encode(found)
    return data


def _object(kind: str) -> Callable[[bytes], str]:
    def run(data: bytes) -> str:
        here = side()
        store: Feed[Any] = getattr(here, kind)
        store.put(_named(data, "r" if kind == "reservations" else "bad"))
        return f"{here.judged()} {[problem.why[:30] for problem in store.problems]}"

    return run


def _question(verb: str) -> Callable[[bytes], str]:
    def run(data: bytes) -> str:
        here = side()
        here.scene.clock.pass_(100.0)
        answer = here.service.post(f"/{verb}", data)
        msgspec.json.decode(answer.body, type=msgspec.Raw) if answer.status == 200 else answer.body.decode()
        return str(answer.status)

    return run


def _page(data: bytes) -> str:
    """`METHOD TARGET ACCEPT` and, below, a body."""
    head, _, body = data.partition(b"\n")
    method, target, accept = (*head.decode("utf-8", "replace").split(" "), "", "", "")[:3]
    here = side()
    try:
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        return "no address"
    if method == "PUT":
        return f"{here.service.put(url.path, body).status} {here.numa.put(url.path, body).status}"
    answers = [served.answer(url.path, query, accept) for served in (here.service, here.numa)]
    assert all(answer.body is not None for answer in answers)
    return " ".join(str(answer.status) for answer in answers)


def _controller(data: bytes) -> str:
    """The reservation controller plans for a good Reservation, whatever the other one says."""
    world = World()
    known = feed(watches.RESERVATIONS, world.put_reservation, world.remove_reservation)  # type: ignore[arg-type]
    nodes = feed(watches.NODES, world.put_node, world.remove_node)  # type: ignore[arg-type]
    pods = feed(watches.PODS, world.put_pod, world.remove_pod)  # type: ignore[arg-type]
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}}
    nodes.put(json.dumps(node).encode())
    known.put(_named(data, "bad"))
    fine = reservation("fine", status={"phase": "Pending", "nodeName": ""})
    known.put(json.dumps(fine).encode())
    for made in (placeholder("bad"), asking("owner")):
        pods.put(json.dumps(made).encode())
    settings = PlaceholderSettings(image="pause@sha256:0", priority_class="", scheduler="default-scheduler")
    steps = list(itertools.islice(step.plan(world, settings, 1.8e9), 50))
    assert any(each.name == "fine" for each in steps), "the other Reservation is left alone"
    return " ".join(sorted({type(action).__name__ for each in steps for action in each.actions}))


def _load_args(data: bytes) -> str:
    """The file of `--load-aware`, and what the extender makes of a measurement by it."""
    (_FOLDER / "load.yaml").write_bytes(data)
    args = load_aware(str(_FOLDER / "load.yaml"))
    loads = Loads(args, wall=lambda: 1.8e9, faults=SubjectFaults("load"))
    loads.put_node(msgspec.convert(NODE, objects.NodeObject))
    loads.put_metric(msgspec.convert(METRIC, metrics.NodeMetricObject))
    loads.put_pod(as_object(PLACED))
    judged = loads.judge(as_object(pod("plain")))
    assert 0 <= judged.scored("bad", 0) <= 100
    return f"{judged.refusal('bad')} {sorted(judged.terms('bad'))}"


def _bodies(documents: Iterable[Any]) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


QUESTIONS = {
    "filter": [{"Pod": made, "NodeNames": ["good", "bad"]} for made in (pod("p"), asking("q"), lsr("l"))]
    + [{"Pod": pod("p"), "Nodes": {"items": [{"metadata": {"name": "bad"}}]}}],
    "prioritize": [{"Pod": asking("q"), "NodeNames": ["good", "bad"]}],
    "preempt": [
        {"Pod": pod("p"), "NodeNameToMetaVictims": {"bad": {"Pods": [{"UID": "uid-there"}], "NumPDBViolations": 1}}},
        {"Pod": asking("p"), "NodeNameToVictims": {"bad": {"Pods": [bound(pod("there"), "bad")]}}},
    ],
    "bind": [{"PodName": "there", "PodNamespace": "ns", "PodUID": "uid-there", "Node": "bad"}],
}
PAGES = [
    b"GET /explain/ns/plain?all text/html",
    b"GET /state/bad application/json",
    b"GET /numa?find=bad&page=1&sort=cpu text/html",
    b"GET /rest/scheduling/v1/numa/pods/ns/there ",
    b"GET /rest/scheduling/v1/query_range?query=up&start=1&end=2&step=1 ",
    b'PUT /loglevel \n{"level":"debug","flow":"filter","for":"1m"}',
    b'PUT /rest/scheduling/v1/numadistance \n{"status":"open"}',
]
CRANE = {
    "metadata": {"name": "bad"},
    "craneManagerPolicy": {"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"},
    "reserved": {"cpu": "1"},
    "zones": [
        {
            "name": f"node{number}",
            "type": "Node",
            "costs": [{"name": "node0", "value": 10}],
            "resources": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}, "reservedCPUNums": 1},
        }
        for number in (0, 1)
    ],
}
NODE = {
    "metadata": {
        "name": "bad",
        "labels": {keys.NUMA_TOPOLOGY_POLICY: "Restricted", keys.CPU_BIND_POLICY: "FullPCPUsOnly"},
        "annotations": {
            keys.AMPLIFICATION_RATIO: '{"cpu":1.5}',
            keys.RESERVATION: '{"reservedCPUs":"0-1"}',
            **LOAD_NOTES,
        },
    },
    "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
}
CRANE_RESULT = '[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":2}}}]'
REPORTS = [
    report("bad", ZONE, ZONE, policy=policy, scope=scope, annotations=NOTES, signed=[], distances=[[10, 21], [21, 10]])
    for policy, scope in (("restricted", "container"), ("single-numa-node", "pod"), ("best-effort", "container"))
]
RESERVED = [
    reservation("r", "bad", annotations={keys.RESOURCE_STATUS: STATUS}, labels={keys.RESERVATION_ORDER: "3"}),
    reservation(
        "r", "bad", spec={"allocateOnce": False, "expires": "2027-01-01T00:00:00Z", "allocatePolicy": "Aligned"}
    ),
    reservation("r", "bad", status={"phase": "Pending", "conditions": [{"type": "Scheduled", "status": "False"}]}),
]
RANGE = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [{"metric": {"numa_node": "0"}, "values": [[1.5, "0.3"], [2, "NaN"]]}]},
}
HISTORY = {"times": [1.0, 2.0], "zones": {"0": {"cpuCores": [0.5, None], "memoryUsedBytes": [1e9, 2e9]}}}
USE = {"resources": {"cpu": "3", "memory": "8Gi"}}
METRIC = {
    "metadata": {"name": "bad"},
    "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
    "status": {
        "updateTime": "2027-01-15T07:59:00Z",
        "nodeMetric": {
            "nodeUsage": USE,
            "systemUsage": USE,
            "aggregatedNodeUsages": [{"usage": {"p95": USE, "avg": USE}, "duration": "5m0s"}],
        },
        "podsMetric": [{"namespace": "ns", "name": "there", "podUsage": USE, "priority": "koord-prod"}],
    },
}
LOAD_ARGS = [
    b"kind: LoadAwareSchedulingArgs\nusageThresholds: {cpu: 70}\nprodUsageThresholds: {cpu: 55}\n"
    b"nodeMetricExpirationSeconds: 90\nresourceWeights: {cpu: 2}\ndominantResourceWeight: 1\n",
    b"aggregated: {usageThresholds: {cpu: 60}, usageAggregationType: p95, usageAggregatedDuration: 5m}\n"
    b"estimatedScalingFactors: {cpu: 80}\nallowCustomizeEstimation: true\nsupportedResources: [example.com/gpu]\n",
]
PLACED = bound(
    asking(
        "bad",
        annotations={
            keys.RESOURCE_STATUS: STATUS,
            "topology.crane.io/topology-result": CRANE_RESULT,
            keys.LOAD_FACTORS: '{"cpu":85,"memory":70}',
            keys.LOAD_SECONDS_SCHEDULED: "60",
        },
    ),
    "bad",
)

ENTRIES = (
    *(
        Entry(name=f"extender-{verb}", seeds=_bodies(seeds), run=bare(_question(verb)))
        for verb, seeds in QUESTIONS.items()
    ),
    Entry(name="scheduler-http", seeds=PAGES, run=bare(_page)),
    Entry(name="scheduler-reports", seeds=_bodies(REPORTS), run=bare(_object("reports"))),
    Entry(name="scheduler-crane", seeds=_bodies([CRANE]), run=bare(_object("crane"))),
    Entry(name="scheduler-nodes", seeds=_bodies([NODE]), run=bare(_object("nodes"))),
    Entry(name="scheduler-pods", seeds=_bodies([PLACED, lsr("bad")]), run=bare(_object("pods"))),
    Entry(name="scheduler-metrics", seeds=_bodies([METRIC]), run=bare(_object("metrics"))),
    Entry(name="load-aware-args", seeds=LOAD_ARGS, run=bare(_load_args), refusals=(InputError,)),
    Entry(name="scheduler-reservations", seeds=_bodies(RESERVED), run=bare(_object("reservations"))),
    Entry(name="reservation-controller", seeds=_bodies(RESERVED), run=bare(_controller)),
    Entry(
        name="numa-prometheus",
        seeds=_bodies([RANGE]),
        run=lambda data: str(len(charts.matrix(data).times)),
        refusals=(ValueError,),
    ),
    Entry(
        name="numa-history",
        seeds=_bodies([HISTORY]),
        run=lambda data: str(charts.read(data).why),
        refusals=(ValueError, InputError),
    ),
    Entry(
        name="numa-night",
        seeds=_bodies([msgspec.to_builtins(Night("paused", 1e9, 1e9 + 60, 60.0, 9.0, 2000, 1e9, 0.5, 0.1))]),
        run=lambda data: nights_page.read(data).status,
        refusals=(ValueError,),
    ),
)
