"""Publications of the agent on the node's NodeResourceTopology, as values with their JSON: `encode…` and `decode_*`.

Keys are in `keys`. Shapes and field order are Koordinator's ("NodeResourceTopology report by koordlet"); `Placement` is
ours, because no other program publishes where containers really run. JSON is compact and escaped as Go prints it. Every
`decode_*` raises InputError that names the object, the annotation and the value.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.errors import refusing
from koordlite.model.node import Reservation, ResolvedReservation, SystemQoS
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import numatopology
from koordlite.model.wire.numatopology import NumatopologyObject
from koordlite.model.wire.objects import NRTObject, ObjectMeta

LONGEST_PLACEMENT = 128 * 1024
"""Bytes. All annotations of an object together may have 256 KiB. Source: Kubernetes `TotalAnnotationSizeLimitB`."""
_MEMORY, _ALWAYS_FITTING = 200, 20
"""Bytes that a container's memory by node may take; so many containers fit whatever their names and sets are."""
MAX_NUMA_NODES = 64
_ZONE = re.compile(r"node-([0-9]{1,9})", re.ASCII)
"""The scheduler's limit on NUMA node ids."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Common settings: immutable, camelCase in JSON, defaults are left out."""


class Device(_Value, frozen=True):
    """A device a container uses, by its id, and its NUMA node (-1: the machine does not say)."""

    id: str
    numa: int = -1


class ContainerPlacement(_Value, frozen=True, omit_defaults=False):
    """One container: what was promised to it, and where it really runs.
    The agent lists containers that have a promise, and containers without one on CPUs where they must not run."""

    namespace: str
    pod: str
    uid: str
    container: str
    source: str = "none"
    """Maker of the promise: `kubelet`, `koordinator`, `crane`, or `none`."""
    exclusive: bool = False
    """The CPUs are promised to this container alone."""
    single_numa: bool = msgspec.field(default=False, name="singleNUMA")
    """All CPUs and memory are promised from one NUMA node."""
    scope: str = "container"
    """`container` or `pod`: what `single_numa` holds for (kubelet's topologyManagerScope)."""
    promised_cpus: CPUSet = msgspec.field(default=EMPTY, name="promisedCPUs")
    promised_nodes: tuple[int, ...] = ()
    cpuset: CPUSet = EMPTY
    """CPUs it may really run on (`cpuset.cpus.effective`)."""
    mems: CPUSet = EMPTY
    """NUMA nodes it may really take memory from (`cpuset.mems.effective`)."""
    cpus_by_numa: dict[int, CPUSet] = msgspec.field(default_factory=dict, name="cpusByNUMA")
    memory_by_numa: dict[int, int] = msgspec.field(default_factory=dict, name="memoryByNUMA")
    """Bytes in use by NUMA node; empty when not measured."""
    devices: tuple[Device, ...] = ()
    fix_failed: bool = False
    """The agent tried to put the container right and the kernel refused: only a move cures it."""


class Placement(_Value, frozen=True, omit_defaults=False):
    """Annotation `placement.koordlite.io/containers`: where containers of one node really run."""

    observed_at: str
    """RFC 3339 time of the reading; readers disregard a placement that is too old."""
    generation: int
    """Grows by one with each change, so that a reader can tell a new placement from an old one."""
    containers: tuple[ContainerPlacement, ...] = ()
    more: int | msgspec.UnsetType = msgspec.UNSET
    """Number of further containers, for which the annotation has no space."""


class Pool(_Value, frozen=True, omit_defaults=False):
    """CPUs of one NUMA node that are shared by the LS, or the BE, containers."""

    socket: int
    node: int
    cpuset: CPUSet | msgspec.UnsetType = msgspec.UNSET
    """Left out of the JSON when every CPU was reserved away."""

    @property
    def cpus(self) -> CPUSet:
        """The CPUs; empty when the pool was emptied."""
        return EMPTY if self.cpuset is msgspec.UNSET else self.cpuset


class CPUBasicInfo(_Value, frozen=True):
    """Annotation `node.koordinator.sh/cpu-basic-info`: what the machine's CPUs are."""

    model: str = msgspec.field(default="", name="cpuModel")
    hyper_threads: bool = msgspec.field(default=False, name="hyperThreadEnabled")
    turbo: bool = msgspec.field(default=False, name="turboEnabled")
    cache_mask: str = msgspec.field(default="", name="catL3CbmMask")
    """All ways of the L3 cache, in hexadecimal; empty without cache allocation."""
    vendor: str = msgspec.field(default="", name="vendorID")


class CPUManagerPolicy(_Value, frozen=True):
    """Annotation `kubelet.koordinator.sh/cpu-manager-policy`: how kubelet's CPU manager was configured."""

    policy: str = ""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    reserved_cpus: CPUSet = msgspec.field(default=EMPTY, name="reservedCPUs")


class PodCPUAlloc(_Value, frozen=True):
    """CPUs one pod holds exclusively; part of annotation `node.koordinator.sh/pod-cpu-allocs`."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: CPUSet = EMPTY
    managed_by_kubelet: bool = False


def pool(socket: int, node: int, cpus: CPUSet) -> Pool:
    """The pool of NUMA node `node`; without CPUs its cpuset is left out, as Koordinator prints it."""
    return Pool(socket=socket, node=node, cpuset=cpus or msgspec.UNSET)


def fitting(containers: tuple[ContainerPlacement, ...]) -> tuple[ContainerPlacement, ...]:
    """The containers for which the annotation has space, in their order: those with the longest entries are left out.
    Bytes in use do not count, since they change all the time."""
    if len(containers) <= _ALWAYS_FITTING:
        return containers
    sizes = [len(encode(msgspec.structs.replace(each, memory_by_numa={}))) + _MEMORY for each in containers]
    if sum(sizes) <= LONGEST_PLACEMENT:
        return containers
    remaining, fitting_at = LONGEST_PLACEMENT, set[int]()
    for size, at in sorted((size, at) for at, size in enumerate(sizes)):
        remaining -= size
        if remaining >= 0:
            fitting_at.add(at)
    return tuple(each for at, each in enumerate(containers) if at in fitting_at)


def decode_placement(text: str, owner: str) -> Placement:
    """The placement that object `owner` carries."""
    placement: Placement = _decode(text, Placement, owner, keys.PLACEMENT)
    return placement


def decode_pools(text: str, owner: str, key: str = keys.LS_SHARED_POOLS) -> tuple[Pool, ...]:
    """The pools in annotation `key` of object `owner`."""
    return _decode(text, tuple[Pool, ...] | None, owner, key) or ()


def encode_cpu_manager_policy(policy: CPUManagerPolicy) -> str:
    """Text of `keys.CPU_MANAGER_POLICY`; `{}` when kubelet was not asked."""
    # msgspec leaves out a default only when it is the very same object.
    return encode(msgspec.structs.replace(policy, reserved_cpus=policy.reserved_cpus or EMPTY))


def encode_pod_cpu_allocs(allocs: Iterable[PodCPUAlloc]) -> str:
    """Text of `keys.POD_CPU_ALLOCS`, sorted by uid; `null` when there are none."""
    return encode(sorted(allocs, key=lambda alloc: alloc.uid) or None)


def encode_cpu_topology(topology: Topology) -> str:
    """Text of `keys.CPU_TOPOLOGY`: every CPU in the order of its id; zeros are written."""
    rows = (_CPURow(id=cpu.id, core=cpu.core, socket=cpu.socket, node=cpu.node) for cpu in topology.cpus)
    return encode(_CPUDetail(detail=tuple(sorted(rows, key=lambda row: row.id))))


def decode_cpu_topology(text: str, owner: str) -> Topology:
    """The machine as object `owner` describes it; memory and distances are not in this annotation and stay empty."""
    rows = _decode(text, _CPUDetail, owner, keys.CPU_TOPOLOGY).detail or ()
    return _topology(CPU(row.id, row.core, row.socket, row.node) for row in rows)


def encode_reservation(reservation: ResolvedReservation) -> str:
    """Text of `keys.RESERVATION` on the NodeResourceTopology: as written on the node, with the concrete CPU list."""
    written = reservation.written or Reservation()
    resources = {name: str(amount) for name, amount in written.resources.items()}
    return encode(
        _Reservation(resources=resources, reserved_cpus=reservation.cpus or EMPTY, apply_policy=written.apply_policy)
    )


def encode_system_qos(system_qos: SystemQoS) -> str:
    """Text of `keys.SYSTEM_QOS` on the NodeResourceTopology; `{}` when nothing is set apart."""
    # Without CPUs the question whose they are does not arise, and Koordinator prints an empty object.
    return encode(
        _SystemQoS(cpuset=system_qos.cpuset or EMPTY, cpuset_exclusive=system_qos.exclusive or not system_qos.cpuset)
    )


_POLICIES = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}
_SCOPES = {"container": "ContainerLevel", "pod": "PodLevel"}


def topology_policy(policy: str, scope: str) -> str:
    """The word of `topologyPolicies` for kubelet's topology manager policy and scope; `None` for anything else.
    Source: `getTopologyPolicy` of Koordinator."""
    has_word = policy in _POLICIES and scope in _SCOPES
    return f"{_POLICIES[policy]}{_SCOPES[scope]}" if has_word else "None"


def kubelet_topology_manager(word: str) -> tuple[str, str]:
    """Kubelet's (policy, scope) behind a word of `topologyPolicies`; ("none", "container") for any other word.
    `SingleNUMANode` alone is the older spelling of the container scope."""
    for policy, stem in _POLICIES.items():
        for scope, suffix in _SCOPES.items():
            if word in (f"{stem}{suffix}", stem):
                return policy, scope
    return "none", "container"


def numa_node_of_zone(name: str) -> int | None:
    """NUMA node id of the zone `node-<id>`, 0 to 63 as the scheduler reads them; None for any other name.
    The id is in the name and never the zone's place in the list."""
    match = _ZONE.fullmatch(name)
    number = int(match[1]) if match else MAX_NUMA_NODES
    return number if number < MAX_NUMA_NODES else None


def is_numa_zone(name: str, zone_type: str) -> bool:
    """A zone of the NUMA reporter: by its type, or by its name. Sockets and racks are zones of others."""
    return zone_type == "Node" or numa_node_of_zone(name) is not None


def by_numa_node(topology: Topology, cpus: CPUSet) -> Mapping[int, CPUSet]:
    """`cpus` split by NUMA node; CPUs the machine does not have are left out."""
    split = ((node.id, node.cpus & cpus) for node in topology.nodes)
    return {node: part for node, part in split if part}


class _Reservation(_Value, frozen=True):
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    reserved_cpus: CPUSet = msgspec.field(default=EMPTY, name="reservedCPUs")
    apply_policy: str = ""


class _SystemQoS(_Value, frozen=True):
    cpuset: CPUSet = EMPTY
    cpuset_exclusive: bool = True


class _CPURow(msgspec.Struct, frozen=True):
    id: int
    core: int
    socket: int
    node: int


class _CPUDetail(msgspec.Struct, frozen=True):
    detail: tuple[_CPURow, ...] | None = None


_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def encode(value: object) -> str:
    """The text of an annotation."""
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=str)
    return msgspec.json.encode(plain).decode().translate(_ESCAPES)


def _from_text(kind: type, text: object) -> CPUSet:
    if kind is CPUSet and isinstance(text, str):
        return _parsed(text)
    raise ValueError(f"{text!r} is not a CPU list like 0-3,8")


_parsed = functools.lru_cache(maxsize=1024)(CPUSet.parse)
"""The same few sets come again and again: in many containers of one node, and on many nodes of one kind."""


def _decode(text: str, shape: Any, owner: str, key: str) -> Any:
    do = "the agent writes this annotation; delete it and it is written again; disregarded until then"
    with refusing(owner, key, text, do):
        return msgspec.json.decode(text, type=shape, dec_hook=_from_text)


def to_nrt(obj: NumatopologyObject) -> NRTObject:
    """Its CPUs, policies and assignments as annotations and attributes. There are no zones: one that listed CPUs alone
    would say that the node has no memory. InputError when a number or a list of CPUs cannot be read."""
    spec = obj.spec
    policies = spec.policies or {}
    cpus = (CPU(int(number), at.core, at.socket, at.numa) for number, at in (spec.cpu_detail or {}).items())
    allocations = (
        PodCPUAlloc(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            cpuset=union(CPUSet.parse((c.allocations or {}).get("cpu", "")) for c in pod.container_allocations or ()),
            managed_by_kubelet=True,
        )
        for pod in spec.pod_allocations or ()
    )
    do = "Volcano's resource-exporter or this agent writes it; the node counts as one without it"
    with refusing(f"numatopology/{obj.metadata.name}", "spec", "", do):
        policy = CPUManagerPolicy(policy=policies.get(numatopology.CPU_POLICY, ""))
        annotations = {
            keys.CPU_TOPOLOGY: encode_cpu_topology(_topology(cpus)),
            keys.CPU_MANAGER_POLICY: encode_cpu_manager_policy(policy),
            keys.POD_CPU_ALLOCS: encode_pod_cpu_allocs(allocations),
        }
    manager = policies.get(numatopology.TOPOLOGY_POLICY)
    return NRTObject(
        metadata=ObjectMeta(name=obj.metadata.name, annotations=annotations),
        attributes=({"name": "topologyManagerPolicy", "value": manager},) if manager else None,
    )


def _topology(listed: Iterable[CPU]) -> Topology:
    cpus = tuple(sorted(listed, key=lambda cpu: cpu.id))
    nodes = sorted({cpu.node for cpu in cpus})
    return Topology(cpus, tuple(NUMANode(n, CPUSet(cpu.id for cpu in cpus if cpu.node == n), 0) for n in nodes))
