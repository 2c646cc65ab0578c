"""One cluster with everything a scenario needs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from control_plane import free_port

from koordlite.kube.client.access import Api, ApiError
from koordlite.scheduler import render
from tests.e2e.cluster import control_plane as planes
from tests.e2e.cluster.accounting import Accounting
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.nodes import Nodes, define_reports
from tests.e2e.cluster.processes import Command
from tests.e2e.cluster.timeline import Timeline
from tests.e2e.cluster.workload import Pods, Replicas

SCHEDULER = "koordlite-scheduler"
JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
_CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "koordlite-reservation"}}
_CONTROLLERS_NEED = (
    ("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordlite-system"}}),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", {**_CLASS, "value": 10, "preemptionPolicy": "Never"}),
)


@dataclasses.dataclass
class Bench:
    """A control plane with nodes. Scenarios start schedulers and processes of ours."""

    plane: ControlPlane
    api: Api
    nodes: Nodes
    pods: Pods
    accounting: Accounting

    def extender(self, name: str = "extender", *options: str) -> tuple[Command, int]:
        """The product's extender as a process that is not started yet, and the port that schedulers ask."""
        port, health = free_port(), free_port()
        arguments = [f"--kubeconfig={self.plane.kubeconfig}", f"--listen=127.0.0.1:{port}"]
        arguments += [f"--health-listen=127.0.0.1:{health}", *options]
        log = self.plane.folder / f"{name}.log"
        return Command(log, "scheduler-extender", *arguments, ready=health), port

    def controller(self, name: str) -> Command:
        """The product's Reservation controller as a process that is not started yet."""
        for path, made in _CONTROLLERS_NEED:
            with contextlib.suppress(ApiError):  # Another one's.
                self.api.request("POST", path, body=made)
        health = free_port()
        arguments = [f"--kubeconfig={self.plane.kubeconfig}", f"--health-listen=127.0.0.1:{health}"]
        return Command(self.plane.folder / f"{name}.log", "reservation-controller", *arguments, ready=health)

    def taint(self, replicas: Replicas) -> str:
        """Have these pods, which all run on one node, leave it; the node."""
        self.until(
            lambda: (
                sum(map(replicas.owns, [p for p in self.accounting.pods.values() if p.status.phase == "Running"]))
                >= replicas.count
            ),
            60.0,
            what="the replicas run",
        )
        time.sleep(8.0)  # Younger pods may be successors of the first that go: the descheduler leaves them alone.
        (node,) = {pod.spec.node_name for pod in self.accounting.pods.values() if replicas.owns(pod)}
        body = {"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}}
        self.api.request("PATCH", f"/api/v1/nodes/{node}", body=body, content_type="application/merge-patch+json")
        return node

    def jobs(self) -> list[Any]:
        """All PodMigrationJobs."""
        found: list[Any] = json.loads(self.api.request("GET", JOBS).body)["items"]
        return found

    def descheduler(self, policy: str) -> Command:
        """The descheduler, which evicts by this policy, a cycle each two seconds; not started yet."""
        path, port = self.plane.folder / "policy.yaml", free_port()
        path.write_text(policy)
        options = [f"--kubeconfig={self.plane.kubeconfig}", f"--policy={path}", "--dry-run=false"]
        options += ["--descheduling-interval=2s", f"--listen=127.0.0.1:{port}"]
        return Command(self.plane.folder / "descheduler.log", "run", *options, ready=port, program="descheduler")

    def configuration(self, *ports: int, **options: object) -> str:
        """What `koordlite scheduler render configuration` prints for an extender on that port; none without."""
        text = render.text(
            "configuration", render.Options(url_prefix=f"http://127.0.0.1:{ports[0] if ports else 1}", **options)
        )  # type: ignore[arg-type]
        return text if ports else text.partition("extenders:")[0]

    def until(self, holds: Callable[[], object], seconds: float, *, what: str = "") -> float:
        """Wait; how long it took. Fails with what is pending."""
        start = time.monotonic()
        while not holds():
            if time.monotonic() - start > seconds:
                pending, refused = self.accounting.pending, dict(self.accounting.refused)
                raise AssertionError(f"not within {seconds:g} s: {what}; pending {pending[:10]}, refused {refused}")
            time.sleep(0.05)
        return time.monotonic() - start


@contextlib.contextmanager
def bench(folder: pathlib.Path, *, real: bool, add: Callable[[Nodes], None], seed: int = 1) -> Iterator[Bench]:
    """A cluster; `add` puts the nodes in."""
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(planes.started(folder, real=real))
        api = plane.api()
        define_reports(api)
        timeline = Timeline("nodes")
        nodes = Nodes(plane.api(), plane.api(), timeline, seed=seed)
        add(nodes)
        accounting, pods = Accounting(), Pods(plane.api(), SCHEDULER, seed=seed)
        nodes.listeners += [accounting, pods]
        stack.enter_context(nodes.running())
        made = Bench(plane, api, nodes, pods, accounting)
        yield made
        with contextlib.suppress(AssertionError):
            made.until(lambda: not nodes.miscounts(accounting.pods.values()), 20.0)
        assert not (wrong := nodes.miscounts(accounting.pods.values())), wrong
    assert not timeline.failures, timeline.failures
    assert not nodes.writes.problems, nodes.writes.problems[:5]
