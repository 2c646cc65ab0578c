"""The cgroups of this machine by logical names, the same for v1 and v2, both drivers, and co-mounted controllers."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.host import beneath, procfs
from koordlite.host.cgroups import names as cgroup_names
from koordlite.host.cgroups import versions
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import HardwareAbsent
from koordlite.model.picture.groups import Cgroup, Layout, MemoryCharge
from koordlite.model.pod.qos import KubeQoS
from koordlite.ports import Files
from koordlite.resctrl.files import names

_DEFAULT_PERIOD_US = 100_000
MOST_PATHS = 2048
"""Groups whose path is remembered for each field."""
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


def vanished(error: OSError) -> bool:
    """Tell whether `error` says that the group is gone: ENOENT at open, ENODEV when it went in the middle."""
    return error.errno in _GONE


class Cgroups:
    """Reads and writes groups by their path below the cgroup root, without a leading slash; the root is empty.
    Fields are every `CgroupField`, which can be written, and for reading `cpuset.effective`, `cpu.period`, `cpu.stat`,
    `cpu.usage`, `cpu.pressure`, `memory.stat`, `memory.current`, `memory.numa_stat`, `memory.pressure`, `io.pressure`,
    `threads`, `procs`."""

    def __init__(self, files: Files, layout: Layout, points: Mapping[str, str]) -> None:
        """`points` is the folder of each v1 controller, or the one of v2 under the empty name."""
        self.layout = layout
        self._files = files
        self._points = points
        self._version = versions.Version(layout.version)
        self._at = {field: (points[place], name) for field, (place, name) in self._version.files.items()}
        self._paths: dict[str, dict[str, str]] = {field: {} for field in self._at}
        """Paths by field and group: the same files are read at each tick."""
        self._written: set[str] = set()

    @classmethod
    def detect(cls, files: Files, *, kubepods: str = "", required: bool = True) -> Cgroups:
        """The cgroups of the machine behind `files`; HardwareAbsent says what is missing.
        `kubepods` names kubelet's top group where it is not `kubepods` or `kubepods.slice` (kubelet's --cgroup-root).
        Unless that group is `required`, it may be gone, and all below it with it."""
        mounts = find_mounts(files)
        top = mounts.points["cpu" if mounts.version == 1 else ""]
        group = _kubepods(files, top, kubepods.strip("/"), required)
        return cls(files, cgroup_names.layout(mounts.version, group), mounts.points)

    def through(self, files: Files) -> Cgroups:
        """The same cgroups, read and written through other `files`."""
        return Cgroups(files, self.layout, self._points)

    def path(self, group: str, field: str) -> str:
        """The file that holds `field` of `group`; ValueError for a field we do not know on this version, and for a
        group that is not below the root."""
        paths = self._paths.get(field)
        if paths is None:
            raise ValueError(f"{field!r} is no cgroup field we know on v{self.layout.version}")
        path = paths.get(group)
        if path is None:
            folder, name = self._at[field]
            path = f"{folder}/{beneath.group(group)}/{name}" if group else f"{folder}/{name}"
            if len(paths) >= MOST_PATHS:
                paths.clear()
            paths[group] = sys.intern(path)
        return path

    def folder(self, group: str, controller: str) -> str:
        """The folder of a group in the hierarchy of a v1 controller; on v2 they all share one."""
        return self._folder(controller if self.layout.version == 1 else "", group)

    def exists(self, group: str) -> bool:
        """Tell whether the group is there."""
        return _has_folder(self._files, self._folder(self._main, group))

    def children(self, group: str) -> list[str]:
        """Names of the groups directly below, sorted; FileNotFoundError when `group` is gone."""
        return _folders(self._files.list(self._folder(self._main, group)))

    def supported(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Select those of `fields` that this kernel has. Asked of kubelet's top group, and each time again: a file may
        come with a controller that is enabled later, and the group itself with kubelet."""
        kubepods = self.layout.kubepods
        return tuple(f for f in fields if f in self._at and self._optional(kubepods, f) is not None)

    def settled(self, field: CgroupField, value: CPUSet | int) -> CPUSet | int:
        """Value that will be read after `value` was written."""
        return self._version.settled(field, value)

    def state(self, group: str, fields: Iterable[str] = ()) -> Cgroup:
        """The present limits, and `fields` in `values`; None where a file is absent, missing there also where it cannot
        be read.

        FileNotFoundError when the whole group is gone.
        """
        cpus = self.read_present(group, "cpuset.cpus")
        effective = cpus if self.layout.version == 1 else self.read_present(group, "cpuset.effective")
        quota = self.read_present(group, "cpu.quota")
        period = quota
        if quota is not None and self.layout.version == 1:
            # Without a quota the period means nothing; it is a file of its own to read.
            unlimited = self._version.quota_us(quota) == versions.UNLIMITED
            period = None if unlimited else self.read_present(group, "cpu.period")
        if cpus is None and quota is None and not self.exists(group):
            raise FileNotFoundError(errno.ENOENT, "the cgroup is gone", self._folder(self._main, group))
        contents = ((field, self._optional(group, field)) for field in fields if field in self._at)
        values = tuple((field, raw) for field, raw in contents if raw is not None)
        return _parsed(self._version, (cpus, effective, quota, period), values)

    def _optional(self, group: str, field: str) -> bytes | None:
        """None also where the file refuses to be read: one such file must not cost the whole picture."""
        try:
            return self.read_raw(group, field)
        except OSError:
            return None

    def quota_us(self, group: str) -> int:
        """The CPU quota in µs per period, -1 without a limit."""
        return self._version.quota_us(self.read_raw(group, "cpu.quota"))

    def cpu_usage_ns(self, group: str) -> int:
        """CPU time the group and those below it have used, in nanoseconds."""
        return self._version.usage_ns(self.read_raw(group, "cpu.usage"))

    def throttling(self, group: str) -> versions.Throttled:
        """Periods and throttled periods of the group since it was made."""
        return self._version.throttling(self.read_raw(group, "cpu.stat"))

    def memory(self, group: str) -> int:
        """Bytes the group and those below it hold without page cache."""
        return self._version.working_memory(self.read_raw(group, "memory.stat"))

    def memory_held(self, group: str) -> MemoryCharge:
        """All memory charged to the group and those below it, page cache and all."""
        cache = self._version.file_cache(self.read_raw(group, "memory.stat"))
        return MemoryCharge(procfs.number(self.read_raw(group, "memory.current")), cache)

    def threads(self, group: str) -> tuple[int, ...]:
        """Threads in the group and in all groups below it: a container may divide itself further."""
        return tuple(self._members(group, "threads"))

    def procs(self, group: str) -> tuple[int, ...]:
        """Processes in the group and in all groups below it."""
        return tuple(self._members(group, "procs"))

    def encode(self, field: CgroupField, value: CPUSet | int) -> bytes:
        """The bytes to write for a value, `-1` becoming `max` on v2."""
        return self._version.encode(field, value)

    def decode(self, field: CgroupField, raw: bytes) -> CPUSet | int:
        """The value of what was read; the inverse of `encode`."""
        return self._version.decode(field, raw)

    def read_raw(self, group: str, field: str) -> bytes:
        """The file of `field` as it is, newline and all: what the undo journal keeps."""
        try:
            path = self._paths[field][group]
        except KeyError:
            path = self.path(group, field)
        return self._files.read(path)

    def read_present(self, group: str, field: str) -> bytes | None:
        """Same as `read_raw`; None when the file or the whole group is gone."""
        try:
            return self.read_raw(group, field)
        except OSError as error:
            if vanished(error):
                return None
            raise

    def write(self, group: str, field: CgroupField, value: CPUSet | int) -> None:
        """Give `field` of `group` the value."""
        self.write_raw(group, field, self.encode(field, value))

    def write_raw(self, group: str, field: str, raw: bytes) -> None:
        """Write back bytes that `read_raw` found; ValueError for a field that is only read."""
        if field not in versions.WRITABLE:
            raise ValueError(f"{field} is only read; what can be written: {', '.join(sorted(versions.WRITABLE))}")
        path = self.path(group, field)
        self._written.add(group)
        self._files.write(path, raw)

    def kill(self, group: str) -> None:
        """Kill every process of the group and of those below it; ValueError on v1, which cannot do so at once."""
        if self.layout.version == 1:
            raise ValueError("cgroup v1 has no cgroup.kill")
        self._files.write(f"{self._folder('', group)}/cgroup.kill", b"1")

    def take_written(self) -> frozenset[str]:
        """Groups written to since the last call."""
        written, self._written = frozenset(self._written), set()
        return written

    def pod_group(self, uid: str, kube_qos: KubeQoS) -> str:
        """The group of a pod; it need not exist yet. ValueError for a uid that is no name of a group."""
        return cgroup_names.pod_group(self.layout, uid, kube_qos)

    def container_id(self, group: str) -> str:
        """The id of the container whose group this is; ValueError for a name no container has."""
        return cgroup_names.container_id(self.layout, group)

    def container_group(self, pod_group: str, container_id: str) -> str | None:
        """The group of a container, None before the container was made; ValueError for an unknown runtime."""
        return cgroup_names.container_group(self.layout, pod_group, container_id)

    @property
    def _main(self) -> str:
        return "cpu" if self.layout.version == 1 else ""

    def _folder(self, controller: str, group: str) -> str:
        point = self._points[controller]
        return f"{point}/{beneath.group(group)}" if group else point

    def tree(self, group: str) -> Iterator[str]:
        """The group and those below it, each before its own. A tenant may nest groups as deep as the kernel lets him,
        and remove them meanwhile: one that has vanished has none below."""
        waiting = [group]
        while waiting:
            above = waiting.pop()
            yield above
            try:
                waiting += [f"{above}/{child}" if above else child for child in self.children(above)]
            except OSError as error:
                if not vanished(error):
                    raise

    def _members(self, group: str, field: str) -> list[int]:
        members: list[int] = []
        for each in self.tree(group):
            try:
                members += map(int, self.read_raw(each, field).split())
            except OSError as error:
                if each == group or not vanished(error):
                    raise
        return members


@functools.lru_cache(maxsize=4096)
def _parsed(
    version: versions.Version,
    limits: tuple[bytes | None, bytes | None, bytes | None, bytes | None],
    values: tuple[tuple[str, bytes], ...],
) -> Cgroup:
    """Hundreds of groups hold the same few texts, tick after tick: these share one object.
    `limits` are the texts of set, effective set, quota and period."""
    cpus, effective, quota, period = limits
    return Cgroup(
        cpuset=None if cpus is None else versions.cpus(cpus),
        effective=None if effective is None else versions.cpus(effective),
        quota_us=None if quota is None else version.quota_us(quota),
        period_us=_DEFAULT_PERIOD_US if period is None else version.period_us(period),
        values={field: version.integer(field, raw) for field, raw in values},
    )


def _kubepods(files: Files, top: str, configured: str, required: bool) -> str:
    if configured:
        if required and not _has_folder(files, f"{top}/{configured}"):
            why = f"there is no group {configured} below {top}; it was named in the configuration"
            raise HardwareAbsent("kubelet's cgroup", why)
        return configured
    present = [name for name in ("kubepods.slice", "kubepods") if _has_folder(files, f"{top}/{name}")]
    if not present and not required:
        return "kubepods"
    if not present:
        why = (
            f"neither kubepods nor kubepods.slice is below {top}: kubelet does not run here (--sandbox needs none), "
            "or has a --cgroup-root (name its group with --kubepods)"
        )
        raise HardwareAbsent("kubelet's cgroup", why)
    # After a change of driver the other's empty tree may be left behind.
    return max(present, key=lambda name: len(_folders(files.list(f"{top}/{name}"))))


def _has_folder(files: Files, path: str) -> bool:
    try:
        files.list(path)
    except OSError as error:
        if vanished(error):
            return False
        raise
    return True


def _folders(names: Iterable[str]) -> list[str]:
    return sorted(name[:-1] for name in names if name.endswith("/"))


_ROOT = "/sys/fs/cgroup"
_V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "perf_event")


class CgroupMounts(msgspec.Struct, frozen=True):
    """The version to use, and the folder of each controller's hierarchy; v2 has one for all, under the empty name."""

    version: int
    points: Mapping[str, str]


def find_mounts(files: Files) -> CgroupMounts:
    """Hierarchy to work in: v1 when the cpu controller is mounted as v1 (also on a hybrid machine), else v2.
    HardwareAbsent when there is neither. Without a mounts file, as in a recording, the usual folders tell."""
    mounted = procfs.mounts(files)
    if not mounted:
        listed = [name.rstrip("/") for name in names(files, _ROOT)]
        if "cpu" in listed or "cpu,cpuacct" in listed:
            # `cpu` and `cpuacct` are often one hierarchy called `cpu,cpuacct`.
            folders = {c: [name for name in listed if c in name.split(",")] or [c] for c in _V1_CONTROLLERS}
            return CgroupMounts(1, {c: f"{_ROOT}/{min(sorted(folders[c]), key=len)}" for c in _V1_CONTROLLERS})
        if "cgroup.controllers" in listed:
            return _v2(files, _ROOT)
        raise HardwareAbsent("cgroup cpu controller", f"{_ROOT} holds neither cpu (v1) nor cgroup.controllers (v2)")
    legacy = [mount for mount in mounted if mount.type == "cgroup"]
    if any("cpu" in mount.options for mount in legacy):
        # A controller that is not mounted gets its usual folder: reading there says ENOENT, as it should.
        points = {
            name: [m.point for m in legacy if name in m.options] or [f"{_ROOT}/{name}"] for name in _V1_CONTROLLERS
        }
        return CgroupMounts(1, {name: _preferred(points[name]) for name in _V1_CONTROLLERS})
    unified = [mount.point for mount in mounted if mount.type == "cgroup2"]
    if not unified:
        raise HardwareAbsent("cgroup cpu controller", "no cgroup file system with it is mounted")
    return _v2(files, _preferred(unified))


def _v2(files: Files, point: str) -> CgroupMounts:
    offered = files.read(f"{point}/cgroup.controllers").decode().split()
    if "cpu" not in offered:
        raise HardwareAbsent(
            "cgroup cpu controller", f"{point}/cgroup.controllers offers {', '.join(offered) or 'nothing'}"
        )
    return CgroupMounts(2, {"": point})


def _preferred(points: Sequence[str]) -> str:
    """The same hierarchy may be mounted more than once in a container: the usual place, else the first."""
    return next((point for point in points if point == _ROOT or point.startswith(f"{_ROOT}/")), points[0])
