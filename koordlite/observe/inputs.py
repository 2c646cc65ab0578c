"""What the cluster says, as model values; of what cannot be read, the last good value stays and the problem is said."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import TypeVar

from koordlite.formulas import pools, reservation
from koordlite.model import cpuset, keys, node_notes
from koordlite.model import node as nodes
from koordlite.model.errors import InputError, Problem
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.pod.pod_reader import from_wire
from koordlite.model.pod.values import Pod
from koordlite.model.slo import config as slo_config
from koordlite.model.slo.settings import SLO
from koordlite.model.topology import Topology
from koordlite.model.wire import objects as wire
from koordlite.ports import ClusterView

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Everything that comes from the cluster, ready for the picture."""

    node: nodes.Node | None
    notes: node_notes.NodeNotes
    pods: tuple[Pod, ...]
    slo: SLO
    reserved: nodes.ResolvedReservation
    system_qos: nodes.SystemQoS
    kubelet: Kubelet
    problems: tuple[Problem, ...]


class Inputs:
    """Turns views into values. Unchanged objects are not parsed again."""

    def __init__(self, earlier: SLO | None = None) -> None:
        """`earlier` are settings of an earlier run, whose good documents count until there are newer ones."""
        self._node: tuple[wire.NodeObject, nodes.Node] | None = None
        self._pods: dict[int, tuple[wire.PodObject, Pod]] = {}
        self._parsed: tuple[Pod, ...] = ()
        self._slo: tuple[object, SLO] | None = (None, earlier) if earlier else None
        self._reservation: nodes.Reservation | None = None
        self._system_qos = nodes.SystemQoS()
        self._notes = node_notes.NodeNotes()
        self._reserved: tuple[object, nodes.ResolvedReservation] | None = None

    def read(self, view: ClusterView, topology: Topology, *, taken_at: str = "") -> Known:
        """The values behind `view` on this machine; `taken_at` is the present time, RFC 3339."""
        problems = list(view.problems)
        this_node, pods = self._read_node(view.node), self._read_pods(view.pods)
        kubelet = dataclasses.replace(view.kubelet, pod_cpus=pools.kept_by_kubelet(view.kubelet.pod_cpus, pods))
        notes = this_node.annotations if this_node else {}
        config = self._read_slo(view, this_node, taken_at)
        self._read_annotations(notes, f"node/{this_node.name}" if this_node else "node", problems)
        reserved = self._reserve(kubelet, pods, topology)
        if reserved.fallback:
            problems.append(_fallback(this_node, reserved))
        elif topology.cpus and len(reserved.cpus) == len(topology.cpus):
            problems.append(_nothing_left(this_node, len(topology.cpus)))
        problems += [*(this_node.problems if this_node else ()), *config.problems]
        problems += [problem for p in pods for problem in p.problems]
        return Known(
            node=this_node,
            notes=self._notes,
            pods=pods,
            slo=config,
            reserved=reserved,
            system_qos=self._system_qos,
            kubelet=kubelet,
            problems=tuple(problems),
        )

    def _read_annotations(self, notes: Mapping[str, str], owner: str, problems: list[Problem]) -> None:
        reservation_text, system_text = notes.get(keys.RESERVATION, ""), notes.get(keys.SYSTEM_QOS)
        self._reservation = _last_good(
            lambda: nodes.parse_reservation(reservation_text, owner), self._reservation, problems
        )
        self._system_qos = _last_good(lambda: nodes.parse_system_qos(system_text, owner), self._system_qos, problems)
        self._notes = node_notes.parse(notes, owner, last=self._notes, problems=problems)

    def _reserve(self, kubelet: Kubelet, pods: tuple[Pod, ...], topology: Topology) -> nodes.ResolvedReservation:
        """CPUs of pods, and those of SYSTEM pods alone, are avoided by a reservation that names none."""
        pinned = [held for _, held in pools.pinned(pods)]
        system = self._system_qos.exclusive_cpus
        taken = cpuset.union([*pinned, *(held.cpus for held in kubelet.pod_cpus), system])
        key = (self._reservation, topology, taken)
        if self._reserved is None or self._reserved[0] != key:
            self._reserved = key, reservation.resolve(written=self._reservation, cpus=topology.cpus, pinned=taken)
        return self._reserved[1]

    def _read_node(self, obj: wire.NodeObject | None) -> nodes.Node | None:
        if obj is None:
            return None
        if self._node is None or self._node[0] is not obj:
            self._node = obj, nodes.from_wire(obj)
        return self._node[1]

    def _read_pods(self, objects: tuple[wire.PodObject, ...]) -> tuple[Pod, ...]:
        # Keyed by identity: the object is kept beside its value, so that its id is not given to another one.
        self._pods = {
            id(obj): held if (held := self._pods.get(id(obj))) and held[0] is obj else (obj, from_wire(obj))
            for obj in objects
        }
        parsed = tuple(pod for _, pod in self._pods.values())
        if len(parsed) != len(self._parsed) or not all(map(operator.is_, parsed, self._parsed)):
            # The same tuple as long as nothing changes: what others derive of all pods then holds as well.
            self._parsed = parsed
        return self._parsed

    def _read_slo(self, view: ClusterView, this_node: nodes.Node | None, taken_at: str) -> SLO:
        labels, notes = (this_node.labels, this_node.annotations) if this_node else ({}, {})
        key = (view.config, labels, notes)
        if self._slo is None or self._slo[0] != key:
            held = slo_config.effective(
                view.config,
                taken_at=taken_at,
                resource_version=view.config_version,
                labels=labels,
                annotations=notes,
                previous=self._slo[1] if self._slo else None,
                node_owner=f"node/{this_node.name}" if this_node else "node",
            )
            self._slo = key, held
        return self._slo[1]


def _last_good(read: Callable[[], T], last: T, problems: list[Problem]) -> T:
    try:
        return read()
    except InputError as error:
        problems.extend(error.problems)
        return last


def _fallback(this_node: nodes.Node | None, reserved: nodes.ResolvedReservation) -> Problem:
    return _wrong(this_node, reserved.fallback, "correct the annotation; until then the fallback holds")


def _nothing_left(this_node: nodes.Node | None, count: int) -> Problem:
    why = f"it reserves all {count} CPUs of the machine, so none is left for pods"
    return _wrong(this_node, why, "leave them some; until then pods stay on the CPUs they have")


def _wrong(this_node: nodes.Node | None, why: str, do: str) -> Problem:
    text = this_node.annotations.get(keys.RESERVATION, "") if this_node else ""
    return Problem(f"node/{this_node.name if this_node else ''}", keys.RESERVATION, text, why, do)
