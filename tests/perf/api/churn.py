"""Agent and descheduler against the emulated API server while pods come and go and the server misbehaves.

Prints requests a minute, memory, and whether every cache equals the server at the end; 1 when one does not.

    PYTHONPATH=tests/support python tests/perf/api/churn.py --minutes 10 --speed 6

Time is compressed: both sides' clocks run `--speed` times faster than life, so that at speed 6 a watch of 300 s
ends after 50 s of life.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import gc
import pathlib
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from apiserver import ApiServer, Fault

from koordlite.kube.client import access
from koordlite.kube.client.access import Api
from koordlite.kube.watch import sources
from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.kube.watch.watcher import Watching
from koordlite.model.wire import objects as wire

PODS_A_NODE = 10
WATCH = "watch"
SETTLE_SECONDS = 120.0
"""How long, in compressed time, the caches may take to catch up after the last fault."""


class FastClock:
    """Both sides' time: `speed` seconds in one."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._begun, self._start = time.monotonic(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def monotonic(self) -> float:
        """Compressed seconds so far."""
        return (time.monotonic() - self._begun) * self.speed

    def now(self) -> datetime.datetime:
        """The wall clock that goes with it."""
        return self._start + datetime.timedelta(seconds=self.monotonic())

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Wait compressed seconds for a notice."""
        condition.wait(seconds / self.speed)


class FastEvent(threading.Event):
    """An event whose waits are compressed too, for the pauses between requests."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def wait(self, timeout: float | None = None) -> bool:
        """Wait compressed seconds."""
        return super().wait(None if timeout is None else timeout / self._speed)


class Placed(msgspec.Struct):
    """What the caches are compared by."""

    node_name: str = msgspec.field(name="nodeName", default="")


class Seen(msgspec.Struct):
    """Metadata that tells one state of an object from another."""

    name: str
    uid: str
    resource_version: str = msgspec.field(name="resourceVersion")
    namespace: str = ""


class SmallPod(msgspec.Struct):
    """A pod as the comparison needs it."""

    metadata: Seen
    spec: Placed


class SmallNode(msgspec.Struct):
    """A node as the comparison needs it."""

    metadata: Seen


def faults(moment: float) -> Iterator[Fault]:
    """Every kind of trouble, over and over, until the churn ends."""
    chance = random.Random(int(moment))
    verb, kind = chance.choice([WATCH, "list"]), chance.choice(["pods", "nodes"])
    yield chance.choice(
        [
            Fault(verb=WATCH, resource=kind, cut_after_lines=50),
            Fault(verb=WATCH, resource=kind, cut_after_lines=50, half_line=True),
            Fault(verb=WATCH, resource=kind, gone=True),
            Fault(verb=WATCH, resource=kind, poison=True),
            Fault(verb=verb, resource=kind, status=503, times=3),
            Fault(verb=verb, resource=kind, status=429, retry_after_seconds=5, times=2),
            Fault(verb=verb, resource=kind, status=500),
            Fault(verb="list", resource=kind, poison=True),
            Fault(verb="list", resource=kind, drop=True),
            Fault(verb=verb, resource=kind, delay_seconds=0.5),
        ]
    )


class Churn:
    """Pods that come, run and go at a fixed rate."""

    def __init__(self, server: ApiServer, *, nodes: int, rate: float) -> None:
        self._server, self._nodes, self._rate = server, nodes, rate
        self._living: collections.deque[str] = collections.deque()
        self._count = 0

    def fill(self) -> None:
        """The nodes with their first pods."""
        for number in range(self._nodes):
            status = {"capacity": {"cpu": "64", "memory": "256Gi"}, "allocatable": {"cpu": "63", "memory": "250Gi"}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}, "status": status}
            self._server.objects.load(node)
        for _ in range(self._nodes * PODS_A_NODE):
            self._come("Running")

    def step(self, seconds: float) -> None:
        """What happens in so many compressed seconds."""
        for _ in range(round(self._rate * seconds)):
            name = self._come("Pending")
            self._server.objects.load(_pod(name, self._node(name), "Running"))
            self._server.objects.remove("Pod", self._living.popleft(), "churn", api_version="v1")

    def _come(self, phase: str) -> str:
        self._count += 1
        name = f"p{self._count}"
        self._living.append(name)
        self._server.objects.load(_pod(name, self._node(name), phase))
        return name

    def _node(self, name: str) -> str:
        return f"n{int(name[1:]) % self._nodes}"


def _pod(name: str, node: str, phase: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "x", "resources": resources}]}
    meta = {"name": name, "namespace": "churn", "labels": {"app": f"a{int(name[1:]) % 50}"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def watchings(api: Api, clock: FastClock) -> dict[str, Watching[Any]]:
    """What one agent and one descheduler watch."""
    chance = random.Random(1)
    wanted: dict[str, Source[Any]] = {
        "agent's node": sources.node("n1"),
        "agent's pods": sources.pods("n1"),
        "agent's settings": sources.config_map("koordinator-system", "slo-controller-config"),
        "all nodes": Source(name="nodes", kind="node", shape=SmallNode, paths=("/api/v1/nodes",)),
        "all pods": Source(name="pods", kind="pod", shape=SmallPod, paths=("/api/v1/pods",)),
    }
    made = {}
    for name, source in wanted.items():
        reflector = Reflector(source, uniform=chance.uniform)
        watching = Watching(api, reflector, monotonic=clock.monotonic)
        watching._stop = FastEvent(clock.speed)  # Its pauses must pass as fast as everything else.
        made[name] = watching
    return made


def unequal(server: ApiServer, watches: dict[str, Watching[Any]]) -> list[str]:
    """Caches that do not hold what the server holds."""
    pods, nodes = ({_identity(item) for item in server.objects.all(kind, api_version="v1")} for kind in ("Pod", "Node"))
    on_node = {item["metadata"]["uid"] for item in server.objects.all("Pod", api_version="v1") if _on(item, "n1")}
    held = {name: watch.view().objects for name, watch in watches.items()}
    checks = {
        "all pods": _held(held["all pods"]) == pods,
        "all nodes": _held(held["all nodes"]) == nodes,
        "agent's pods": _uids(held["agent's pods"].values()) == on_node,
        "agent's node": set(held["agent's node"]) == {"n1"},
    }
    return [name for name, holds in checks.items() if not holds]


def _identity(item: Any) -> tuple[str, str]:
    return item["metadata"]["uid"], item["metadata"]["resourceVersion"]


def _on(item: Any, node: str) -> bool:
    return bool(item["spec"].get("nodeName") == node)


def _held(objects: Any) -> set[tuple[str, str]]:
    return {(each.metadata.uid, each.metadata.resource_version) for each in objects.values()}


def _uids(pods: Any) -> set[str]:
    found: list[wire.PodObject] = list(pods)
    return {each.metadata.uid for each in found}


def memory_mib() -> float:
    """Resident memory of this process: the server and its clients together."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def run(minutes: float, speed: float, nodes: int, rate: float, fault_seconds: float) -> int:
    """The demonstration; 0 when everything holds."""
    clock = FastClock(speed)
    with ApiServer(clock=clock, seed=1, history=3000) as server, tempfile.TemporaryDirectory() as folder:
        churn = Churn(server, nodes=nodes, rate=rate)
        churn.fill()
        config = pathlib.Path(folder, "kubeconfig")
        config.write_text(server.kubeconfig())
        watches = watchings(access.connect(str(config), None, user_agent="churn"), clock)
        for each in watches.values():
            each.start()
        for each in watches.values():
            each.wait(30.0)
        samples = _churned(server, churn, clock, minutes=minutes, fault_seconds=fault_seconds)
        server.faults.clear()
        left = _settled(server, watches, clock)
        state = {name: watch.view() for name, watch in watches.items()}
        for each in watches.values():
            each.stop()
    return _told(server, samples, left, state)


def _churned(
    server: ApiServer, churn: Churn, clock: FastClock, *, minutes: float, fault_seconds: float
) -> list[tuple[float, float, float]]:
    """(minute, MiB, requests) of each compressed minute."""
    samples, begun, done, next_fault, minute, asked = [], clock.monotonic(), 0.0, fault_seconds, 1, 0
    while done < minutes * 60:
        passed = clock.monotonic() - begun
        churn.step(passed - done)
        done = passed
        if passed >= next_fault:
            server.faults.add(*faults(passed))
            server.cut_connections()
            next_fault += fault_seconds
        if passed >= minute * 60:
            gc.collect()
            samples.append((minute, memory_mib(), len(server.requests) - asked))
            asked, minute = len(server.requests), minute + 1
            _turn(server, minute)
        time.sleep(0.02)
    return samples


def _turn(server: ApiServer, minute: int) -> None:
    """Once a minute something larger: history forgotten, or the server restarted."""
    if minute % 3 == 0:
        server.forget_events()
    elif minute % 3 == 1:
        server.compact()
    elif minute % 5 == 0:
        server.stop()
        server.start()


def _settled(server: ApiServer, watches: dict[str, Watching[Any]], clock: FastClock) -> list[str]:
    end = clock.monotonic() + SETTLE_SECONDS
    left = unequal(server, watches)
    while left and clock.monotonic() < end:
        time.sleep(0.1)
        left = unequal(server, watches)
    return left


def _told(server: ApiServer, samples: list[tuple[float, float, float]], left: list[str], state: Any) -> int:
    print("minute  MiB   requests")
    for minute, mib, asked in samples:
        print(f"{minute:6d} {mib:6.1f} {asked:6d}")
    verbs = collections.Counter(f"{each.verb} {each.resource} {each.status}" for each in server.requests)
    for word, count in sorted(verbs.items()):
        print(f"  {count:5d} {word}")
    for name, view in state.items():
        print(f"  {name}: {len(view.objects)} held, {view.state}")
    busiest = max((asked for _, _, asked in samples), default=0)
    late = [mib for _, mib, _ in samples[len(samples) // 3 :]]
    growth = max(late) / late[0] - 1 if late else 0.0
    print(f"busiest minute: {busiest} requests of {len(state)} watches; memory grew {growth:.1%} after the first third")
    print("every cache equals the server" if not left else f"NOT EQUAL: {', '.join(left)}")
    return 1 if left or busiest > 60 * len(state) or growth > 0.25 else 0


def started(run: Callable[[float, float, int, float, float], int], arguments: list[str], *, speed: float) -> int:
    """Parse the options that both programs of this folder have, and run. `speed`: unless they say another."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0, help="of compressed time")
    parser.add_argument("--speed", type=float, default=speed)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0, help="pods created, and deleted, in a compressed second")
    parser.add_argument("--fault-every", type=float, default=10.0, help="compressed seconds between two faults")
    args = parser.parse_args(arguments)
    return run(args.minutes, args.speed, args.nodes, args.rate, args.fault_every)


if __name__ == "__main__":
    sys.exit(started(run, sys.argv[1:], speed=6.0))
