"""The cluster's objects as model values. What cannot be read keeps its last good value and becomes a problem."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from koordlite.formulas.allocatable import reservation
from koordlite.formulas.cpu import pools
from koordlite.host import kept_file
from koordlite.host.kept_file import KeptFile
from koordlite.model import cpuset, isolation, keys
from koordlite.model import node as nodes
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import Problem, noting
from koordlite.model.picture import node_notes
from koordlite.model.picture.crane import CraneState
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.pod.pod_reader import from_wire
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.slo import config as slo_config
from koordlite.model.slo import without_effect
from koordlite.model.slo.settings import SLO
from koordlite.model.topology import Topology
from koordlite.model.wire import objects as wire
from koordlite.numa.crane.zones import reserved_by_number
from koordlite.numa.koordinator import assignments
from koordlite.numa.koordinator.node_report import bind_policy
from koordlite.numa.machine import Machine
from koordlite.observe.crane_promises import Around, CranePromises
from koordlite.ports import ClusterView
from koordlite.unchanged import Unchanged


class ClusterPicture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that comes from the cluster, ready for the picture."""

    node: nodes.Node | None
    notes: node_notes.NodeNotes
    pods: tuple[Pod, ...]
    slo: SLO
    reserved: nodes.ResolvedReservation
    system_qos: nodes.SystemQoS
    kubelet: Kubelet
    crane: CraneState
    problems: tuple[Problem, ...]


class Inputs:
    """Turns views into values. What did not change is not parsed again (`koordlite.unchanged`)."""

    def __init__(
        self,
        earlier: SLO | None = None,
        crane: CranePromises | None = None,
        *,
        off: Collection[str] = without_effect.OFF,
        promises: KeptFile[Mapping[str, CPUSet]] | None = None,
        pool_floor_percent: float = 0.0,
    ) -> None:
        """`earlier` are settings of an earlier run, whose good documents count until there are newer ones; `off` are
        the strategies that are off: settings for them have no effect. `promises` are the CPUs that pods have by
        Koordinator's annotation, which leave the shared pool its floor."""
        self._off = off
        self._crane = crane or CranePromises(None, None, None)
        self._unchanged = Unchanged()
        self._slo = earlier
        self._reservation: nodes.Reservation | None = None
        self._system_qos = nodes.SystemQoS()
        self._notes = node_notes.NodeNotes()
        self._promises, self._pool_floor_percent = promises or kept_file.cpu_promises(None), pool_floor_percent

    def read(self, view: ClusterView, topology: Topology, *, taken_at: str = "") -> ClusterPicture:
        """The values behind `view` on this machine; `taken_at` is the present time, RFC 3339.

        InputError when an earlier run promised CPUs to pods and what it kept of that cannot be read.
        """
        problems = list(view.problems)
        obj = view.node
        this_node = self._unchanged.of("node", (obj,), lambda: nodes.from_wire(obj)) if obj else None
        notes, labels = (this_node.annotations, this_node.labels) if this_node else ({}, {})
        owner = f"node/{this_node.name}" if this_node else "node"
        self._read_annotations(notes, owner, problems)
        machine = self._unchanged.of("machine", (topology,), lambda: CPUSet(cpu.id for cpu in topology.cpus) or None)
        entries = self._unchanged.each("pods", view.pods, lambda obj: _pod(obj, machine), context=machine)
        pods = self._unchanged.of("readable", (entries,), lambda: tuple(p for p in entries if isinstance(p, Pod)))
        problems += [entry for entry in entries if isinstance(entry, Problem)]
        view = self._with_claims(view, pods)
        binds = bind_policy(labels, view.kubelet.cpu_manager_policy, view.kubelet.cpu_manager_options)
        pods = self._with_assignments(view, pods, topology, binds_every_pod=bool(binds))
        crane_cpus = self._unchanged.same("held by Crane", self._crane.exclusive_cpus(pods, view.kubelet))
        pods = self._unchanged.of("beside Crane", (pods, crane_cpus), lambda: _beside(pods, crane_cpus))
        kubelet = msgspec.structs.replace(view.kubelet, pod_cpus=pools.by_kubelet(view.kubelet.pod_cpus, pods))
        config = self._read_slo(view, labels, notes, taken_at, owner)
        reserved = self._reserve(kubelet, pods, topology, crane_cpus)
        why, do = reserved.fallback, "correct the annotation; until then the fallback holds"
        if not why and topology.cpus and len(reserved.cpus) == len(topology.cpus):
            why = f"it reserves all {len(topology.cpus)} CPUs of the machine, so none is left for pods"
            do = "leave them some; until then pods stay on the CPUs they have"
        if why:
            problems.append(Problem(owner, keys.RESERVATION, notes.get(keys.RESERVATION, ""), why, do))
        unused = self._unchanged.of(
            "without effect", (config,), lambda: slo_config.unused_problems(config, node_owner=owner, off=self._off)
        )
        problems += [*(this_node.problems if this_node else ()), *config.problems, *unused]
        crane = self._look_at_crane(view, pods, kubelet, topology, reserved.cpus)
        problems += [
            *self._crane.problems,
            *self._promises.problems,
            *(problem for p in pods for problem in p.problems),
        ]
        problems += self._unchanged.of(
            "refused", (pods,), lambda: [_not_honoured(p) for p in pods if p.resource_status.why]
        )
        return ClusterPicture(
            node=this_node,
            notes=self._notes,
            pods=pods,
            slo=config,
            reserved=reserved,
            system_qos=self._system_qos,
            kubelet=kubelet,
            crane=crane,
            problems=tuple(problems),
        )

    def _with_claims(self, view: ClusterView, pods: tuple[Pod, ...]) -> ClusterView:
        """The view with the CPUs of ResourceClaims among those that pods have alone."""
        resources, by_kubelet = view.kubelet.resources, view.kubelet.pod_cpus
        claimed = self._unchanged.of("claimed", (resources, pods), lambda: pools.claimed(resources, pods))
        if not claimed:
            return view
        alone = self._unchanged.of("alone", (by_kubelet, claimed), lambda: (*by_kubelet, *claimed))
        return msgspec.structs.replace(view, kubelet=msgspec.structs.replace(view.kubelet, pod_cpus=alone))

    def _with_assignments(
        self, view: ClusterView, pods: tuple[Pod, ...], topology: Topology, *, binds_every_pod: bool
    ) -> tuple[Pod, ...]:
        """The pods with the CPU assignments that hold; those that held before go first, and leave others their share of
        the machine."""
        by_kubelet = view.kubelet.pod_cpus
        written = self._unchanged.same("written", self._reservation)
        system = self._unchanged.same("system QoS", self._system_qos)

        def work() -> tuple[Pod, ...]:
            created = {pod.metadata.uid: pod.metadata.creation_timestamp or "" for pod in view.pods}
            pool = self._shared_pool(pods, view.kubelet, topology) if topology.cpus else None
            assigned = assignments.judged(
                pods,
                before=self._promises.value,
                created=created,
                binds_every_pod=binds_every_pod,
                pool=pool,
                machine=Machine.of(topology.cpus),
            )
            holding = {pod.uid: pod.resource_status.cpuset for pod in assigned if pod.resource_status.cpuset}
            # Until the pods are complete, promises of pods that are not known yet stay.
            self._promises.keep(holding if view.node is not None else {**self._promises.value, **holding})
            return assigned

        return self._unchanged.of(
            "assignments",
            (pods, binds_every_pod, by_kubelet, topology, written, system, view.node is not None),
            work,
        )

    def _shared_pool(self, pods: tuple[Pod, ...], kubelet: Kubelet, topology: Topology) -> assignments.SharedPool:
        """CPUs that latency-sensitive pods share, before any promise by Koordinator's annotation."""
        system = self._system_qos
        alone = pools.by_kubelet(kubelet.pod_cpus, pods)
        elsewhere = {each.uid for each in alone}
        sharing = (
            pod
            for pod in pods
            if pod.active and not pod.is_best_effort and not pod.resource_status.cpuset and pod.uid not in elsewhere
        )
        listed = self._reservation.reserved_cpus if self._reservation else None
        return assignments.SharedPool(
            cpus=topology.cpuset - system.exclusive_cpus - (listed or cpuset.EMPTY),
            reserved=min(reservation.cpu_count(self._reservation), len(topology.cpus)),
            exclusive=cpuset.union([self._crane.exclusive_cpus(pods, kubelet), *(each.cpus for each in alone)]),
            percent=self._pool_floor_percent,
            shared_milli=sum(
                pod.request_milli()
                for pod in sharing
                if not (pod.raw_qos is QoSClass.SYSTEM and system.cpuset) and not (self._crane.on and pod.crane.zones)
            ),
        )

    def _read_annotations(self, notes: Mapping[str, str], owner: str, problems: list[Problem]) -> None:
        with noting(problems):
            self._reservation = nodes.parse_reservation(notes.get(keys.RESERVATION, ""), owner)
        with noting(problems):
            self._system_qos = nodes.parse_system_qos(notes.get(keys.SYSTEM_QOS), owner)
        self._notes = node_notes.parse(notes, owner, last=self._notes, problems=problems)

    def _look_at_crane(
        self, view: ClusterView, pods: tuple[Pod, ...], kubelet: Kubelet, topology: Topology, reserved: CPUSet
    ) -> CraneState:
        """CPUs that are not promised, as others have them alone: those of Koordinator's pods, of kubelet's, and of
        SYSTEM pods."""
        inputs = topology, kubelet.listed_reserved_cpus, kubelet.reserved
        by_kubelet = self._unchanged.of("reserved by kubelet", inputs, lambda: _reserved_by_kubelet(kubelet, topology))
        system = self._system_qos.exclusive_cpus
        pool = None
        if self._crane.on and topology.cpus:
            written = self._unchanged.same("written", self._reservation)
            qos = self._unchanged.same("system QoS", self._system_qos)
            parts = pods, view.kubelet.pod_cpus, topology, written, qos
            pool = self._unchanged.of("pool", parts, lambda: self._shared_pool(pods, view.kubelet, topology))
        return self._crane.look(
            pods,
            lambda: {pod.metadata.uid: pod.metadata.creation_timestamp or "" for pod in view.pods},
            Around(
                complete=view.node is not None,
                kubelet=kubelet,
                topology=topology,
                reserved=cpuset.union([reserved, by_kubelet, system]),
                taken=cpuset.union([self._pinned(pods), *(each.cpus for each in kubelet.pod_cpus), system]),
                pool=pool,
            ),
        )

    def _reserve(
        self, kubelet: Kubelet, pods: tuple[Pod, ...], topology: Topology, promised: CPUSet
    ) -> nodes.ResolvedReservation:
        """CPUs of pods, and those of SYSTEM pods alone, are avoided by a reservation that names none."""
        system = self._system_qos.exclusive_cpus
        same = self._unchanged.same
        unavailable = same(
            "taken", cpuset.union([promised, self._pinned(pods), *(each.cpus for each in kubelet.pod_cpus), system])
        )
        written = same("written", self._reservation)
        return self._unchanged.of(
            "reserved",
            (written, topology, unavailable),
            lambda: reservation.resolve(written=written, cpus=topology.cpus, pinned=unavailable),
        )

    def _pinned(self, pods: tuple[Pod, ...]) -> CPUSet:
        """CPUs promised by annotations."""
        return self._unchanged.of("pinned", (pods,), lambda: cpuset.union(cpus for _, cpus in pools.pinned(pods)))

    def _read_slo(
        self, view: ClusterView, labels: Mapping[str, str], notes: Mapping[str, str], taken_at: str, owner: str
    ) -> SLO:
        same = self._unchanged.same
        config, labels, notes = same("config", view.config), same("labels", labels), same("annotations", notes)
        if self._unchanged.changed("slo", (config, labels, notes)) or self._slo is None:
            self._slo = slo_config.effective(
                config,
                taken_at=taken_at,
                resource_version=view.config_version,
                labels=labels,
                annotations=notes,
                previous=self._slo,
                node_owner=owner,
            )
        return self._slo


def _reserved_by_kubelet(kubelet: Kubelet, topology: Topology) -> CPUSet:
    """Kubelet's reservedSystemCPUs; without a list as many CPUs as it reserves."""
    milli = kubelet.reserved_milli
    if kubelet.listed_reserved_cpus or not milli:
        return kubelet.listed_reserved_cpus
    return reserved_by_number(Machine(topology.cpus), -(-milli // 1000))


def _beside(pods: tuple[Pod, ...], crane_cpus: CPUSet) -> tuple[Pod, ...]:
    """The pods, those with assigned CPUs without the ones that other pods have by Crane's annotations since before."""
    if not any(pod.resource_status.cpuset & crane_cpus for pod in pods):
        return pods
    less = ((pod, assignments.without(pod.resource_status, crane_cpus)) for pod in pods)
    return tuple(
        pod if status is pod.resource_status else msgspec.structs.replace(pod, resource_status=status)
        for pod, status in less
    )


def _pod(obj: wire.PodObject, machine: CPUSet | None) -> Pod | Problem:
    """The pod; what is wrong with one that no rule foresaw."""
    (pod,) = isolation.each([obj], lambda one: from_wire(one, machine), _unreadable)
    return pod


def _unreadable(obj: wire.PodObject, why: str) -> Pod | Problem:
    name = f"pod/{obj.metadata.namespace}/{obj.metadata.name}"
    return Problem(name, "pod", "", why, "report it; this pod is left alone, the others are judged")


def _not_honoured(pod: Pod) -> Problem:
    status = pod.resource_status
    place = f"keeps CPUs {status.cpuset}" if status.cpuset else "runs in its shared pool"
    do = f"let the scheduler assign CPUs; the pod {place}"
    return Problem(f"pod/{pod.key}", keys.RESOURCE_STATUS, str(status.refused)[:80], status.why, do)
