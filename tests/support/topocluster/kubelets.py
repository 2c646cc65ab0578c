"""Emulated kubelets: they admit pods by kubelet's rules, run them, and have their NUMA nodes reported."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Mapping

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.kubelet import MemoryBlock
from koordlite.model.quantity import Quantity
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet import merge
from koordlite.numa.kubelet.admit import KubeletNode, admit, empty_node, free_amounts, free_cpus
from koordlite.numa.kubelet.memory_manager import first_state
from koordlite.numa.kubelet.requests import PodRequest, of_pod
from koordlite.numa.nrt import fingerprint
from tests.support.topocluster.events import Events
from tests.support.topocluster.store import Store, key_of

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Shape:
    """A kind of node: NUMA nodes with cores of two CPUs and memory; one core of the first is reserved."""

    numa_nodes: int = 2
    cores: int = 8
    memory: int = 32 * GIB
    policy: merge.Policy = "single-numa-node"
    scope: merge.Scope = "container"

    @property
    def topology(self) -> Topology:
        """Its CPUs and NUMA nodes."""
        total = self.numa_nodes * self.cores
        cpus = tuple(
            CPU(core + thread * total, core, core // self.cores, core // self.cores)
            for thread in range(2)
            for core in range(total)
        )
        nodes = tuple(
            NUMANode(
                id_,
                CPUSet(cpu.id for cpu in cpus if cpu.node == id_),
                self.memory,
                tuple((other, 10 if other == id_ else 21) for other in range(self.numa_nodes)),
            )
            for id_ in range(self.numa_nodes)
        )
        return Topology(cpus, nodes)

    def empty(self) -> KubeletNode:
        """A node of this kind on which nothing runs."""
        memory = (MemoryBlock("memory", self.memory - GIB, (id_,)) for id_ in range(self.numa_nodes))
        return empty_node(
            self.topology,
            policy=self.policy,
            scope=self.scope,
            reserved=CPUSet((0, self.numa_nodes * self.cores)),
            memory=first_state(range(self.numa_nodes), memory),
        )

    @property
    def allocatable(self) -> dict[str, str | int | float]:
        """What the Node offers."""
        cpus = self.numa_nodes * self.cores * 2 - 2
        return {"cpu": str(cpus), "memory": str(self.numa_nodes * (self.memory - GIB)), "pods": "110"}


@dataclasses.dataclass(frozen=True)
class Delays:
    """Seconds, least and most, drawn anew each time."""

    sync: tuple[float, float] = (0.01, 0.3)
    """From the binding's arrival to admission."""
    start: tuple[float, float] = (0.3, 2.0)
    end: tuple[float, float] = (0.5, 3.0)
    """From the deletion's arrival until containers have ended."""
    report: tuple[float, float] = (0.1, 1.0)
    """From a change until it is published; at most one report a second."""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A pod that kubelet did not admit."""

    when: float
    node: str
    pod: objects.PodObject
    reason: str
    evidence: Mapping[str, int | str]

    def __str__(self) -> str:
        return f"{self.when:.2f} {self.node}: {self.reason} {self.pod.metadata.name} {dict(self.evidence)}"


def exclusive_cpus(pod: objects.PodObject) -> int:
    """CPUs that a Guaranteed pod's containers have alone: whole ones, by container."""
    amounts = (Quantity.parse(c.resources.requests["cpu"]).milli for c in pod.spec.containers or () if c.resources)
    return sum(milli // 1000 for milli in amounts if milli % 1000 == 0)


def miscounted(assigned: Mapping[str, CPUSet], amounts: Mapping[str, int], whole: CPUSet) -> Iterator[str]:
    """CPUs by uid of a pod against the number that each pod should have."""
    taken = CPUSet()
    for uid, cpus in assigned.items():
        if len(cpus) != amounts.get(uid, 0):
            yield f"pod {uid} has {cpus}, and should have {amounts.get(uid, 0)} CPUs"
        if cpus & taken or cpus - whole:
            yield f"pod {uid} has {cpus}, of which {cpus & taken} are another pod's and {cpus - whole} are nobody's"
        taken |= cpus
    yield from (
        f"pod {uid} has no CPUs, and should have {amount}" for uid, amount in amounts.items() if uid not in assigned
    )


class EmulatedKubelet:
    """One node's kubelet and reporter."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        empty: KubeletNode,
        *,
        events: Events,
        store: Store,
        chance: random.Random,
        delays: Delays,
        with_fingerprint: bool,
        with_placements: bool = False,
    ) -> None:
        """`with_placements`: its reporter is our agent, which says where each container is."""
        self.name, self.state, self._empty, self._shape = name, empty, empty, shape
        self._events, self._store, self._chance, self._delays = events, store, chance, delays
        self._with_fingerprint, self._with_placements = with_fingerprint, with_placements
        self.refusals: list[Refusal] = []
        self.left: list[float] = []
        """When pods ended."""
        self.pending = 0
        """Pods that are bound here and not admitted yet."""
        self._known: set[str] = set()
        self._running: dict[str, str] = {}
        self._ending: set[str] = set()
        self._reported: KubeletNode | None = None
        self._due = False
        self._last_report = -1.0
        self._next_sync = 0.0

    @property
    def is_reported(self) -> bool:
        """Whether the latest report shows the node as it is."""
        return self._reported is self.state

    def miscounts(self, pods: Mapping[str, objects.PodObject]) -> Iterator[str]:
        """What is wrong with the CPUs that the CPU manager has given out, if these are the pods that live here."""
        assigned = {
            uid: CPUSet(i for cpus in own.values() for i in cpus) for uid, own in self.state.cpus.assigned.items()
        }
        amounts = {uid: cpus for uid, pod in pods.items() if (cpus := exclusive_cpus(pod))}
        given = CPUSet(i for cpus in assigned.values() for i in cpus)
        if given & self.state.cpus.shared or (given | self.state.cpus.shared) != self._empty.cpus.shared:
            yield f"{given} are given out, and {self.state.cpus.shared} shared"
        yield from miscounted(assigned, amounts, self._empty.cpus.shared)

    def start(self) -> None:
        """Register the node."""
        status = objects.NodeStatus(capacity=self._shape.allocatable, allocatable=self._shape.allocatable)
        self._store.put_node(objects.NodeObject(metadata=objects.ObjectMeta(name=self.name), status=status))
        self._report()

    def would_admit(self, ask: PodRequest) -> bool:
        """Whether a pod would be admitted right now."""
        return admit(self.state, ask).admitted

    def see(self, pod: objects.PodObject) -> None:
        """A pod of this node came or changed."""
        uid = pod.metadata.uid
        if uid not in self._known:
            self._known.add(uid)
            self.pending += 1
            # Kubelet takes new pods one after the other, in the order in which it saw them.
            self._next_sync = max(self._next_sync, self._events.now + self._chance.uniform(*self._delays.sync))
            self._events.at(self._next_sync, self._admit, pod)
        elif pod.metadata.deletion_timestamp and uid not in self._ending:
            self._ending.add(uid)
            self._events.after(self._chance.uniform(*self._delays.end), self._ended, key_of(pod), uid)

    def finish(self, key: str, uid: str) -> None:
        """The pod's work is done: it ends by itself."""
        if uid in self._running and uid not in self._ending:
            self._leave(uid)
            self._store.status(key, uid, "Succeeded")

    def _admit(self, pod: objects.PodObject) -> None:
        self.pending -= 1
        key, uid = key_of(pod), pod.metadata.uid
        if uid in self._ending:
            return
        answer = admit(self.state, of_pod(pod))
        if not answer.admitted:
            self.refusals.append(Refusal(self._events.now, self.name, pod, answer.reason, answer.evidence))
            self._store.status(key, uid, "Failed", answer.reason, answer.message)
            return
        self._running[uid] = key
        self._changed(answer.node)
        self._events.after(self._chance.uniform(*self._delays.start), self._started, key, uid)

    def _started(self, key: str, uid: str) -> None:
        if uid in self._running:
            self._store.status(key, uid, "Running")

    def _ended(self, key: str, uid: str) -> None:
        self._leave(uid)
        self._store.remove(key, uid)

    def _leave(self, uid: str) -> None:
        if self._running.pop(uid, None) is not None:
            self.left.append(self._events.now)
            self._changed(self.state.without(uid))

    def _changed(self, state: KubeletNode) -> None:
        """What a report shows has changed, the list of pods at least."""
        self.state = msgspec.structs.replace(state)
        if not self._due:
            self._due = True
            due = max(self._events.now + self._chance.uniform(*self._delays.report), self._last_report + 1.0)
            self._events.at(due, self._report)

    def _report(self) -> None:
        self._due, self._last_report, self._reported = False, self._events.now, self.state
        self._store.put_report(self._report_object())

    def _report_object(self) -> objects.NRTObject:
        managers = self.state.managers
        attributes = {"topologyManagerPolicy": managers.policy, "topologyManagerScope": managers.scope}
        if self._with_fingerprint:
            pairs = (key.partition("/") for key in self._running.values())
            attributes["nodeTopologyPodsFingerprint"] = fingerprint.sign((space, name) for space, _, name in pairs)
            attributes["nodeTopologyPodsFingerprintMethod"] = "all"
        resources = {
            "cpu": (free_cpus(self.state), free_cpus(self._empty)),
            "memory": (free_amounts(self.state, "memory"), free_amounts(self._empty, "memory")),
        }
        zones = tuple(
            objects.Zone(
                name=f"node-{id_}",
                type="Node",
                resources=tuple(
                    objects.ZoneResource(
                        name=name, capacity=str(most[id_]), allocatable=str(most[id_]), available=str(free[id_])
                    )
                    for name, (free, most) in resources.items()
                ),
                costs=tuple(
                    {"name": f"node-{other}", "value": row} for other, row in enumerate(managers.distances[id_])
                ),
            )
            for id_ in managers.nodes
        )
        listed = tuple({"name": name, "value": value} for name, value in attributes.items())
        notes = {keys.PLACEMENT: self._placements()} if self._with_placements else None
        meta = objects.ObjectMeta(name=self.name, annotations=notes)
        return objects.NRTObject(metadata=meta, zones=zones, attributes=listed)

    def _placements(self) -> str:
        """Where each container with CPUs of its own is, as our agent reports it."""
        node_of = {cpu.id: cpu.node for cpu in self._shape.topology.cpus}
        rows = []
        for uid, containers in self.state.cpus.assigned.items():
            namespace, _, name = self._running.get(uid, "").partition("/")
            for container, cpus in containers.items():
                nodes = sorted({node_of[cpu] for cpu in cpus})
                row = {"namespace": namespace, "pod": name, "uid": uid, "container": container, "source": "kubelet"}
                rows.append({**row, "exclusive": True, "promisedCPUs": str(cpus), "promisedNodes": nodes})
        return json.dumps({"observedAt": "2026-01-01T00:00:00Z", "generation": 1, "containers": rows})
