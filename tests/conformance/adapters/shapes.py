"""Vector shapes → model values."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from koordlite.formulas.allocatable import reservation as reservations
from koordlite.formulas.cpu.pools import Pool, Pools
from koordlite.model import node
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod import pod_reader
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, Topology
from koordlite.model.wire import objects
from koordlite.resctrl.values import Resctrl

PoolRow = tuple[int, int, CPUSet]


def cpus(rows: list[Any]) -> list[CPU]:
    """CPUs from `{cpu, core, socket, node}` or `[cpu, core, socket, node]` rows."""
    fields = ("cpu", "core", "socket", "node")
    return [CPU(*(row[f] or 0 for f in fields) if isinstance(row, dict) else row) for row in rows]


def quantities(amounts: dict[str, Any] | None) -> dict[str, Quantity]:
    """Resource list as Kubernetes writes it."""
    return {name: Quantity.parse(text) for name, text in (amounts or {}).items()}


def use(resources: dict[str, Any] | None) -> Use:
    """`{resources: {cpu, memory}}` or the list itself."""
    amounts = quantities((resources or {}).get("resources", resources))
    return Use(amounts["cpu"].milli if "cpu" in amounts else 0, amounts["memory"].value if "memory" in amounts else 0)


def pod_of(given: dict[str, Any]) -> Pod:
    """A pod from trimmed Kubernetes JSON; its uid is `namespace/name` when it has none."""
    read = pod_reader.from_wire(msgspec.convert(given or {}, objects.PodObject, strict=False))
    return read if read.uid else msgspec.structs.replace(read, uid=read.key)


def node_of(given: dict[str, Any] | None) -> node.Node:
    """A node from trimmed Kubernetes JSON."""
    return node.from_wire(msgspec.convert(given or {}, objects.NodeObject))


def reservation(annotations: dict[str, str] | None) -> node.Reservation | None:
    """The reservation annotation; InputError when it cannot be read."""
    return node.parse_reservation((annotations or {}).get("node.koordinator.sh/reservation", ""), "node")


def written_reservation(read: node.Node) -> dict[str, Quantity]:
    """Amounts that the reservation annotation of a node writes."""
    return reservations.written_resources(reservation(dict(read.annotations)))


def cpuset(text: str | None) -> CPUSet:
    """A CPU list."""
    return CPUSet.parse(text or "")


def listed(text: str) -> Any:
    """The set that a list means; a text that is no list stays text."""
    try:
        return CPUSet.parse(text)
    except ValueError:
        return text


def pools(entries: Any) -> Pools:
    """Pools from `[{socket, node, cpuset}]`, without those that have no CPU: they are no pools to us."""
    return tuple(Pool(*row) for row in written_pools(entries) if row[2])


def written_pools(entries: Any) -> list[PoolRow]:
    """(socket, node, CPUs) of `[{socket, node, cpuset}]`, also of those that have no CPU."""
    return [(e["socket"], e["node"], cpuset(e.get("cpuset"))) for e in entries or []]


def pool_rows(found: Pools) -> list[PoolRow]:
    """(socket, node, CPUs) of each pool."""
    return [(pool.socket, pool.node, pool.cpuset) for pool in found]


_NOTHING = Snapshot(
    time=0.0,
    taken_at="",
    node=None,
    slo=SLO(),
    topology=Topology((), ()),
    reserved=node.ResolvedReservation(),
    system_qos=node.SystemQoS(),
    kubelet=Kubelet(),
    layout=Layout(1, "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort"),
    pods=(),
    places={},
    cgroups={},
    usage=Usage(None, {}, {}),
    average=Usage(None, {}, {}),
    resctrl=Resctrl(absent="not asked for"),
    published=Published({}, {}),
)


def snapshot(**known: Any) -> Snapshot:
    """A picture of which nothing but this is known."""
    return dataclasses.replace(_NOTHING, **known)
