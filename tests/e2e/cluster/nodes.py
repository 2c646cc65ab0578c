"""Emulated nodes on the wall clock: the kubelets of `tests/support/topocluster`, fed by a watch, writing over HTTP."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import datetime
import json
import logging
import pathlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cyaml
import msgspec

from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.kube.watch.store import Feed
from koordlite.kube.watch.watcher import Watching
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects
from koordlite.numa.kubelet.admit import admit
from koordlite.numa.kubelet.requests import of_pod
from tests.e2e.cluster.timeline import Timeline
from tests.support.topocluster.kubelets import Delays, EmulatedKubelet, Shape, exclusive_cpus, miscounted

LOG = logging.getLogger(__name__)
ROOT = pathlib.Path(__file__).parents[3]
REPORTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_WRITERS = 8
_HEARTBEAT_SECONDS = 10.0
_MERGE = "application/merge-patch+json"
PODS: Source[objects.PodObject] = Source(name="pods", kind="pod", shape=objects.PodObject, paths=("/api/v1/pods",))


class Writes:
    """What kubelets write: the requests about one node in their order, several nodes at a time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._workers = [concurrent.futures.ThreadPoolExecutor(1, f"writer-{n}") for n in range(_WRITERS)]
        self._nodes: dict[str, str] = {}
        """Node of each pod, by key."""
        self.problems: list[str] = []

    def close(self) -> None:
        """Write what is left."""
        for worker in self._workers:
            worker.shutdown()

    def note(self, pod: objects.PodObject) -> None:
        """Remember on which node the pod is."""
        self._nodes[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod.spec.node_name

    def put_node(self, obj: objects.NodeObject) -> None:
        """Register a node that is ready."""
        amounts = obj.status.allocatable
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        meta = {"name": obj.metadata.name, "labels": {"kubernetes.io/hostname": obj.metadata.name}}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        self._do(obj.metadata.name, "POST", "/api/v1/nodes", made)
        self._do(obj.metadata.name, "PATCH", f"/api/v1/nodes/{obj.metadata.name}/status", {"status": status})

    def beat(self, name: str) -> None:
        """Renew the node's lease, as kubelet does."""
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": f"{_now()[:-1]}.000000Z"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        self._do(name, "PATCH", f"{_LEASES}/{name}", {"spec": spec}, otherwise=("POST", _LEASES, lease))

    def put_report(self, obj: objects.NRTObject) -> None:
        """Publish a NodeResourceTopology."""
        name = obj.metadata.name
        body = msgspec.to_builtins(obj)
        body |= {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "topologyPolicies": []}
        self._do(name, "PATCH", f"{REPORTS}/{name}", body, otherwise=("POST", REPORTS, body))

    def status(self, key: str, uid: str, phase: str, reason: str = "", message: str = "") -> None:
        """Write a pod's status as kubelet does."""
        ready = "True" if phase == "Running" else "False"
        status: dict[str, Any] = {"phase": phase, "reason": reason, "message": message, "startTime": _now()}
        states = {"PodScheduled": "True", "Ready": ready}
        status["conditions"] = [
            {"type": kind, "status": state, "lastTransitionTime": _now()} for kind, state in states.items()
        ]
        if phase == "Running":
            state = {"running": {"startedAt": _now()}}
            one = {"image": "x", "imageID": "x", "restartCount": 0, "ready": True, "started": True, "state": state}
            status["containerStatuses"] = [{"name": "c0", "containerID": f"containerd://{uid}", **one}]
        body = {"metadata": {"uid": uid}, "status": status}
        self._do(self._nodes.get(key, ""), "PATCH", f"{_path(key)}/status", body)

    def forget_node(self, name: str) -> None:
        """A node is taken out of the cluster, as its cloud does."""
        self._do(name, "DELETE", f"/api/v1/nodes/{name}", None)

    def remove(self, key: str, uid: str) -> None:
        """Its containers have ended: the object goes."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._do(self._nodes.pop(key, ""), "DELETE", _path(key), body)

    def _do(self, node: str, verb: str, path: str, body: Any, otherwise: tuple[str, str, Any] | None = None) -> None:
        worker = self._workers[hash(node) % _WRITERS]
        worker.submit(self._request, verb, path, body, otherwise)

    def _request(self, verb: str, path: str, body: Any, otherwise: tuple[str, str, Any] | None) -> None:
        kind = _MERGE if verb == "PATCH" else "application/json"
        for _ in range(5):
            try:
                self._api.request(verb, path, body=body, content_type=kind)
                return
            except ApiError as error:
                if error.status == 404 and otherwise is not None:
                    self._request(*otherwise, None)
                elif error.status not in (404, 409):  # The pod is gone, or is another one now.
                    self.problems.append(f"{verb} {path}: {error}")
                return
            except ApiUnreachable as error:
                LOG.info("%s %s: %s", verb, path, error)
                time.sleep(0.2)
        self.problems.append(f"{verb} {path}: the API server does not answer")


class AgentNode(EmulatedKubelet):
    """A node on which our agent carries out promises: kubelet's managers are off, and CPUs are reported by id."""

    def _report_object(self) -> objects.NRTObject:
        made = super()._report_object()
        cpus = self._shape.topology.cpus
        detail = [{"id": cpu.id, "core": cpu.core, "socket": cpu.socket, "node": cpu.node} for cpu in cpus]
        notes = {keys.CPU_TOPOLOGY: json.dumps({"detail": detail})}
        attributes = ({"name": "topologyManagerPolicy", "value": "none"},)
        meta = objects.ObjectMeta(name=self.name, annotations=notes)
        zones = tuple(
            msgspec.structs.replace(
                zone,
                resources=tuple(msgspec.structs.replace(r, available=r.allocatable) for r in zone.resources or ()),
            )
            for zone in made.zones or ()
        )
        return msgspec.structs.replace(made, metadata=meta, attributes=attributes, zones=zones)

    def _admit(self, pod: objects.PodObject) -> None:
        """No manager, no refusal."""
        self.pending -= 1
        key, uid = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.uid
        if uid not in self._ending:
            self._running[uid] = key
            self._events.after(self._chance.uniform(*self._delays.start), self._started, key, uid)

    def miscounts(self, pods: Mapping[str, objects.PodObject]) -> Iterator[str]:
        """As promised: the agent gives the pods what their annotations say."""
        promised = {
            uid: pod_reader.parse_resource_status(text).cpuset
            for uid, pod in pods.items()
            if (text := (pod.metadata.annotations or {}).get(keys.RESOURCE_STATUS, ""))
        }
        amounts = {uid: exclusive_cpus(pods[uid]) for uid in promised}
        return miscounted(promised, amounts, CPUSet(cpu.id for cpu in self._shape.topology.cpus))

    def _changed(self, state: Any) -> None:
        """Amounts by NUMA node are the scheduler's to count."""
        self.state = msgspec.structs.replace(state)


class Nodes:
    """All emulated nodes, and what each node's kubelet is told."""

    def __init__(self, api: Api, watch: Api, timeline: Timeline, *, seed: int = 1) -> None:
        self.writes, self.timeline, self._chance = Writes(api), timeline, random.Random(seed)
        self.kubelets: dict[str, EmulatedKubelet] = {}
        self.lost: set[str] = set()
        """Nodes that are away: no heartbeat, and nothing is done there."""
        self._running: dict[str, str] = {}
        feed: Feed[objects.PodObject] = Feed(PODS.kind, PODS.shape, put=self._put, removed=self._gone)
        reflector: Reflector[objects.PodObject] = Reflector(PODS, uniform=random.uniform, store=feed)
        self._watching = Watching(watch, reflector, monotonic=time.monotonic)
        self.listeners: list[Callable[[objects.PodObject | None, str], None]] = []
        """Told of every pod that came, changed or (None) went, with its key, in one thread."""

    def add(
        self,
        count: int,
        shape: Shape,
        delays: Delays,
        *,
        prefix: str = "node",
        agents: bool = False,
        placements: bool = True,
    ) -> None:
        """`count` nodes of one shape. `agents`: nodes of our agent, where kubelet's managers are off. Without
        `placements` the reports are another producer's, which does not say where a container is."""
        empty, made = shape.empty(), AgentNode if agents else EmulatedKubelet
        for number in range(count):
            name = f"{prefix}-{number:02}"
            kubelet = made(
                name,
                shape,
                empty,
                events=self.timeline,  # type: ignore[arg-type]
                store=self.writes,  # type: ignore[arg-type]
                chance=self._chance,
                delays=delays,
                with_fingerprint=True,
                with_placements=placements,
            )
            self.kubelets[name] = kubelet

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Registered, watching and beating until the end."""
        self.timeline.start()
        for kubelet in self.kubelets.values():
            self.timeline.after(0.0, kubelet.start)
        self._beat()
        self._watching.start()
        try:
            yield
        finally:
            self._watching.stop()
            self.timeline.stop()
            self.writes.close()

    def would_admit(self, node: str, pod: objects.PodObject) -> bool:
        """Whether that node's kubelet would take the pod now."""
        return admit(self.kubelets[node].state, of_pod(pod)).admitted

    def lose(self, name: str) -> None:
        """The node is away for good: nothing more comes from it, and its object is removed."""
        self.lost.add(name)
        self.writes.forget_node(name)

    def miscounts(self, pods: Iterable[objects.PodObject]) -> list[str]:
        """CPUs that are not with the pods that should have them: each pod that is bound and lives has as many as it
        asks for, on its own node, and nobody else has any."""
        found, live = [], collections.defaultdict[str, dict[str, objects.PodObject]](dict)
        for pod in list(pods):
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
                live[pod.spec.node_name][pod.metadata.uid] = pod
        for name in self.kubelets.keys() - self.lost:
            found += [f"{name}: {each}" for each in self.kubelets[name].miscounts(live[name])]
        return found

    def _beat(self) -> None:
        for name in self.kubelets.keys() - self.lost:
            self.writes.beat(name)
        self.timeline.after(_HEARTBEAT_SECONDS, self._beat)

    def _put(self, pod: objects.PodObject) -> None:
        self.timeline.after(0.0, self._see, pod)

    def _gone(self, key: str) -> None:
        self.timeline.after(0.0, self._forget, key)

    def _see(self, pod: objects.PodObject) -> None:
        key, node = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.spec.node_name
        kubelet = self.kubelets.get(node)
        is_alive = pod.status.phase not in ("Succeeded", "Failed")
        if kubelet is not None and node not in self.lost and is_alive:
            self.writes.note(pod)
            self._running[key] = pod.metadata.uid
            kubelet.see(pod)
        for listener in self.listeners:
            listener(pod, key)

    def _forget(self, key: str) -> None:
        """Deleted without kubelet, by force or by a controller: kubelet ends its containers all the same."""
        uid = self._running.pop(key, "")
        for kubelet in self.kubelets.values():
            kubelet._leave(uid)
        for listener in self.listeners:
            listener(None, key)


def define_reports(api: Api) -> None:
    """Create the CustomResourceDefinitions of this project, and wait until the kinds are served."""
    folder = ROOT / "manifests/crds"
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("koordinator/*.yaml")]):
        for item in cyaml.safe_load_all(path.read_text()):
            if item and item["kind"] == "CustomResourceDefinition":
                api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=item)
    end = time.monotonic() + 20.0
    while True:
        try:
            api.request("GET", REPORTS)
            return
        except ApiError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
