"""The node at one instant: everything a rule may look at, and nothing else.

Groups are named by their path below the cgroup root (`kubepods/besteffort/pod…`), the same on v1 and v2. CPU use is in
millicores, memory in bytes, time in seconds of a monotonic clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from koordlite.model.blocks import Blocks
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem
from koordlite.model.node import Node, ResolvedReservation, SystemQoS
from koordlite.model.node_notes import NodeNotes
from koordlite.model.nrt import CPUBasicInfo, Device
from koordlite.model.pod.pod import Pod
from koordlite.model.pressure import Pressure
from koordlite.model.slo.settings import SLO
from koordlite.model.status.watch import WatchState
from koordlite.model.topology import Topology
from koordlite.model.wire.objects import Zone, ZoneResource
from koordlite.resctrl.values import Resctrl


@dataclasses.dataclass(frozen=True, slots=True)
class Cgroup:
    """Present values of one cgroup; None where the file is absent or could not be read."""

    cpuset: CPUSet | None = None
    """`cpuset.cpus` as configured; on v2 empty means inherited."""
    effective: CPUSet | None = None
    """CPUs it may really use; on v1 the same as `cpuset`."""
    quota_us: int | None = None
    """CPU time per period, -1 unlimited."""
    period_us: int = 100_000
    values: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Other `CgroupField`s some strategy asked to see (`reads`), in the units of `CgroupField`; a file this kernel
    does not have is missing here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a pod lives: its own group and its containers' groups by container name."""

    group: str
    containers: Mapping[str, str]
    sandboxes: tuple[str, ...] = ()
    """Child groups that belong to no known container: the pause container."""


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """CPU in millicores and memory (without page cache) in bytes."""

    cpu: int
    memory: int


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Who used what; None where there is no sample yet or the last one is too old."""

    node: Use | None
    pods: Mapping[str, Use]
    """By pod uid; a pod's first sample gives no usage, so a missing uid is normal."""
    host_apps: Mapping[str, Use]
    """By application name."""
    best_effort_cpu: int | None = None
    """CPU of the whole besteffort group."""
    best_effort_request: int | None = None
    """batch-cpu requested by active BE pods, in millicores."""
    best_effort_limit: int | None = None
    """CPU the besteffort group may use, by its set and its quota, in millicores."""
    containers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """CPU of containers in millicores, by group; of the pods for which a strategy asks (`throttling`), and only of the
    last sample."""
    throttled: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Part of its periods in which a container was throttled, 0 to 1, by group; as `containers`."""
    samples: int = 1
    """How many samples the mean is over; 1 for the last sample."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Names of kubelet's groups on this machine."""

    version: int
    """1 or 2."""
    driver: str
    """`cgroupfs` or `systemd`."""
    kubepods: str
    burstable: str
    besteffort: str


@dataclasses.dataclass(frozen=True, slots=True)
class PodCPUs:
    """CPUs kubelet's static CPU manager gave to a pod exclusively."""

    uid: str
    cpus: CPUSet
    containers: Mapping[str, CPUSet] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Kubelet:
    """What kubelet was configured to do and what it has assigned."""

    cpu_manager_policy: str = ""
    """none | static, empty when unknown."""
    cpu_manager_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    topology_manager_policy: str = ""
    topology_manager_scope: str = ""
    reserved_cpus: CPUSet = EMPTY
    pod_cpus: tuple[PodCPUs, ...] = ()
    devices: Mapping[tuple[str, str], tuple[Device, ...]] = dataclasses.field(default_factory=dict)
    """Devices kubelet gave to containers, by pod uid and container name."""
    memory_nodes: Mapping[tuple[str, str], tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """NUMA nodes of which kubelet's static memory manager promised memory, by pod uid and container name."""


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Where a container may take memory from, and where it has it."""

    mems: CPUSet
    """NUMA nodes, as `cpuset.mems.effective` lists them; empty where the kernel does not say."""
    used: Mapping[int, int]
    """Bytes in use by NUMA node."""


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """What the cluster holds of ours."""

    node_resources: Mapping[str, int | None]
    """Allocatable of our extended resources; None when the key is absent."""
    topology: Mapping[str, str]
    """Annotations of the node's NodeResourceTopology."""
    zones: tuple[Zone, ...] = ()
    topology_policies: tuple[str, ...] = ()
    topology_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Labels of the NodeResourceTopology."""
    last_sync: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """When we last wrote amounts of the node and its zones in this run, by `Change.place`."""

    def zone_resource(self, zone: str, resource: str) -> ZoneResource | None:
        """What a zone holds of a resource; None without either."""
        held = (r for z in self.zones if z.name == zone for r in z.resources or () if r.name == resource)
        return next(held, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """A process of a container and its place in the queue of the OOM killer."""

    pid: int
    start_time: int
    """Clock ticks since boot: tells it from a later process with the same number."""
    oom_score_adj: int


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What stood in a cgroup file before our first write, and which strategy wrote it."""

    value: CPUSet | int
    strategy: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One picture, judged by every strategy alike."""

    time: float
    """Seconds of the monotonic clock."""
    taken_at: str
    """The same moment for people: RFC 3339, UTC."""
    node: Node | None
    slo: SLO
    topology: Topology
    reserved: ResolvedReservation
    system_qos: SystemQoS
    kubelet: Kubelet
    layout: Layout
    pods: tuple[Pod, ...]
    places: Mapping[str, Place]
    """By pod uid."""
    cgroups: Mapping[str, Cgroup]
    """By group name: kubepods, the QoS groups, every pod and container."""
    usage: Usage
    """The last sample."""
    average: Usage
    """Means over `slo.colocation.metric_aggregate_duration_seconds`, or as much of it as there is."""
    resctrl: Resctrl
    published: Published
    notes: NodeNotes = dataclasses.field(default_factory=NodeNotes)
    """What others wrote on the Node about its resources."""
    cpu_info: CPUBasicInfo = dataclasses.field(default_factory=CPUBasicInfo)
    """Model of the CPUs, and what is switched on in them."""
    host_groups: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Group by name of host application; whether it is there, `cgroups` says."""
    ours: frozenset[str] = frozenset()
    """Places (`Change.place`) that hold a value of ours: they are in the undo journal."""
    found: Mapping[str, Found] = dataclasses.field(default_factory=dict)
    """What stood in those places that are cgroup files before our first write."""
    windows: Mapping[int, Usage] = dataclasses.field(default_factory=dict)
    """Means over the last so many seconds, for the lengths that strategies ask for (`windows`); a window that has no
    sample is missing."""
    percentiles: Mapping[tuple[int, int], Usage] = dataclasses.field(default_factory=dict)
    """By (seconds, percent) that strategies ask for (`percentiles`): what so many percent of each subject's samples in
    that time do not exceed."""
    node_percentiles: Mapping[int, Use] = dataclasses.field(default_factory=dict)
    """Percent → what so many percent of the node's samples do not exceed, over the time of `average`."""
    pressure: Mapping[str, Mapping[str, Pressure]] = dataclasses.field(default_factory=dict)
    """By group (empty: the machine), then `cpu`, `memory`, `io`; missing where the kernel does not say. Of pods it may
    be some seconds old."""
    numa_memory: Mapping[str, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    """Bytes in use by NUMA node, of the machine (empty) and of the group of best effort; some seconds old."""
    memory_places: Mapping[str, MemoryPlace] = dataclasses.field(default_factory=dict)
    """By group of containers with a promise; some seconds old."""
    remembered: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    """By strategy name: the last `Decision.remember`."""
    evicted: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Pods, by uid, whose eviction the cluster accepted in this run, and when, by `time`: they take a while to go."""
    asked_evictions: frozenset[str] = frozenset()
    """Pods, by uid, whose eviction a strategy that was asked before has decided on this very picture."""
    refused_writes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Places (`Change.place`) whose last write the kernel or the cluster refused → the refusal."""
    page_bytes: int = 4096
    """A page of memory: the kernel keeps limits in whole ones."""
    interval_seconds: float = 1.0
    """How often pictures are taken."""
    refused_evictions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Pods, by uid, whose eviction was refused of late (a disruption budget) → the refusal; not to be asked for again
    while they are in here."""
    system: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Kernel settings by name (`vm.min_free_kbytes`) a strategy asked to see; missing where the kernel has none."""
    oom_scores: Mapping[str, tuple[Process, ...]] = dataclasses.field(default_factory=dict)
    """Processes of containers by group, while a strategy asks for `oom_score_adj`."""
    blocks: Blocks = dataclasses.field(default_factory=Blocks)
    """Disks that settings name, and what groups have of them, while a strategy asks for `blocks`."""
    ages: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Seconds since each input was last confirmed: node, pods, config, usage."""
    watches: tuple[WatchState, ...] = ()
    """How the inputs from an API server are kept up to date; empty with a folder of manifests."""
    problems: tuple[Problem, ...] = ()
    """What was wrong with the inputs, and what holds instead."""


def with_promise(pods: Iterable[Pod], kubelet: Kubelet) -> frozenset[str]:
    """Uids of the pods to which CPUs or NUMA nodes were promised: by the scheduler in an annotation, or by kubelet."""
    told = (pod.uid for pod in pods if pod.resource_status.cpuset or pod.resource_status.numa_nodes)
    return frozenset([*told, *(held.uid for held in kubelet.pod_cpus), *(uid for uid, _ in kubelet.memory_nodes)])
