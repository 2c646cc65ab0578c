"""An answer of a strategy, and the changes it asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from koordlite.model.cpuset import CPUSet
from koordlite.model.wire.objects import Zone, ZoneResource

Verdict = Literal["set", "shrink", "grow", "hold", "release", "evict", "skip", "refuse"]
"""set: a value; shrink/grow: a limit tighter/looser; hold: nothing to do; release: give back; evict: pods have to go;
skip: cannot judge, with the reason; refuse: the input is wrong, the last good state stays."""

CgroupField = Literal[
    "cpuset.cpus",
    "cpu.quota",
    "cpu.shares",
    "cpu.burst",
    "cpu.idle",
    "cpu.bvt_warp_ns",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.wmark_ratio",
    "memory.wmark_scale_factor",
    "memory.wmark_min_adj",
    "memory.priority",
    "memory.use_priority_oom",
    "memory.oom.group",
    "memory.pagecache_limit.enable",
    "memory.pagecache_limit.size",
    "memory.pagecache_limit.sync",
]
"""Logical cgroup values, the same for v1 and v2: a CPUSet; µs of CPU per period (-1 unlimited); shares as v1 counts
them; µs of burst; bytes (-1 unlimited); the numbers of kernel extensions as the kernel takes them."""


@dataclasses.dataclass(frozen=True, slots=True)
class CgroupChange:
    """Give `field` of the cgroup `group` (path below the cgroup root, `kubepods/besteffort`) the `value`."""

    group: str
    field: CgroupField
    value: CPUSet | int
    gives_back: bool = False
    """What was found, or what its owner wants, stands there again: from then on the place is not ours any more."""

    @property
    def place(self) -> str:
        """What is changed, for messages and for finding two writers of one file."""
        return f"{self.group}/{self.field}"


BlockField = Literal[
    "io.read_bps", "io.write_bps", "io.read_iops", "io.write_iops", "io.weight", "io.cost.model", "io.cost.qos"
]
"""What a group has of one disk, the same for v1 and v2: bytes or operations a second, or `max`; a weight, or
`default`; for the root group the cost model and the latency targets, as the kernel writes them."""


@dataclasses.dataclass(frozen=True, slots=True)
class BlockChange:
    """Give `field` of the cgroup `group` the `value` for the disk `device` (`MAJOR:MINOR`)."""

    group: str
    device: str
    field: BlockField
    value: str | None
    """None: what was found before us."""
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> str:
        """What is changed."""
        return f"{BLOCK}{self.group}/{self.device}/{self.field}"


BLOCK = "io:"
"""How places of disks begin. No cgroup is called so."""


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlMountChange:
    """Mount the resctrl file system where it belongs, without options."""

    @property
    def place(self) -> str:
        """What is changed."""
        return "resctrl/mount"


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlGroupChange:
    """Make the group `group` if it is absent: a control group, or `CONTROL/mon_groups/NAME` for monitoring."""

    group: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}"


@dataclasses.dataclass(frozen=True, slots=True)
class SchemataChange:
    """Give `resource` (L3, L3CODE, L3DATA, L2, MB, SMBA) of resctrl group `group` these values by cache id."""

    group: str
    resource: str
    values: Mapping[int, int]

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/{self.resource}"


@dataclasses.dataclass(frozen=True, slots=True)
class TasksChange:
    """Move these threads into resctrl group `group` (empty: the root group)."""

    group: str
    tids: tuple[int, ...]
    cgroups: tuple[str, ...] = ()
    """Where they were found: threads that begin there while the others are moved follow."""

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/tasks"


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlReturn:
    """Undo what we did to resctrl group `group`: threads to where they were found, values as found, and the group is
    removed if we made it."""

    group: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/return"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeResourceChange:
    """Give the extended resource `resource` of the Node this amount in capacity and allocatable; None removes it."""

    resource: str
    value: int | None

    @property
    def place(self) -> str:
        """What is changed."""
        return f"node/{self.resource}"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeAnnotationChange:
    """Give the annotation `key` of the Node the text `value`; None removes it."""

    key: str
    value: str | None

    @property
    def place(self) -> str:
        """What is changed."""
        return f"node/annotations/{self.key}"


@dataclasses.dataclass(frozen=True, slots=True)
class TopologyChange:
    """Give the annotation `key` of the node's NodeResourceTopology the JSON text `value`."""

    key: str
    value: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"noderesourcetopology/{self.key}"


@dataclasses.dataclass(frozen=True, slots=True)
class TopologyLabelChange:
    """Give the label `key` of the node's NodeResourceTopology the `value`; None removes it."""

    key: str
    value: str | None

    @property
    def place(self) -> str:
        """What is changed."""
        return f"noderesourcetopology/label/{self.key}"


@dataclasses.dataclass(frozen=True, slots=True)
class ZonesChange:
    """Give the node's NodeResourceTopology these zones and policies; resources of other owners in a zone stay."""

    zones: tuple[Zone, ...]
    policies: tuple[str, ...]

    @property
    def place(self) -> str:
        """What is changed."""
        return "noderesourcetopology/zones"


@dataclasses.dataclass(frozen=True, slots=True)
class ZoneResourceChange:
    """Give one zone of the node's NodeResourceTopology this amount of `resource`; None removes it.

    A zone that is not there stays away: `ZonesChange` makes zones.
    """

    zone: str
    resource: str
    value: ZoneResource | None

    @property
    def place(self) -> str:
        """What is changed."""
        return f"noderesourcetopology/zones/{self.zone}/{self.resource}"


@dataclasses.dataclass(frozen=True, slots=True)
class EvictPod:
    """Ask the cluster's Eviction API to evict one pod. What became of it, `Snapshot.evicted` says afterwards."""

    namespace: str
    name: str
    uid: str
    reason: str
    """One sentence for people: it becomes the event's message."""

    @property
    def place(self) -> str:
        """What is changed."""
        return f"pod/{self.namespace}/{self.name}/{self.uid}"


@dataclasses.dataclass(frozen=True, slots=True)
class SystemFileChange:
    """Give the kernel setting `name` (`vm.min_free_kbytes`, a key of `host.system_files`) the text `value`."""

    name: str
    value: str
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> str:
        """What is changed."""
        return f"system/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class OOMScoreChange:
    """Give the process `pid`, started at `start_time` (clock ticks since boot), this `oom_score_adj`."""

    pid: int
    start_time: int
    value: int
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> str:
        """What is changed; the start tells a process from a later one with the same number."""
        return f"oom_score_adj/{self.pid}/{self.start_time}"


NodeChange = NodeResourceChange | NodeAnnotationChange
ClusterChange = NodeChange | TopologyChange | TopologyLabelChange | ZonesChange | ZoneResourceChange
ResctrlChange = ResctrlMountChange | ResctrlGroupChange | SchemataChange | TasksChange | ResctrlReturn
KernelChange = CgroupChange | BlockChange | ResctrlChange | SystemFileChange | OOMScoreChange
Change = KernelChange | ClusterChange | EvictPod

Evidence = Mapping[str, int | float | str]


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What a strategy answers for one subject it owns. It always answers: silence is not an answer."""

    subject: str
    """`node`, `besteffort`, `pod/ns/name`, `resctrl/BE`."""
    verdict: Verdict
    reason: str
    """A stable CamelCase word; docs/decisions.md explains each."""
    evidence: Evidence = dataclasses.field(default_factory=dict)
    """The numbers, in the formula's own names; units are in the names or in docs/formulas.md."""
    changes: tuple[Change, ...] = ()
    strategy: str = ""
    """Filled in by `strategies.decide_all`."""
    remember: Mapping[str, float] | None = None
    """What this strategy wants to find in `Snapshot.remembered` next time; None leaves what is there. The last
    decision of a strategy that says something wins."""
