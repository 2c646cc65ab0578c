"""Control groups as state: the trees, who sits where, and what the sharing of CPU reads and charges.

`files` has the files, with the rules of what may be written.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping

import msgspec

from koordlite.lab.machine.pressure import PressureFile
from koordlite.lab.machine.tree import File, Folder, refusal
from koordlite.model.cpuset import EMPTY, CPUSet

UNLIMITED = -1
IDLE_SHARES = 3


class Group(msgspec.Struct, eq=False):
    """A control group of a hierarchy. Fields of controllers the hierarchy lacks stay at their defaults."""

    hierarchy: Hierarchy
    name: str
    parent: Group | None
    weight: int
    """cpu.shares on v1, cpu.weight on v2; only the proportion among siblings matters."""
    default_weight: int
    """The weight a group starts with, which is also what one thread weighs."""
    children: dict[str, Group] = msgspec.field(default_factory=dict)
    folder: Folder = msgspec.field(default_factory=Folder)
    tids: dict[int, None] = msgspec.field(default_factory=dict)
    """Threads, in the order of their arrival."""
    cpus: CPUSet = EMPTY
    mems: CPUSet = EMPTY
    quota_us: int = UNLIMITED
    period_us: int = 100_000
    burst_us: int = 0
    idle: int = 0
    saved_us: float = 0.0
    """CPU time left over in earlier periods, at most `burst_us`: what a burst is paid from."""
    bursts: int = 0
    burst_used_us: int = 0
    usage_us: int = 0
    periods: int = 0
    throttled: int = 0
    throttled_us: int = 0
    anon: int = 0
    """Bytes of memory, this group's own threads only."""
    cache: int = 0
    memory_limit: int = UNLIMITED
    memory_min: int = 0
    memory_low: int = 0
    memory_high: int = UNLIMITED
    swap_max: int = UNLIMITED
    """Kept; nothing is swapped here."""
    events: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of times that memory ran into a limit, by the kernel's word; this group's own only."""
    settings: dict[str, int] = msgspec.field(default_factory=dict)
    """Numbers of files that have no field of their own, by file name."""
    disks: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Texts that were written about disks, by word and disk."""
    read_bytes: float = 0.0
    """Read from the first disk, here and below."""
    stalls: PressureFile = msgspec.field(default_factory=PressureFile)
    memory_stalls: PressureFile = msgspec.field(default_factory=PressureFile)

    @property
    def path(self) -> str:
        """Path below the root, empty for the root."""
        return f"{self.parent.path}/{self.name}".lstrip("/") if self.parent else ""

    def walk(self) -> Iterator[Group]:
        """This group and everything below it, parents first."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def lineage(self) -> Iterator[Group]:
        """This group and its ancestors, the root last."""
        group: Group | None = self
        while group is not None:
            yield group
            group = group.parent

    @property
    def populated(self) -> bool:
        """Tell whether there are threads in it or below it."""
        return any(group.tids for group in self.walk())

    @property
    def claim(self) -> float:
        """Its weight among its siblings: next to nothing for an idle group (WEIGHT_IDLEPRIO, 3 of 1024).

        A group of the lowest identity of the Anolis kernel gives way as much.
        """
        gives_way = self.idle or self.settings.get("cpu.bvt_warp_ns", 0) < 0
        return self.default_weight * IDLE_SHARES / 1024 if gives_way else self.weight

    @property
    def anon_below(self) -> int:
        """Anonymous memory of the whole subtree."""
        return sum(group.anon for group in self.walk())

    @property
    def cache_below(self) -> int:
        """Page cache of the whole subtree."""
        return sum(group.cache for group in self.walk())


class Attribute(msgspec.Struct, frozen=True):
    """A file of every group, as a function of the group; `root` says whether the root group has it."""

    read: Callable[[Group], str]
    write: Callable[[Group, bytes], None] | None = None
    root: bool = True

    def of(self, group: Group) -> File:
        """The file of one group. Root writes the read-only ones in vain: cgroups say EINVAL, not EACCES."""
        write = self.write
        # Writing nothing is a success that does nothing, whatever the file.
        writes = (lambda data: write(group, data) if data else None) if write else None
        return File(lambda: self.read(group), writes, errno.EINVAL)


AttributeTable = Mapping[str, Attribute]
"""The files of a group by name."""


class Hierarchy:
    """A mounted tree of groups with its controllers."""

    def __init__(self, *, point: str, controllers: tuple[str, ...], weight: int, files: AttributeTable) -> None:
        self.point, self.controllers = point, controllers
        self.on_kill: Callable[[Group], None] = lambda group: None
        """Called by a write to `cgroup.kill` of a group; on v2."""
        self.epoch = 0
        """Grows with every change of a cpuset, of the tree or of which thread is where: then readers read again."""
        self._weight, self._files = weight, files
        self._home: dict[int, Group] = {}
        self.root = self._new("", None)

    def find(self, path: str) -> Group | None:
        """The group at `path` below the root."""
        group: Group | None = self.root
        for part in path.split("/") if path else ():
            group = group.children.get(part) if group else None
        return group

    def make(self, parent: Group, name: str) -> Group:
        """mkdir."""
        if "\n" in name:
            raise refusal(errno.EINVAL)
        group = parent.children[name] = self._new(name, parent)
        parent.folder.entries[name] = group.folder
        self.epoch += 1
        return group

    def make_all(self, path: str) -> Group:
        """Make the group with its parents; present ones stay as they are."""
        group = self.root
        for name in path.split("/"):
            group = group.children.get(name) or self.make(group, name)
        return group

    def remove(self, group: Group) -> None:
        """rmdir: EBUSY while threads or groups are inside."""
        if group.children or group.tids:
            raise refusal(errno.EBUSY)
        if group.parent is not None:
            del group.parent.children[group.name]
            del group.parent.folder.entries[group.name]
        self.epoch += 1

    def attach(self, group: Group, tids: tuple[int, ...]) -> None:
        """Move threads here, whatever the rules say about who may."""
        for tid in tids:
            self.detach(tid)
            group.tids[tid] = None
            self._home[tid] = group
        self.epoch += 1

    def detach(self, tid: int) -> None:
        """The thread has ended."""
        home = self._home.pop(tid, None)
        if home is not None:
            del home.tids[tid]

    def home(self, tid: int) -> Group:
        """The group of a thread; the root when it was never moved."""
        return self._home.get(tid, self.root)

    def _new(self, name: str, parent: Group | None) -> Group:
        group = Group(self, name, parent, self._weight, self._weight)
        files = {path: each.of(group) for path, each in self._files.items() if each.root or parent is not None}
        group.folder.entries.update(files)
        group.folder.make = lambda name: self.make(group, name)
        group.folder.remove = lambda name: self._rmdir(group, name)
        return group

    def _rmdir(self, parent: Group, name: str) -> None:
        if name not in parent.children:
            raise refusal(errno.ENOTDIR)
        self.remove(parent.children[name])


class Cgroups:
    """All hierarchies of the node: one on v2, one per controller on v1."""

    def __init__(self, version: int, hierarchies: tuple[Hierarchy, ...], allowed: Callable[[Group], CPUSet]) -> None:
        self.version, self.hierarchies = version, hierarchies
        self.allowed = allowed
        """CPUs a group of the cpuset hierarchy may really use."""
        self.cpu = self._with("cpu")
        self.cpuset = self._with("cpuset")
        self.memory = self._with("memory")
        self.io = self._with("io" if version == 2 else "blkio")

    def make(self, path: str) -> None:
        """Make the group everywhere, with its parents; present ones stay as they are."""
        for hierarchy in self.hierarchies:
            hierarchy.make_all(path)

    def remove(self, path: str) -> None:
        """Remove the group and everything below it, everywhere; its threads must have ended."""
        for hierarchy in self.hierarchies:
            top = hierarchy.find(path)
            for group in reversed(list(top.walk())) if top else ():
                hierarchy.remove(group)

    def attach(self, path: str, tids: tuple[int, ...]) -> None:
        """Put threads into the group, everywhere."""
        for hierarchy in self.hierarchies:
            group = hierarchy.find(path)
            if group is not None:
                hierarchy.attach(group, tids)

    def tids_below(self, path: str) -> set[int]:
        """Threads in the group or below it, in any hierarchy."""
        tops = (hierarchy.find(path) for hierarchy in self.hierarchies)
        return {tid for top in tops if top for group in top.walk() for tid in group.tids}

    def detach(self, tid: int) -> None:
        """The thread has ended."""
        for hierarchy in self.hierarchies:
            hierarchy.detach(tid)

    def _with(self, controller: str) -> Hierarchy:
        return next(one for one in self.hierarchies if controller in one.controllers)
