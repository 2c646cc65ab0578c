"""A small cluster for Reservations: an API server of values, kubelets that count, and schedulers that keep nominations.

The controller's steps are applied one request at a time, so that it may end between any two of them. The scheduler
does what recordings of kube-scheduler 1.36 show: the nominated node first, and room is kept there from pods that are
not more important.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import structs

from koordlite.model import keys, times
from koordlite.model.pod.pod_reader import effective_requests
from koordlite.model.wire.objects import NodeObject, PodCondition, PodObject
from koordlite.model.wire.reservation import ReservationObject
from koordlite.reservation import hand_over, lifecycle, step
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.reservation.step import (
    Action,
    Annotate,
    AnnotatePod,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    Nominate,
    Say,
    Step,
    WriteStatus,
)
from koordlite.reservation.world import World

START = 1_800_000_000.0
HIGHEST = 1_000_000_000


def node(name: str, cpu: int) -> NodeObject:
    raw = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}}}
    return msgspec.convert(raw, NodeObject)


def cpu_of(pod: PodObject) -> int:
    """Whole CPUs."""
    asked = effective_requests(pod.spec, "", [])
    return asked["cpu"].value if "cpu" in asked else 0


def ended(pod: PodObject) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


class ReserveCluster:
    """Objects as they are at the API server; `world` is what the controller has seen of them."""

    def __init__(self, chance: random.Random, *, nodes: dict[str, int], guarded: bool = False) -> None:
        """`guarded`: the scheduler asks an extender, which keeps pods off what a Reservation holds."""
        self.guarded = guarded
        self.settings = PlaceholderSettings(scheduler="sim", guarded=frozenset({"sim"} if guarded else ()))
        self.chance, self.now = chance, START
        self.nodes = {name: node(name, cpu) for name, cpu in nodes.items()}
        self.pods: dict[str, PodObject] = {}
        self.reservations: dict[str, ReservationObject] = {}
        self.world = World()
        self.said: list[Say] = []
        self.stolen: list[str] = []
        """Placeholders that took room which was freed for the owner of another Reservation."""
        self._freed_by_others: set[str] = set()
        """Uids of Reservations of which a placeholder was ended or deleted by hand: that room nobody promised."""
        self.refused: set[str] = set()
        """Pods for which their scheduler finds no node whatever is free: their NUMA nodes do not fit, for example."""
        self.nominations: collections.Counter[str] = collections.Counter()
        """Requests to keep room, by uid of the pod."""
        self.made = 0
        self.restarts = -1
        self.restart()

    # ── people ──

    def reserve(self, name: str, cpu: int, *, labels: dict[str, str] | None = None, **spec: Any) -> ReservationObject:
        """A Reservation comes, for pods with the label app=<name> unless owners say otherwise."""
        self.made += 1
        resources = {"requests": {"cpu": str(cpu), "memory": "1Gi"}}
        template = {"metadata": {"namespace": "ns"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
        owners = [{"labelSelector": {"matchLabels": {"app": name}}}]
        raw = {
            "metadata": {
                "name": name,
                "uid": f"u{self.made}",
                "creationTimestamp": times.show(self.now),
                "labels": labels,
            },
            "spec": {"template": template, "owners": owners, "ttl": "24h", "allocateOnce": True, **spec},
        }
        found = self.reservations[name] = msgspec.convert(raw, ReservationObject)
        return found

    def pod(self, name: str, cpu: int, *, app: str = "", priority: int = 0, scheduler: str = "sim") -> PodObject:
        """A pod comes."""
        self.made += 1
        raw = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"p{self.made}",
                "creationTimestamp": times.show(self.now),
                "labels": {"app": app},
            },
            "spec": {
                "schedulerName": scheduler,
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}}}],
            },
            "status": {"phase": "Pending"},
        }
        found = self.pods[f"ns/{name}"] = msgspec.convert(raw, PodObject)
        return found

    def end(self, key: str, phase: str = "") -> None:
        """A pod goes, or ends with a phase."""
        self._freed_by_others.add((self.pods[key].metadata.labels or {}).get(keys.RESERVATION_UID, ""))
        if phase:
            self.pods[key] = structs.replace(self.pods[key], status=structs.replace(self.pods[key].status, phase=phase))
        else:
            del self.pods[key]

    # ── what runs ──

    def restart(self) -> None:
        """Another controller begins, with nothing but the objects."""
        self.world = World()
        self._shown: dict[str, object] = {}
        self.restarts += 1
        self.see()

    def see(self) -> None:
        """The watches bring everything."""
        world = self.world
        for name in [name for name in world.reservations if name not in self.reservations]:
            world.remove_reservation(name)
        for name in [name for name in world.nodes if name not in self.nodes]:
            world.remove_node(name)
        held = {pod.key for pod in world.pods.values()}
        for key in held - self.pods.keys():
            world.remove_pod(key)
        seen = self._shown
        self._shown = {**self.reservations, **self.nodes, **self.pods}
        for name, each in self._shown.items():
            if seen.get(name) is each:
                continue
            if isinstance(each, ReservationObject):
                world.put_reservation(each)
            elif isinstance(each, NodeObject):
                world.put_node(each)
            elif isinstance(each, PodObject):
                world.put_pod(each)

    def control(self, most: int = 10**6) -> int:
        """A round of the controller that ends after `most` requests; how many it made."""
        done = 0
        for each, action in step_actions(self, most):
            self.apply(each, action)
            done += 1
        return done

    def apply(self, of: Step, action: Action) -> None:
        """One request."""
        match action:
            case CreatePlaceholder():
                self._create(action)
            case Nominate():
                self._nominate(f"{action.namespace}/{action.name}", action.uid, action.node)
            case DeletePlaceholder():
                key = f"{action.namespace}/{action.name}"
                if key in self.pods and self.pods[key].metadata.uid == action.uid:
                    del self.pods[key]
                self.world.removed(action.uid)
            case AnnotatePod():
                self._annotate_pod(action)
            case Annotate():
                self._annotate(of.name, of.uid, dict(action.annotations))
            case WriteStatus():
                obj = self.reservations.get(of.name)
                if obj is not None and obj.metadata.uid == of.uid:
                    self._put(structs.replace(obj, status=action.after))
            case DeleteReservation():
                self.reservations.pop(of.name, None)
                self.world.remove_reservation(of.name)
            case Say():
                self.said.append(action)

    def schedule(self, scheduler: str = "sim") -> None:
        """Every waiting pod once, the most important first."""
        waiting = [pod for pod in self.pods.values() if not pod.spec.node_name and pod.spec.scheduler_name == scheduler]
        for pod in sorted(waiting, key=lambda pod: -priority(pod)):
            self._attempt(pod)

    def kubelets(self) -> None:
        """Bound pods are admitted where they fit, else they fail."""
        for name in self.nodes:
            here = [pod for pod in self.pods.values() if pod.spec.node_name == name and not ended(pod)]
            taken = sum(cpu_of(pod) for pod in here if pod.status.start_time)
            for pod in here:
                if pod.status.start_time:
                    continue
                fits = taken + cpu_of(pod) <= self.size(name)
                taken += cpu_of(pod) if fits else 0
                what = (
                    {"start_time": "since then"}
                    if fits
                    else {"phase": "Failed", "message": "Node didn't have enough resource: cpu"}
                )
                self._put_pod(structs.replace(pod, status=structs.replace(pod.status, **what)))

    def settle(self, seconds: float, *, every: float = 1.0) -> None:
        """Everything runs, for so long."""
        until = self.now + seconds
        while self.now < until:
            self.see()
            self.control()
            self.schedule()
            self.kubelets()
            self.now += every

    # ── what is asked of it ──

    def size(self, name: str) -> int:
        return int((self.nodes[name].status.allocatable or {})["cpu"])

    def free(self, name: str, pod: PodObject | None = None) -> int:
        """What the scheduler counts as free for `pod`: bound pods are taken off, and those nominated before it."""
        least = priority(pod) if pod is not None else 0
        used = sum(cpu_of(each) for each in self.pods.values() if each.spec.node_name == name and not ended(each))
        kept = sum(
            cpu_of(each)
            for each in self.pods.values()
            if pod is not None
            and not each.spec.node_name
            and each.status.nominated_node_name == name
            and each.metadata.uid != pod.metadata.uid
            and priority(each) >= least
            and each.spec.scheduler_name == pod.spec.scheduler_name
        )
        return self.size(name) - used - kept - (self._guard(name, pod) if pod is not None and self.guarded else 0)

    def _guard(self, name: str, pod: PodObject) -> int:
        """What Reservations hold on the node without a placeholder, and not for this pod."""
        total = 0
        for each in self.reservations.values():
            coming = hand_over.read(each)
            if not lifecycle.is_available(each) or each.status.node_name != name or coming is None:
                continue
            if pod.metadata.name == coming.rest or (pod.metadata.uid == coming.uid and not coming.ended):
                continue
            total += max(rest_of(each) - self.held(each), 0)
        return total

    def held(self, each: ReservationObject) -> int:
        pods = self.placeholders(each.metadata.uid)
        return sum(cpu_of(pod) for pod in pods if pod.spec.node_name == each.status.node_name and not ended(pod))

    def placeholders(self, uid: str = "") -> list[PodObject]:
        """Of one Reservation, or of all."""
        found = [pod for pod in self.pods.values() if (pod.metadata.labels or {}).get(keys.RESERVATION_UID)]
        return [pod for pod in found if not uid or (pod.metadata.labels or {})[keys.RESERVATION_UID] == uid]

    def _attempt(self, pod: PodObject) -> None:
        nominated = pod.status.nominated_node_name or ""
        names = [name for name in self.nodes if self._may_go(pod, name) and self.free(name, pod) >= cpu_of(pod)]
        if not names or pod.metadata.name in self.refused:
            # A scheduler that refuses a pod takes its nomination back.
            said = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="Insufficient cpu")
            if pod.status.conditions != (said,) or nominated:
                status = structs.replace(pod.status, conditions=(said,), nominated_node_name=None)
                self._put_pod(structs.replace(pod, status=status))
            return
        chosen = nominated if nominated in names else self.chance.choice(names)
        if (pod.metadata.labels or {}).get(keys.RESERVATION_UID):
            self.stolen += self._stolen(pod, chosen)
        self._put_pod(structs.replace(pod, spec=structs.replace(pod.spec, node_name=chosen)))

    def _stolen(self, pod: PodObject, name: str) -> Iterator[str]:
        """Hand-overs on the node for which no room is left once this placeholder is bound there."""
        for each in self.reservations.values():
            coming, uid = hand_over.under_way(each), each.metadata.uid
            if coming is None or not lifecycle.is_available(each) or each.status.node_name != name:
                continue
            if uid in self._freed_by_others:
                continue
            owner = next((one for one in self.pods.values() if one.metadata.uid == coming.uid), None)
            if (pod.metadata.labels or {})[keys.RESERVATION_UID] == uid or owner is None or owner.spec.node_name:
                continue
            need = max(cpu_of(owner), rest_of(each)) - self.held(each)
            if self.free(name) >= need > self.free(name) - cpu_of(pod):
                yield f"{pod.metadata.name} took what was freed for {owner.metadata.name} on node {name}"

    @staticmethod
    def _may_go(pod: PodObject, name: str) -> bool:
        from koordlite.model import node_selectors

        return node_selectors.node_matches(pod.spec, name, {})

    def _create(self, action: CreatePlaceholder) -> None:
        self.made += 1
        body = msgspec.to_builtins(action.body)
        made = msgspec.convert(body, PodObject, strict=False)
        key = f"{made.metadata.namespace}/{made.metadata.name}"
        if key in self.pods:
            return
        meta = structs.replace(made.metadata, uid=f"h{self.made}", creation_timestamp=times.show(self.now))
        status = structs.replace(made.status, phase="Pending", nominated_node_name=action.node or None)
        spec = structs.replace(made.spec, priority=HIGHEST)
        self._put_pod(structs.replace(made, metadata=meta, spec=spec, status=status))
        self.world.put_pod(self.pods[key])  # The answer to a write is seen before the watch brings it.

    def _nominate(self, key: str, uid: str, node: str) -> None:
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            self.nominations[uid] += bool(node)
            status = structs.replace(pod.status, nominated_node_name=node or None)
            self._put_pod(structs.replace(pod, status=status))

    def _annotate_pod(self, action: AnnotatePod) -> None:
        pod = self.pods.get(f"{action.namespace}/{action.name}")
        if pod is not None and pod.metadata.uid == action.uid:
            notes = {**(pod.metadata.annotations or {}), **action.annotations}
            self._put_pod(structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=notes)))

    def _annotate(self, name: str, uid: str, changes: dict[str, str | None]) -> None:
        obj = self.reservations.get(name)
        if obj is None or obj.metadata.uid != uid:
            return
        merged = {**(obj.metadata.annotations or {}), **changes}
        notes = {key: text for key, text in merged.items() if text is not None}
        self._put(structs.replace(obj, metadata=structs.replace(obj.metadata, annotations=notes)))

    def _put(self, obj: ReservationObject) -> None:
        self.reservations[obj.metadata.name] = obj
        self.world.put_reservation(obj)

    def _put_pod(self, pod: PodObject) -> None:
        self.pods[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod


def rest_of(each: ReservationObject) -> int:
    """CPUs that its owners have left of it."""
    whole, taken = lifecycle.amounts(each.status.allocatable), lifecycle.amounts(each.status.allocated)
    return max(whole["cpu"].value - (taken["cpu"].value if "cpu" in taken else 0), 0)


def priority(pod: PodObject) -> int:
    return pod.spec.priority or 0


def step_actions(cluster: ReserveCluster, most: int) -> Iterator[tuple[Step, Action]]:
    """At most `most` requests of a round; each is applied before the next is planned."""
    left = most
    for each in step.plan(cluster.world, cluster.settings, cluster.now):
        for action in each.actions:
            if left <= 0:
                return
            left -= 1
            yield each, action


def broken(cluster: ReserveCluster) -> list[str]:
    """Invariants that hold at every moment."""
    found = list(cluster.stolen)
    for name in cluster.nodes:
        if cluster.free(name) < 0:
            found.append(f"node {name} is promised {-cluster.free(name)} CPUs twice")
    owned: dict[str, str] = {}
    for each in cluster.reservations.values():
        current = each.status.current_owners or ()
        if lifecycle.is_once(each) and len(current) > 1:
            found.append(f"{each.metadata.name} has {len(current)} owners")
        for owner in current:
            if owner.uid in owned:
                found.append(f"{owner.name} owns {owned[owner.uid]} and {each.metadata.name}")
            owned[owner.uid] = each.metadata.name
    return found


def unsettled(cluster: ReserveCluster) -> list[str]:
    """Invariants that hold once everything that was to be done is done."""
    found = broken(cluster)
    uids = {each.metadata.uid: each for each in cluster.reservations.values()}
    nominated = [pod for pod in cluster.pods.values() if not pod.spec.node_name and pod.status.nominated_node_name]
    for pod in cluster.placeholders():
        of = uids.get((pod.metadata.labels or {})[keys.RESERVATION_UID])
        if of is None:
            found.append(f"{pod.metadata.name} has no Reservation")
        elif lifecycle.has_ended(of.status):
            found.append(f"{pod.metadata.name} outlives {of.metadata.name}, which is {of.status.phase}")
    for each in cluster.reservations.values():
        coming = hand_over.under_way(each)
        if coming is not None:
            if not any(pod.metadata.uid == coming.uid for pod in cluster.pods.values()):
                found.append(f"{each.metadata.name} waits for {coming.name}, which is gone")
            elif hand_over.is_late(coming, cluster.now - 5):
                found.append(f"{each.metadata.name} waits for {coming.name} since {coming.since}")
            nominated = [pod for pod in nominated if pod.metadata.uid != coming.uid]
            continue
        if lifecycle.is_available(each):
            found += _not_held(cluster, each)
        elif not lifecycle.has_ended(each.status):
            found += [
                f"{each.metadata.name} waits although there is room on {name}"
                for pod in cluster.placeholders(each.metadata.uid)
                for name in cluster.nodes
                if not pod.spec.node_name and cluster.free(name, pod) >= cpu_of(pod)
            ]
            if not cluster.placeholders(each.metadata.uid):
                found.append(f"{each.metadata.name} waits without a placeholder: {each.status}")
    found += [
        f"{pod.metadata.name} keeps room on {pod.status.nominated_node_name}"
        for pod in nominated
        # A controller that ends while the Reservation of a hand-over is deleted leaves the nomination.
        if not cluster.restarts and not (pod.metadata.labels or {}).get(keys.RESERVATION_UID)
    ]
    return found


def _not_held(cluster: ReserveCluster, each: ReservationObject) -> Iterator[str]:
    rest, held = rest_of(each), cluster.held(each)
    if held > rest or (held < rest and cluster.free(each.status.node_name) >= rest - held):
        yield f"{each.metadata.name} has {rest} CPUs left and holds {held}"
