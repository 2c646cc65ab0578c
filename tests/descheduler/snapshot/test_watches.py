"""Cycle after cycle by watches: every picture and plan is that of a process which has just listed everything."""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import slices

from descheduler.cycle import planner
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.report import document
from descheduler.snapshot import assemble, cluster
from descheduler.snapshot.cluster import Watches
from descheduler.snapshot.files import Objects
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.client.backoff import Outage
from koordlite.kube.client.paging import Page
from koordlite.model import keys, nrt, times
from koordlite.model.cpuset import CPUSet

START = times.parse("2026-01-01T12:00:00Z")
SECONDS = 30.0
Object = dict[str, Any]
_CUT, _END = b"cut", b"end"


class Stream:
    """One watch as the server has it: lines until it is cut, refused or cancelled."""

    def __init__(self, path: str, lines: list[bytes]) -> None:
        self.path, self._lines, self.closed = path, queue.Queue[bytes](), threading.Event()
        for line in lines:
            self.send(line)

    def send(self, line: bytes) -> None:
        self._lines.put(line)

    def cancel(self) -> None:
        self.send(_END)

    def __iter__(self) -> Iterator[bytes]:
        while (line := self._lines.get()) != _END:
            if line == _CUT:
                raise ApiUnreachable(104, "cut", self.path)
            yield line
            self._lines.task_done()  # Asked for the next one, it has done with this one.

    def settle(self) -> None:
        """Wait until everything that was sent is worked on, or the watch has ended."""
        while not self.closed.is_set() and self._lines.unfinished_tasks:
            self.closed.wait(0.001)


class Server:
    """Objects that are listed and watched. What one watch is sent, one that begins at an older version is too."""

    url = "https://cluster"

    def __init__(self) -> None:
        self.outage = Outage()
        self.version = 10
        self.stored: dict[str, dict[tuple[str, str], Object]] = {path: {} for path in cluster.PATHS.values()}
        self._log: list[tuple[int, str, bytes]] = []
        self._streams: list[Stream] = []
        self._changed = threading.Condition()
        self.lists: list[str] = []
        self.refused: set[str] = set()
        """Paths that may not be watched."""
        self.unserved: set[str] = set()
        """Paths of kinds that the server does not have."""

    def put(self, kind: str, obj: Object) -> None:
        path, meta = cluster.PATHS[kind], obj["metadata"]
        place = meta.get("namespace", ""), meta["name"]
        held = self.stored[path].get(place)
        self.version += 1
        uid = meta.get("uid") or (held["metadata"]["uid"] if held else f"uid-{self.version}")
        made = {**obj, "metadata": {**meta, "uid": uid, "resourceVersion": str(self.version)}}
        self.stored[path][place] = made
        self._tell(path, "MODIFIED" if held else "ADDED", made)

    def remove(self, kind: str, place: tuple[str, str]) -> None:
        path = cluster.PATHS[kind]
        gone = self.stored[path].pop(place)
        self.version += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._tell(path, "DELETED", gone)

    def _tell(self, path: str, event: str, obj: Object) -> None:
        line = json.dumps({"type": event, "object": obj}).encode()
        with self._changed:
            self._log.append((self.version, path, line))
            for stream in self.open(path):
                stream.send(line)

    def open(self, path: str = "") -> list[Stream]:
        return [s for s in self._streams if not s.closed.is_set() and path in ("", s.path)]

    def listed(self, path: str) -> Iterator[Page]:
        self.lists.append(path)
        if path in self.unserved:
            raise ApiError(404, "NotFound", "no such resource")
        items = [msgspec.Raw(json.dumps(obj).encode()) for _, obj in sorted(self.stored[path].items())]
        half = len(items) // 2
        yield Page(str(self.version), items[:half])
        yield Page(str(self.version), items[half:])

    @contextlib.contextmanager
    def stream(self, path: str, *, query: tuple[tuple[str, str], ...], timeout: object) -> Iterator[Stream]:
        if path in self.refused:
            raise ApiError(403, "Forbidden", "may not watch")
        since = int(dict(query)["resourceVersion"])
        with self._changed:
            stream = Stream(path, [line for version, of, line in self._log if of == path and version > since])
            self._streams.append(stream)
            self._changed.notify_all()
        try:
            yield stream
        finally:
            stream.closed.set()

    def settle(self, kinds: tuple[str, ...]) -> None:
        """Wait until the watches of these kinds have begun and know everything."""
        with self._changed:
            opened = self._changed.wait_for(lambda: all(self.open(cluster.PATHS[kind]) for kind in kinds), SECONDS)
        assert opened
        for stream in self.open():
            stream.settle()

    def end(self, kind: str, line: bytes) -> None:
        """End the watch of a kind by one last line."""
        for stream in self.open(cluster.PATHS[kind]):
            stream.send(line)
            assert stream.closed.wait(SECONDS)


GONE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}).encode()
BROKEN = {"metadata": {"namespace": "shop", "name": "broken"}, "spec": {"containers": 7}}
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: all
    pluginConfig:
      - {name: DefaultEvictor, args: {nodeFit: true, minReplicas: 2, minPodAge: 10m}}
      - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 7200}}
      - {name: RemoveFailedPods, args: {minPodLifetimeSeconds: 600}}
      - {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 5}}
      - name: RemovePodsViolatingNodeAffinity
        args: {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}
      - name: LowNodeUtilization
        args: {thresholds: {cpu: 20, memory: 20, pods: 20}, targetThresholds: {cpu: 60, memory: 60, pods: 60}}
    plugins:
      deschedule:
        enabled:
          - PodLifeTime
          - RemoveFailedPods
          - RemovePodsHavingTooManyRestarts
          - RemovePodsViolatingNodeAffinity
          - RemovePodsViolatingNodeTaints
          - RemovePodsViolatingInterPodAntiAffinity
          - NUMAAlignment
          - ReservedCPUs
      balance:
        enabled: [RemoveDuplicates, RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization]
  - name: pack
    pluginConfig:
      - {name: HighNodeUtilization, args: {thresholds: {cpu: 15, memory: 15, pods: 15}}}
    plugins:
      balance: {enabled: [HighNodeUtilization]}
"""
RELOADED = POLICY.replace("minPodAge: 10m", "podProtections: {extraEnabled: [PodsWithoutPDB]}").replace(
    "nodeFit: true", "nodeFit: true, nodeSelector: zone=a"
)
"""The same policy after someone changed it."""
NODES = [f"n{number}" for number in range(8)]
PODS = [f"p{number}" for number in range(60)]


class Weather:
    """Random changes of a cluster."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.chance, self.now = server, random.Random(seed), START
        for name in NODES:
            self.node(name)
            self.report(name)
        for name in PODS[:40]:
            self.pod(name)
        for name in ("shop", "web"):
            self.server.put("Namespace", {"metadata": {"name": name, "labels": {"team": name}}})
            self.budget(name)

    def change(self) -> None:
        """One change of some object."""
        name = self.chance.choice(PODS)
        if self.chance.random() < 0.3 and ("shop", name) in self.server.stored[cluster.PATHS["Pod"]]:
            self.server.remove("Pod", ("shop", name))
        elif self.chance.random() < 0.8:
            self.pod(name)
        else:
            some = (self.node, self.report, self.heartbeat, self.budget, self.value, self.leave)
            self.chance.choice(some)(self.chance.choice(NODES))

    def pod(self, name: str) -> None:
        """A pod of one of a few templates, in any state."""
        pick, odds = self.chance.choice, self.chance.random
        made = times.show(self.now - pick([60, 900, 5400, 7100, 7300, 90000]))
        owner = pick(["one", "two", "three"])
        labels = {"app": owner} | ({"own": name} if odds() < 0.3 else {})
        notes = {"turn": str(odds())} if odds() < 0.3 else {}
        if odds() < 0.2:
            labels[keys.QOS_CLASS] = "LSR"
            notes[keys.RESOURCE_STATUS] = json.dumps({"cpuset": pick(["0-1", "7-8", "12-13"])})
        alike = {"matchLabels": {"app": owner}}
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": alike}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": alike}
        wanted = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        affinities = {"two": {"podAntiAffinity": {required: [term]}}, "three": {"nodeAffinity": {required: wanted}}}
        amounts = {"cpu": pick(["500m", "2", "6"]), "memory": "1Gi"}
        self.server.put(
            "Pod",
            {
                "metadata": {
                    "namespace": "shop",
                    "name": name,
                    "uid": f"{name}-{self.chance.randrange(3)}",
                    "labels": labels,
                    "annotations": notes,
                    "creationTimestamp": made,
                    "ownerReferences": [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}],
                },
                "spec": {
                    "nodeName": pick([*NODES, ""]),
                    "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
                    "affinity": affinities.get(owner),
                    "topologySpreadConstraints": [spread] if owner == "one" else None,
                    **({"priorityClassName": "high"} if odds() < 0.2 else {}),
                },
                "status": {
                    "phase": pick(["Running"] * 6 + ["Failed", "Pending"]),
                    "startTime": made,
                    "containerStatuses": [{"name": "main", "restartCount": pick([0, 0, 9]), "state": {"running": {}}}],
                },
            },
        )

    def node(self, name: str) -> None:
        """A node that is like others, or has a taint, a reserve or another zone."""
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        taint = {"key": "t", "value": "v", "effect": "NoSchedule"}
        odds = self.chance.random
        notes = {keys.RESERVATION: json.dumps({"resources": {"cpu": "2"}})} if odds() < 0.3 else {}
        labels = {"kubernetes.io/hostname": name, "zone": self.chance.choice("ab")}
        self.server.put(
            "Node",
            {
                "metadata": {"name": name, "labels": labels, "annotations": notes},
                "spec": {"taints": [taint] if odds() < 0.2 else None, "unschedulable": odds() < 0.1},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [self.condition("True" if odds() < 0.9 else "False")],
                },
            },
        )

    def condition(self, status: str) -> Object:
        """The heartbeat of kubelet."""
        return {"type": "Ready", "status": status, "lastHeartbeatTime": times.show(self.now)}

    def leave(self, name: str) -> None:
        """A node is gone, and its pods are still there for a while."""
        if ("", name) in self.server.stored[cluster.PATHS["Node"]]:
            self.server.remove("Node", ("", name))

    def carry_out(self, plan: EvictionPlan) -> None:
        """Evicted pods are gone, and others have come for most of them."""
        for outcome in plan.evict:
            place = (outcome.pod.pod.namespace, outcome.pod.pod.name)
            held = self.server.stored[cluster.PATHS["Pod"]][place]
            self.server.remove("Pod", place)
            if self.chance.random() < 0.8:
                meta = {**held["metadata"], "uid": f"{place[1]}-after-{self.now}"}
                spec = {**held["spec"], "nodeName": outcome.target or ""}
                self.server.put("Pod", {**held, "metadata": meta, "spec": spec})

    def restart(self) -> None:
        """A container of a pod was restarted: most often no finding depends on that."""
        pods = self.server.stored[cluster.PATHS["Pod"]]
        if ("shop", name := self.chance.choice(PODS)) in pods:
            pod = pods["shop", name]
            (state,) = pod["status"]["containerStatuses"]
            status = {**pod["status"], "containerStatuses": [{**state, "restartCount": state["restartCount"] + 1}]}
            self.server.put("Pod", {**pod, "status": status})

    def heartbeat(self, name: str) -> None:
        """Nothing but a heartbeat."""
        held = self.server.stored[cluster.PATHS["Node"]].get(("", name))
        if held is None:
            return
        ready = self.condition(held["status"]["conditions"][0]["status"])
        self.server.put("Node", {**held, "status": {**held["status"], "conditions": [ready]}})

    def report(self, name: str) -> None:
        """A topology, of some of the nodes only."""
        rows = [{"id": i, "core": i, "socket": i // 8, "node": i // 8} for i in range(16)]
        notes = {keys.CPU_TOPOLOGY: json.dumps({"detail": rows})} if self.chance.random() < 0.8 else {}
        if self.chance.random() < 0.8:
            cpus = CPUSet.parse(self.chance.choice(["0-1", "7-8"]))
            single = self.chance.random() < 0.5
            placed = [
                nrt.ContainerPlacement(
                    namespace="shop",
                    pod=pod.rpartition("-")[0],
                    uid=pod,
                    container="main",
                    source="kubelet",
                    exclusive=True,
                    single_numa=single,
                    promised_cpus=cpus,
                    cpuset=cpus,
                )
                for pod in self.chance.sample([f"{pod}-{number}" for pod in PODS for number in range(3)], 20)
            ]
            seen_at = times.show(self.now - self.chance.choice([0, 30, 100]))
            placement = nrt.Placement(observed_at=seen_at, generation=1, containers=tuple(placed))
            notes[keys.PLACEMENT] = nrt.encode(placement)
        self.server.put("NodeResourceTopology", {"metadata": {"name": name, "annotations": notes}})

    def budget(self, name: str) -> None:
        """A budget over one of the owners' pods."""
        spec = {"selector": {"matchLabels": {"app": self.chance.choice(["one", "two"])}}}
        status = {"disruptionsAllowed": self.chance.randrange(3)}
        self.server.put(
            "PodDisruptionBudget", {"metadata": {"namespace": "shop", "name": name}, "spec": spec, "status": status}
        )

    def value(self, _: str) -> None:
        """What the name of a priority stands for."""
        self.server.put(
            "PriorityClass", {"metadata": {"name": "high"}, "value": self.chance.choice([1, 2_000_000_000])}
        )

    def trouble(self) -> None:
        """Something that ends a watch, or an object that cannot be read."""
        match self.chance.randrange(3):
            case 0:
                self.server.end("Pod", _CUT)
            case 1:
                self.server.end(self.chance.choice(["Pod", "Node"]), GONE)
            case _:
                self.server.put("Pod", BROKEN)

    def repair(self) -> None:
        """No object is broken any more."""
        if ("shop", "broken") in self.server.stored[cluster.PATHS["Pod"]]:
            self.server.remove("Pod", ("shop", "broken"))


@pytest.fixture
def server() -> Server:
    """A server without objects."""
    return Server()


@pytest.fixture
def following(server: Server) -> Iterator[Watches]:
    """Watches of that server."""
    made = Watches(server, monotonic=lambda: 0.0)  # type: ignore[arg-type]
    yield made
    made.stop()


def seen(plan: EvictionPlan) -> tuple[object, ...]:
    """All that was decided, and what the picture says on which it was decided."""
    view = plan.view
    versionless = functools.partial(msgspec.structs.replace, resource_version="")
    pods = {
        uid: (
            one.pod,
            versionless(one.object.metadata),
            one.object.spec,
            one.object.status,
            one.node,
            one.started,
            one.containers,
        )
        for uid, one in view.by_uid.items()
    }
    parts = view.budgets, view.replicas, view.problems, view.notes, view.priority_classes, view.namespaces
    return (
        document.encode(plan, ()),
        pods,
        *parts,
        [[pod.key for pod in one.pods] for group in view.groups for one in group.templates],
    )


@pytest.mark.parametrize("seed", slices.first(range(40)))
def test_every_plan_is_that_of_a_fresh_list(server: Server, following: Watches, seed: int) -> None:
    weather, held, pictures = Weather(server, seed), cluster.nothing_yet(), assemble.Pictures()
    by_watch, policy = 0, POLICY
    for number in range(25):
        before = len(server.lists)
        held = cluster.read(server, before=held, watches=following)
        by_watch += cluster.PATHS["Pod"] not in server.lists[before:]
        fresh = cluster.read(server, before=cluster.nothing_yet())
        if weather.chance.random() < 0.2:
            policy = POLICY if policy == RELOADED else RELOADED
        plan = decided(held, pictures, policy, weather.now)
        assert seen(plan) == seen(decided(fresh, assemble.Pictures(), policy, weather.now))
        server.settle(following.kinds)
        if weather.chance.random() < 0.5:  # Nothing that a place in the picture follows from.
            for _ in range(5):
                weather.restart()
        else:
            if weather.chance.random() < 0.5:
                weather.carry_out(plan)
            for _ in range(weather.chance.choice([0, 3, 60])):
                weather.change()
        weather.repair()
        if number % 4 == 3:
            weather.trouble()
        weather.now += weather.chance.choice([5, 300, 3600])
        for stream in server.open():
            stream.settle()
    assert by_watch > 5


def decided(objects: Objects, pictures: assemble.Pictures, policy: str, now: float) -> EvictionPlan:
    """The plan for these objects."""
    return planner.plan(pictures.view(objects, times.show(now)), reader.setup(reader.parse(policy, "policy")))


def read_twice(server: Server, following: Watches, between: Callable[[], object]) -> Objects:
    """Two cycles; what happens between them."""
    first = cluster.read(server, before=cluster.nothing_yet(), watches=following)
    server.settle(following.kinds)
    server.lists.clear()
    between()
    for stream in server.open():
        stream.settle()
    return cluster.read(server, before=first, watches=following)


def test_at_rest_nothing_is_listed(server: Server, following: Watches) -> None:
    Weather(server, 1)
    read_twice(server, following, lambda: None)
    assert server.lists == []
    assert set(following.kinds) == set(cluster.PATHS)


def test_what_says_the_same_stays_the_same(server: Server, following: Watches) -> None:
    weather, pictures = Weather(server, 1), assemble.Pictures()
    first = cluster.read(server, before=cluster.nothing_yet(), watches=following)
    before = pictures.view(first, times.show(weather.now))
    server.settle(following.kinds)
    weather.now += 60
    for name in NODES:
        weather.heartbeat(name)
    pod = server.stored[cluster.PATHS["Pod"]][("shop", "p1")]
    server.put("Pod", {**pod, "status": {**pod["status"], "podIP": "10.0.0.1"}})
    for stream in server.open():
        stream.settle()
    after = pictures.view(cluster.read(server, before=first, watches=following), times.show(weather.now))
    assert [after.nodes[name] is before.nodes[name] for name in NODES] == [True] * len(NODES)
    assert all(a is b for a, b in zip(after.groups, before.groups, strict=True))


def test_an_object_that_changed_often_is_read_once(server: Server, following: Watches) -> None:
    weather = Weather(server, 1)
    again = read_twice(server, following, lambda: [weather.pod("p1") for _ in range(5)])
    stored = server.stored[cluster.PATHS["Pod"]][("shop", "p1")]["metadata"]["resourceVersion"]
    assert again.by_kind["Pod"][("shop", "p1")].metadata.resource_version == stored
    assert again.versions["Pod"] == stored
    assert server.lists == []


def test_what_waits_is_made_small_before_it_is_much(
    server: Server, following: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "WAITING_BYTES", 1)
    weather = Weather(server, 1)
    again = read_twice(server, following, lambda: [weather.pod(name) for name in PODS])
    assert len(again.by_kind["Pod"]) == len(PODS)
    assert server.lists == []


def test_what_cannot_be_read_is_listed_until_it_is_right(server: Server, following: Watches) -> None:
    Weather(server, 1)
    again = read_twice(server, following, lambda: server.put("Pod", BROKEN))
    assert server.lists == [cluster.PATHS["Pod"]]
    assert "shop/broken cannot be read" in following.reasons["Pod"]
    assert [problem.object for problem in again.problems] == ["https://cluster/api/v1/pods: pod/shop/broken"]
    assert "Pod" not in following.kinds


def test_too_many_events_end_a_watch_and_the_list_is_read_for_some_cycles(
    server: Server, following: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "FREE_EVENTS", 30)
    weather = Weather(server, 1)
    held = read_twice(server, following, lambda: [weather.pod("p1") for _ in range(31)])
    assert "31 events came since the last cycle" in following.reasons["Pod"]
    turns = []
    for _ in range(6):
        turns.append("Pod" in following.kinds)
        server.settle(following.kinds)
        if turns[-1]:
            for _ in range(31):
                weather.pod("p1")
            for stream in server.open():
                stream.settle()
        held = cluster.read(server, before=held, watches=following)
    assert turns == [False, True, False, False, True, False]


def test_a_watch_that_is_not_allowed_is_told_and_the_list_counts(
    server: Server, following: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    weather, path = Weather(server, 1), cluster.PATHS["Pod"]
    server.refused.add(path)
    first = cluster.read(server, before=cluster.nothing_yet(), watches=following)
    server.settle(tuple(kind for kind in following.kinds if kind != "Pod"))
    server.lists.clear()
    weather.pod("p50")
    with caplog.at_level("INFO"):
        again = cluster.read(server, before=first, watches=following)
    assert server.lists == [path]
    assert ("shop", "p50") in again.by_kind["Pod"]
    assert "Pod: the list is read, not the watch: " in caplog.text


def test_a_watch_that_is_not_open_yet_says_so(server: Server) -> None:
    pending = cluster.Pending("Pod", cluster.read(server).packer, 10)
    tail = cluster.Tail(server, cluster.PATHS["Pod"], "1", pending, lambda: 5.0)
    assert tail.changes() == cluster.Changes(why_not="the watch is not open yet")


def test_a_cycle_that_failed_half_way_loses_nothing(server: Server, following: Watches) -> None:
    weather = Weather(server, 1)
    first = cluster.read(server, before=cluster.nothing_yet(), watches=following)
    server.settle(following.kinds)
    server.put("Node", {"metadata": {"name": "late"}})
    server.end("Pod", GONE)
    weather.pod("p55")
    for stream in server.open():
        stream.settle()
    listing = server.listed

    def failing(path: str) -> Iterator[Page]:
        raise ApiError(403, "Forbidden", "not now")

    server.listed = failing  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        cluster.read(server, before=first, watches=following)
    server.listed = listing  # type: ignore[method-assign]
    again = cluster.read(server, before=first, watches=following)
    assert ("", "late") in again.by_kind["Node"]
    assert ("shop", "p55") in again.by_kind["Pod"]


def test_a_kind_that_the_server_does_not_have_is_asked_for_again_after_five_minutes() -> None:
    server, now, objects = Server(), 0.0, cluster.nothing_yet()
    topologies = [path for path in server.stored if path.endswith("topologies")]
    server.unserved.update([*topologies, cluster.PATHS["NodeMetric"]])
    server.stored[cluster.OLDER["NodeResourceTopology"]] = {}
    server.unserved.add(cluster.OLDER["NodeResourceTopology"])
    followed = Watches(server, monotonic=lambda: now)
    try:
        for now, count in ((0.0, 5), (30.0, 0), (299.0, 0), (301.0, 5)):
            server.lists.clear()
            objects = cluster.read(server, before=objects, watches=followed)
            assert sum(path in server.unserved for path in server.lists) == count, now
        server.unserved.clear()
        now = 602.0
        objects = cluster.read(server, before=objects, watches=followed)
        assert {"NodeMetric", "NodeResourceTopology"} <= {*followed.kinds}
    finally:
        followed.stop()
    assert objects.problems == []
