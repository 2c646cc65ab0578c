"""The node at one instant: everything a rule may look at, and nothing else.

Groups are named by their path below the cgroup root (`kubepods/besteffort/pod…`), the same on v1 and v2. CPU use is in
millicores, memory in bytes, time in seconds of a monotonic clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem
from koordlite.model.node import Node, ResolvedReservation, SystemQoS
from koordlite.model.node_notes import NodeNotes
from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.pod import Pod
from koordlite.model.slo import SLO
from koordlite.model.topology import Topology
from koordlite.model.wire import Zone, ZoneResource


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


@dataclasses.dataclass(frozen=True, slots=True)
class CacheCapability:
    """What `info/L3` (or L2, L3CODE …) says about cache allocation."""

    cbm_mask: int
    min_cbm_bits: int
    shareable_bits: int = 0
    sparse_masks: bool = False
    num_closids: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class BandwidthCapability:
    """What `info/MB` (or SMBA) says about bandwidth allocation, and the value that means no limit."""

    min_bandwidth: int
    bandwidth_gran: int
    maximum: int
    """100 for percent (Intel, ARM); 2048 or more for AMD, read from the machine."""
    delay_linear: bool = True
    mbps: bool = False
    """Mounted with mba_MBps: values are MB/s."""
    num_closids: int = 0

    @property
    def absolute(self) -> bool:
        """AMD: values are absolute, in 1/8 GB/s, not percent."""
        return self.min_bandwidth == 0 or not self.delay_linear


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlGroup:
    """One control group: values by resource and cache id, and its threads (None when not read this time)."""

    schemata: Mapping[str, Mapping[int, int]]
    tasks: frozenset[int] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Resctrl:
    """The resctrl file system as found. `absent` says why there is none, else it is empty."""

    absent: str = ""
    caches: Mapping[str, CacheCapability] = dataclasses.field(default_factory=dict)
    bandwidths: Mapping[str, BandwidthCapability] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, ResctrlGroup] = dataclasses.field(default_factory=dict)
    """By name; the root group is the empty name."""
    threads: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Threads by cgroup, for containers; empty when not read this time."""


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
    ages: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Seconds since each input was last confirmed: node, pods, config, usage."""
    problems: tuple[Problem, ...] = ()
    """What was wrong with the inputs, and what holds instead."""
