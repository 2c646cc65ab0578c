"""The node at one instant: everything a rule may use, and nothing else.

Groups are named by their path below the cgroup root (`kubepods/besteffort/pod…`), the same on v1 and v2. CPU use is in
millicores, memory in bytes, time in seconds of a monotonic clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeGuard, TypeVar

from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import Problem
from koordlite.model.node import Node, ResolvedReservation, SystemQoS
from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.picture.affinity import AffinityState
from koordlite.model.picture.blocks import Blocks
from koordlite.model.picture.crane import CraneState
from koordlite.model.picture.groups import (
    Cgroup,
    CoreSched,
    Layout,
    MemoryCharge,
    MemoryPlace,
    Original,
    PodGroups,
    Process,
)
from koordlite.model.picture.irqs import IRQ
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import (
    CPUWait,
    HardwareCounts,
    NodeWindow,
    NumaUse,
    Objective,
    Prediction,
    Pressure,
    Usage,
    Use,
)
from koordlite.model.place import Place
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Memory
from koordlite.model.slo.settings import SLO
from koordlite.model.status import WatchState
from koordlite.model.topology import Topology
from koordlite.resctrl.values import Resctrl

M = TypeVar("M", bound=Memory)
_MOST_NAMES = 20
OF_OUR_REPORTS = frozenset({"placement", "topology write"})
"""Ages of what the agent itself has written, and no inputs: that they grow is no fault."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One picture, judged by all strategies."""

    time: float
    """Seconds of the monotonic clock."""
    taken_at: str
    """The same moment for people: RFC 3339, UTC."""
    woken: bool = False
    """Taken between two ticks: CPU use is that of the last hundredths of a second, the rest that of the last tick."""
    node: Node | None
    slo: SLO
    topology: Topology
    reserved: ResolvedReservation
    system_qos: SystemQoS
    kubelet: Kubelet
    layout: Layout
    pods: tuple[Pod, ...]
    places: Mapping[str, PodGroups]
    """Groups of pods by uid."""
    cgroups: Mapping[str, Cgroup]
    """States by group name: kubepods, the QoS groups, every pod and container."""
    usage: Usage
    """The last sample."""
    average: Usage
    """Means over `slo.colocation.metric_aggregate_duration_seconds`, or as much of it as there is."""
    use_window_left_seconds: float = 0.0
    """Time until this run has measured for the whole time of `average`; 0 from then on."""
    resctrl: Resctrl
    published: Published
    notes: NodeNotes = dataclasses.field(default_factory=NodeNotes)
    """Notes of others on the Node about its resources."""
    cpu_info: CPUBasicInfo = dataclasses.field(default_factory=CPUBasicInfo)
    """Model of the CPUs, and what is switched on in them."""
    host_groups: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Group by name of host application; whether it is there, `cgroups` says."""
    ours: frozenset[Place] = frozenset()
    """Places (`Change.place`) that hold a value of ours: they are in the undo journal."""
    found: Mapping[Place, Original] = dataclasses.field(default_factory=dict)
    """Original values of those places that are cgroup files."""
    windows: Mapping[int, Usage] = dataclasses.field(default_factory=dict)
    """Means over the last so many seconds, for the lengths that strategies ask for (`windows`); a window that has no
    sample is missing."""
    percentiles: Mapping[tuple[int, int], Usage] = dataclasses.field(default_factory=dict)
    """Percentiles of each subject's samples, by the (seconds, percent) that strategies ask for (`percentiles`)."""
    node_percentiles: Mapping[int, Use] = dataclasses.field(default_factory=dict)
    """Percent → what so many percent of the node's samples do not exceed, over the time of `average`."""
    node_windows: tuple[NodeWindow, ...] = ()
    """Use over the durations of `metricAggregatePolicy`, some seconds old; empty unless a NodeMetric is reported."""
    numa_use: Mapping[int, NumaUse] = dataclasses.field(default_factory=dict)
    """Use by NUMA node, over the time of `average`, some seconds old; empty unless a NodeMetric is reported, or
    `metrics.numaSystemUsage` asks for it."""
    prediction: Prediction | None = None
    """Upper bound of what pods will need; None unless a strategy predicts (`midAllocatable.predict`)."""
    pressure: Mapping[str, Mapping[str, Pressure]] = dataclasses.field(default_factory=dict)
    """Pressure by group (empty: the machine), then `cpu`, `memory`, `io`; missing where the kernel does not say. That
    of pods may be some seconds old; of containers only with `metrics.containerPsi`."""
    cpu_waits: Mapping[str, CPUWait] = dataclasses.field(default_factory=dict)
    """Waits by pod uid, of those for which a strategy asks (`cpu_waits`), some seconds old; missing where the kernel
    does not count, and for a pod that has been seen once only."""
    objectives: Mapping[str, Objective] = dataclasses.field(default_factory=dict)
    """Objectives by uid, of the pods that name one (`suppress.koordlite.io/objective`)."""
    hardware_counts: Mapping[str, HardwareCounts] = dataclasses.field(default_factory=dict)
    """Counts by group of containers, of the last window in which each was counted (`metrics.containerCpi`)."""
    numa_memory: Mapping[str, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    """Bytes in use by NUMA node, of the machine (empty) and of the group of best effort; some seconds old, of the
    machine of this instant while a strategy asks for `memory_places`."""
    memory_places: Mapping[str, MemoryPlace] = dataclasses.field(default_factory=dict)
    """Places by group of containers with a promise, of all while a strategy asks for `memory_places`; some seconds
    old."""
    memory_held: Mapping[str, MemoryCharge] = dataclasses.field(default_factory=dict)
    """Charges by group, of those for which a strategy asks (`memory_held`); at this instant while a strategy enforces,
    else some seconds old."""
    remembered: Mapping[str, Memory] = dataclasses.field(default_factory=dict)
    """Last `Decision.remember` by name of the strategy."""
    evicted: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Pods, by uid, whose eviction the cluster accepted in this run, and when, by `time`: they take a while to go."""
    refused_writes: Mapping[Place, str] = dataclasses.field(default_factory=dict)
    """Places (`Change.place`) whose last write the kernel or the cluster refused → the refusal."""
    page_bytes: int = 4096
    """A page of memory: the kernel keeps limits in whole ones."""
    swap_bytes: int = 0
    """Swap of the machine, while a strategy asks for `swap`; 0 where the kernel has none."""
    interval_seconds: float = 1.0
    """Time between two pictures."""
    refused_evictions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Pods, by uid, whose eviction was refused of late (a disruption budget) → the refusal; not to be asked for again
    while they are in here."""
    system: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Kernel settings by name (`vm.min_free_kbytes`) a strategy asked to see; missing where the kernel has none."""
    crane: CraneState = dataclasses.field(default_factory=CraneState)
    """CPUs promised by Crane's annotations."""
    affinity: AffinityState = dataclasses.field(default_factory=AffinityState)
    """Pods that talk to each other."""
    oom_scores: Mapping[str, tuple[Process, ...]] = dataclasses.field(default_factory=dict)
    """Processes of containers by group, while a strategy asks for `oom_score_adj`."""
    irqs: Mapping[str, IRQ] = dataclasses.field(default_factory=dict)
    """Interrupts by number, and the default of new ones, while a strategy asks for `irqs`."""
    core_sched: CoreSched = dataclasses.field(default_factory=CoreSched)
    """Cookies of processes in containers, while a strategy asks for `core_sched`."""
    blocks: Blocks = dataclasses.field(default_factory=Blocks)
    """Disks that settings name, and what groups have of them, while a strategy asks for `blocks`."""
    ages: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Seconds since each input was last confirmed: node, pods, config, usage."""
    watches: tuple[WatchState, ...] = ()
    """State of the watches of an API server; empty with a folder of manifests."""
    problems: tuple[Problem, ...] = ()
    """Mistakes of the inputs, and what holds instead."""


class NodeSnapshot(Snapshot):
    """A picture with a Node: what a rule gets that cannot judge without one. Nothing makes one; see `has_node`."""

    __slots__ = ()
    node: Node


def has_node(snapshot: Snapshot) -> TypeGuard[NodeSnapshot]:
    """Tell whether the picture has a Node."""
    return snapshot.node is not None


def pod_called(snapshot: Snapshot, name: str) -> Pod:
    """The pod NAMESPACE/NAME or NAME; ValueError when there is not exactly one."""
    pods = [pod for pod in snapshot.pods if name in (pod.key, pod.name)]
    if len(pods) > 1:
        raise ValueError(f"{len(pods)} pods here are called {name!r}: {', '.join(pod.key for pod in pods)}")
    if not pods:
        raise ValueError(f"there is no pod {name!r} on this node; its pods: {pod_names(snapshot)}")
    return pods[0]


def pod_names(snapshot: Snapshot) -> str:
    """The pods of the node for a message: more names do not help to find a mistyped one."""
    keys = sorted(pod.key for pod in snapshot.pods)
    more = f" and {len(keys) - _MOST_NAMES} more" if len(keys) > _MOST_NAMES else ""
    return f"{', '.join(keys[:_MOST_NAMES])}{more}" if keys else "none"


def container_cpus(snapshot: Snapshot, uid: str) -> CPUSet:
    """CPUs that the containers of a pod may use; empty where their groups do not say."""
    place = snapshot.places.get(uid)
    groups = [snapshot.cgroups.get(group) for group in place.containers.values()] if place else []
    return cpuset.union(group.effective for group in groups if group is not None and group.effective)


def pods_with_groups(snapshot: Snapshot) -> Iterator[tuple[Pod, PodGroups]]:
    """Pods that have groups, and their groups."""
    for pod in snapshot.pods:
        if (place := snapshot.places.get(pod.uid)) is not None:
            yield pod, place


def gives_way(snapshot: Snapshot, pod: Pod) -> bool:
    """Tell whether a limit on the besteffort group holds this pod: it lives there, or kubelet will put it there."""
    place = snapshot.places.get(pod.uid)
    if place is None:
        return pod.kube_qos is KubeQoS.BEST_EFFORT
    return place.group.startswith(f"{snapshot.layout.besteffort}/")


def recalled(snapshot: Snapshot, strategy: str, kind: type[M]) -> M:
    """Memory that the strategy left (`Decision.remember`); at first an empty memory of this kind."""
    memory = snapshot.remembered.get(strategy)
    return memory if isinstance(memory, kind) else kind()
