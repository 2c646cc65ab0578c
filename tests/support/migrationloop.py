"""The whole loop around a migration, on one API server: the descheduler, the reservation controller, a scheduler that
asks the extender, a controller of replicas, and kubelets. Everything moves only when the test says so, and each process
may die at any of its writes."""

from __future__ import annotations

import datetime
import json
import pathlib
import random
from typing import Any

import cyaml
import msgspec
from apiserver import ApiServer, ManualClock
from hooked_files import Killed

from descheduler.cycle import planner
from descheduler.evictors.migration import Migrations
from descheduler.policy import reader
from descheduler.snapshot import assemble, cluster
from koordlite.kube.client import access
from koordlite.kube.client.answers import ApiError
from koordlite.model import keys, node_selectors, times
from koordlite.model.pod.pod_reader import effective_requests
from koordlite.model.wire import objects
from koordlite.model.wire.reservation import ReservationObject
from koordlite.reservation import step
from koordlite.reservation.placeholder import PlaceholderSettings as Placeholders
from koordlite.reservation.world import World
from koordlite.reservation.writer import Writer
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.promises import ApiBinder

ROOT = pathlib.Path(__file__).parents[2]
CRDS = ROOT / "manifests/crds"
KINDS = ("koordinator/podmigrationjobs", "koordinator/reservations", "noderesourcetopologies")
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
PODS = "/api/v1/namespaces/shop/pods"
MERGE = "application/merge-patch+json"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
POLICY = """
kind: DeschedulerConfiguration
profiles:
- name: p
  pluginConfig:
  - {name: MigrationController, args: {schedulerNames: [default-scheduler]}}
  plugins: {deschedule: {enabled: [{name: RemovePodsViolatingNodeTaints}]}}
"""
Object = dict[str, Any]


class Death:
    """When processes die: before, or after, the n-th write of all processes. `at` 0: never.

    After the first of `count` deaths the other process dies before or after its next write, then again the first.
    """

    def __init__(
        self, at: int = 0, *, after: bool = False, count: int = 1, chance: random.Random | None = None
    ) -> None:
        self.at, self.after, self.writes = at, after, 0
        self.happened = 0
        self._count, self._chance, self._last = count, chance or random.Random(1), ""

    def due(self, who: str) -> bool:
        """Count a write of this process, and tell whether it dies there."""
        self.writes += 1
        if not self.at or self.writes < self.at or self.happened >= self._count or who == self._last:
            return False
        self.happened, self._last = self.happened + 1, who
        self.after = self._chance.random() < 0.3 if self._count > 1 else self.after
        return True


class Mortal:
    """An API client whose process may die."""

    def __init__(self, api: Any, death: Death, name: str) -> None:
        self._api, self._death, self._name = api, death, name

    def request(self, method: str, path: str, **more: Any) -> Any:
        """Ask once."""
        dies = method != "GET" and self._death.due(self._name)
        if dies and not self._death.after:
            raise Killed(self._name)
        found = self._api.request(method, path, **more)
        if dies:
            raise Killed(self._name)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)


class Reserver:
    """The reservation controller, a round at a time, which sees what is at the server instead of watching it."""

    def __init__(self, api: Any, server: ApiServer) -> None:
        self._objects, self.world, self.may = server.objects, World(), True
        self._writer = Writer(
            api, wrote=lambda *_: None, deleted=self.world.removed, say=lambda *_: None, may=lambda: True
        )

    def round(self, now: float) -> None:
        """See everything, and do what can be done."""
        if not self.may:
            return
        world = self.world = World()
        for kind, shape, put in (
            ("Reservation", ReservationObject, world.put_reservation),
            ("Node", objects.NodeObject, world.put_node),
            ("Pod", objects.PodObject, world.put_pod),
        ):
            for each in self._objects.all(kind):
                put(msgspec.convert(each, shape, strict=False))
        for each in list(step.plan(world, Placeholders(priority_class=""), now)):
            self._writer.run(each)


class Loop:
    """Nodes `old`, whose pods have to go, `a` and `b`; a Deployment `web` with two pods, and none has room for two."""

    SCHEDULER = "default-scheduler"
    """Of the pods."""

    def __init__(
        self,
        server: ApiServer,
        clock: ManualClock,
        folder: pathlib.Path,
        death: Death | None = None,
        policy: str = POLICY,
    ) -> None:
        self.server, self.clock, self.death = server, clock, death or Death()
        self._setup = reader.setup(reader.parse(policy, "policy"))
        path = folder / "kubeconfig"
        path.write_text(server.kubeconfig(), encoding="utf-8")
        self.api = access.connect(str(path), None, user_agent="test")
        for kind in KINDS:
            server.objects.load(cyaml.safe_load((CRDS / f"{kind}.yaml").read_text(encoding="utf-8")))
        server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        self.unready: set[str] = set()
        """Apps whose new pods never become ready."""
        self.with_descheduler = self.with_extender = True
        self.replicas: dict[str, int] = {}
        self.made = 0
        self._owners: dict[str, Object] = {}
        self.populate()
        self.begin()

    def populate(self) -> None:
        """What there is at first."""
        for name, cpu in (("old", 8), ("a", 5), ("b", 5)):
            self.node(name, cpu)
        self.replicas = {"web": 2}
        self._deployment("web")
        for number in range(2):
            self.pod("web", f"web-{number}", "old")
        self.kubelets()

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.clock.now().timestamp()

    def begin(self) -> None:
        """Both processes start with nothing but what is at the API server."""
        (args,) = self._setup.migration.values()
        self.descheduler = Migrations(Mortal(self.api, self.death, "descheduler"), args, creator="me")
        self.reserver = Reserver(Mortal(self.api, self.death, "controller"), self.server)

    def plan(self) -> None:
        """A cycle of the descheduler that asks for jobs."""
        made = planner.plan(assemble.view(cluster.read(self.api)), self._setup)
        try:
            self.descheduler.ask(made.evict, made.view, self.now)
        except Killed:
            self.begin()
            self.descheduler.ask(made.evict, made.view, self.now)

    def run(self, rounds: int, seconds: float = 3.0) -> None:
        """Everybody does what he can, so many times."""
        for _ in range(rounds):
            try:
                if self.with_descheduler:
                    self.descheduler.work(self.now)
                self.changed("descheduler")
                self.replace()
                self.changed("replicas")
                for _ in range(2):
                    self.reserver.round(self.now)
                    self.changed("controller")
                    self.schedule()
                    self.changed("scheduler")
            except Killed:
                self.begin()
            self.kubelets()
            self.clock.advance(seconds)

    def changed(self, who: str) -> None:
        """One of them has done what he could."""

    # ── what is there ──

    def all(self, kind: str) -> list[Object]:
        """Objects of a kind."""
        return list(self.server.objects.all(kind))

    def pods(self) -> dict[str, Object]:
        """Pods that are no placeholders, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.all("Pod") if not _holds(pod)}

    def placeholders(self) -> list[Object]:
        """The others."""
        return [pod for pod in self.all("Pod") if _holds(pod)]

    def nodes_of_pods(self) -> list[str]:
        """Where the pods are that are no placeholders."""
        return sorted(pod["spec"].get("nodeName", "") for pod in self.pods().values())

    def job(self) -> Object:
        """The one job there is."""
        (found,) = self.all("PodMigrationJob")
        return found

    def promised_twice(self) -> list[str]:
        """Nodes on which more is bound than they have."""
        found = []
        for node in self.all("Node"):
            name = node["metadata"]["name"]
            if self._used(name) > int(node["status"]["allocatable"]["cpu"]):
                found.append(name)
        return found

    # ── the others ──

    def node(self, name: str, cpu: int) -> None:
        """A node comes."""
        taints = [{"key": "broken", "effect": "NoSchedule"}] if name == "old" else []
        status = {"allocatable": {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}}
        status |= {"conditions": [{"type": "Ready", "status": "True"}]}  # type: ignore[dict-item]
        meta = {"name": name}
        self.server.objects.load(
            {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": taints}, "status": status}
        )

    def pod(self, app: str, name: str, node: str = "", cpu: int = 3) -> None:
        """A pod of an app, on a node or waiting for one."""
        owner = self._owners.get(app)
        meta = {"name": name, "namespace": "shop", "labels": {"app": app}}
        meta |= {"ownerReferences": [owner]} if owner else {}
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "schedulerName": self.SCHEDULER}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": spec | ({"nodeName": node} if node else {}),
        }
        self.api.request("POST", PODS, body=body)

    def replace(self) -> None:
        """Pods that are missing are made."""
        for app, wanted in self.replicas.items():
            there = [pod for pod in self.pods().values() if (pod["metadata"].get("labels") or {}).get("app") == app]
            for _ in range(wanted - len(there)):
                self.made += 1
                self.pod(app, f"{app}-new-{self.made}")

    def schedule(self) -> None:
        """Each waiting pod once, placeholders first: kube-scheduler, which asks the extender about nodes with room."""
        known = Cluster(JudgeSettings(), monotonic=lambda: self.now)
        for node in self.all("Node"):
            known.put_node(msgspec.convert(node, objects.NodeObject, strict=False))
        for report in self.all("NodeResourceTopology"):
            known.put_report(msgspec.convert(report, objects.NRTObject, strict=False))
        for place in self.all("Reservation"):
            known.put_reservation(msgspec.convert(place, ReservationObject, strict=False))
        for pod in self.all("Pod"):
            known.put_pod(msgspec.convert(pod, objects.PodObject, strict=False))
        known.synced()
        extender = Extender(known, wall=lambda: self.now, binder=ApiBinder(self.api))
        waiting = [pod for pod in self.all("Pod") if not pod["spec"].get("nodeName")]
        for pod in sorted(waiting, key=self.turn):
            self._attempt(extender, pod)

    def turn(self, pod: Object) -> tuple[Any, ...]:
        """The order in which the scheduler takes waiting pods."""
        return not _holds(pod), pod["metadata"]["name"]

    def _attempt(self, extender: Extender, pod: Object) -> None:
        obj = msgspec.convert(pod, objects.PodObject, strict=False)
        nominated = (pod.get("status") or {}).get("nominatedNodeName", "")
        names = [node["metadata"]["name"] for node in self.all("Node") if self._has_room(node, pod, obj)]
        passed = extender.filter(obj, names)[0] if names and self.with_extender else names
        meta = obj.metadata
        if passed:
            scores = dict(extender.prioritize(obj, passed)) if self.with_extender else dict.fromkeys(passed, 0)
            chosen = (
                nominated
                if nominated in passed
                else max(passed, key=lambda name: (scores[name], -self._used(name), name))
            )
            if self.with_extender:
                why = extender.bind(meta.namespace, meta.name, meta.uid, chosen)
            else:
                self.bind(meta.name, chosen)
                why = ""
            assert not why, why
            return
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
        if (pod.get("status") or {}).get("conditions") != [said]:
            self._status(meta.name, meta.namespace, {"conditions": [said]})

    def bind(self, name: str, node: str) -> None:
        """Put a pod on a node."""
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, **target}
        self.api.request("POST", f"{PODS}/{name}/binding", body=body)

    def kubelets(self) -> None:
        """Bound pods run."""
        for pod in self.all("Pod"):
            if pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase") != "Running":
                app = (pod["metadata"].get("labels") or {}).get("app")
                conditions = [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": "False" if app in self.unready else "True"},
                ]
                status = {"phase": "Running", "startTime": times.show(self.now), "conditions": conditions}
                self._status(pod["metadata"]["name"], pod["metadata"]["namespace"], status)

    def _status(self, name: str, namespace: str, status: Object) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        try:
            self.api.request("PATCH", path, body={"status": status}, content_type=MERGE)
        except ApiError as error:
            assert error.status == 404, error

    def _has_room(self, node: Object, pod: Object, obj: objects.PodObject) -> bool:
        name = node["metadata"]["name"]
        if node["spec"].get("taints") or not node_selectors.node_matches(obj.spec, name, {}):
            return False
        kept = sum(
            _cpu(each)
            for each in self.all("Pod")
            if not each["spec"].get("nodeName")
            and (each.get("status") or {}).get("nominatedNodeName") == name
            and each["metadata"]["uid"] != pod["metadata"]["uid"]
        )
        return self._used(name) + kept + _cpu(pod) <= int(node["status"]["allocatable"]["cpu"])

    def _used(self, node: str) -> int:
        return sum(_cpu(pod) for pod in self.all("Pod") if pod["spec"].get("nodeName") == node)

    def _deployment(self, app: str) -> None:
        template = {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
        whole = {"replicas": self.replicas[app], "selector": {"matchLabels": {"app": app}}, "template": template}
        head: Object = {"apiVersion": "apps/v1", "spec": whole}
        root = "/apis/apps/v1/namespaces/shop"
        made = self._post(f"{root}/deployments", {**head, "kind": "Deployment", "metadata": {"name": app}})
        meta = {"name": f"{app}-1", "labels": {"app": app}, "ownerReferences": [_reference(made)]}
        replicas = self._post(f"{root}/replicasets", {**head, "kind": "ReplicaSet", "metadata": meta})
        self._owners[app] = _reference(replicas)

    def _post(self, path: str, body: Object) -> Object:
        found: Object = json.loads(self.api.request("POST", path, body=body).body)
        return found


def _reference(made: Object) -> Object:
    meta = made["metadata"]
    return {
        "apiVersion": "apps/v1",
        "kind": made["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def _holds(pod: Object) -> bool:
    return keys.RESERVATION_UID in (pod["metadata"].get("labels") or {})


def _cpu(pod: Object) -> int:
    asked = effective_requests(msgspec.convert(pod, objects.PodObject, strict=False).spec, "", [])
    return asked["cpu"].value if "cpu" in asked else 0
