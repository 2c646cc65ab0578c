"""Cgroups and what lives in them. Groups are named by their path below the cgroup root, the same on v1 and v2."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.cpuset import CPUSet
from koordlite.model.place import Place
from koordlite.model.settings import Memory


class Cgroup(msgspec.Struct, frozen=True):
    """Present values of one cgroup; None where the file is absent or could not be read."""

    cpuset: CPUSet | None = None
    """`cpuset.cpus` as configured; on v2 empty means inherited."""
    effective: CPUSet | None = None
    """CPUs it may really use; on v1 the same as `cpuset`."""
    quota_us: int | None = None
    """CPU time per period, -1 unlimited."""
    period_us: int = 100_000
    values: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Other `CgroupField`s some strategy asked to see (`reads`), in the units of `CgroupField`; a file this kernel
    does not have is missing here."""


class PodGroups(msgspec.Struct, frozen=True):
    """Groups of a pod: its own group and its containers' groups by container name."""

    group: str
    containers: Mapping[str, str]
    sandboxes: tuple[str, ...] = ()
    """Child groups that belong to no known container: the pause container."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every group of the pod, its own first."""
        return self.group, *self.inside

    @property
    def inside(self) -> tuple[str, ...]:
        """The groups in that of the pod: those of its containers, then its sandboxes."""
        return *self.containers.values(), *self.sandboxes


class Layout(msgspec.Struct, frozen=True):
    """Names of kubelet's groups on this machine."""

    version: int
    """1 or 2."""
    driver: str
    """`cgroupfs` or `systemd`."""
    kubepods: str
    burstable: str
    besteffort: str


class MemoryPlace(msgspec.Struct, frozen=True):
    """NUMA nodes from which a container may take memory, and on which it has it."""

    mems: CPUSet
    """NUMA nodes, as `cpuset.mems.effective` lists them; empty where the kernel does not say."""
    used: Mapping[int, int]
    """Bytes in use by NUMA node."""


class MemoryCharge(msgspec.Struct, frozen=True):
    """Memory charged to a group and to those below it, in bytes."""

    total: int
    file_cache: int
    """Part of `total` that the kernel gives up first when a limit asks for it."""

    @property
    def fixed(self) -> int:
        """Memory that a limit cannot take away without ending a process, as there may be no swap."""
        return max(self.total - self.file_cache, 0)


class Process(msgspec.Struct, frozen=True):
    """A process of a container and its place in the queue of the OOM killer."""

    pid: int
    start_time: int
    """Clock ticks since boot: tells it from a later process with the same number."""
    oom_score_adj: int


class Original(msgspec.Struct, frozen=True):
    """Value of a cgroup file before our first write, and which strategy wrote it."""

    value: CPUSet | int
    strategy: str


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the same names in `Snapshot` say what each is; `last_sync` is in `Snapshot.published`."""

    ours: frozenset[Place] = frozenset()
    found: Mapping[Place, Original] = msgspec.field(default_factory=dict)
    last_sync: Mapping[Place, float] = msgspec.field(default_factory=dict)
    remembered: Mapping[str, Memory] = msgspec.field(default_factory=dict)
    refused_writes: Mapping[Place, str] = msgspec.field(default_factory=dict)
    evicted: Mapping[str, float] = msgspec.field(default_factory=dict)
    refused_evictions: Mapping[str, str] = msgspec.field(default_factory=dict)


NO_COOKIE = 0
"""The cookie of a task that nobody gave one: it shares a core with others that have none."""
NOT_READ = "no strategy asked for it"


class TaskCookie(msgspec.Struct, frozen=True):
    """A process and its cookie."""

    pid: int
    cookie: int | None
    """None where the kernel does not let us look."""


class CoreSched(msgspec.Struct, frozen=True):
    """The cookies of processes in containers."""

    missing: str = NOT_READ
    """Reason why there are none; empty while there are."""
    tasks: Mapping[str, tuple[TaskCookie, ...]] = msgspec.field(default_factory=dict)
    """Tasks by group of a container, each at most `observe.system.COOKIE_SECONDS` old."""
