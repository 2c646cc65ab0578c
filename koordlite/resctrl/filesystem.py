"""The resctrl file system: capabilities, groups, threads, counters. A refusal carries the kernel's own reason.

A control group is named by its folder; the root's name is empty. A monitoring group is named with its control group,
`BE/mon_groups/web`, or `/mon_groups/web` below the root. Source: Linux resctrl document.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from koordlite.resctrl import info, monitoring, refusal, schemata
from koordlite.resctrl import tasks as resctrl_tasks
from koordlite.resctrl.files import Files
from koordlite.resctrl.info import Capabilities
from koordlite.resctrl.monitoring import Counters
from koordlite.resctrl.mount import Mounts, NoMounts
from koordlite.resctrl.schemata import Schemata
from koordlite.resctrl.tasks import Moved
from koordlite.resctrl.values import MON_GROUPS, ROOT, BandwidthCapability, ControlGroup, Resctrl, Values

POINT = "/sys/fs/resctrl"
_NOT_GROUPS = frozenset({"info", "mon_data", "mon_groups"})
_WRITE_LIMIT_BYTES = 4096
_GONE = (errno.ENOENT, errno.ENODEV)
_READS_BETWEEN_INFO = 30
"""Reads of the groups between two reads of `info`. It changes only when resctrl is mounted again. Groups whose values
are in another unit show that at once."""


def any_group(_group: str) -> bool:
    """Every group may be made and removed."""
    return True


class ResctrlFS:
    """The resctrl file system at `root`. `owns` says by name which groups may be made and removed at all."""

    def __init__(
        self, files: Files, root: str = POINT, *, mounts: Mounts | None = None, owns: Callable[[str], bool] = any_group
    ) -> None:
        self.root = root
        self._files, self._mounts, self._owns = files, mounts or NoMounts(), owns
        self._cached: tuple[tuple[str, ...], Capabilities] | None = None
        self._reads = 0
        self._largest: dict[str, int] = {}
        self._fresh: dict[str, int] = {}

    # ── what is there ──

    def read(self, *, with_tasks: Collection[str] | None = None) -> Resctrl:
        """Capabilities and groups as they are; `absent` says why there are none.

        Threads are read for the groups named in `with_tasks` only: the root group lists the whole machine.
        """
        capabilities = self._capabilities()
        if capabilities is None:
            why, mountable = self._absence
            return Resctrl(absent=why, mountable=mountable)
        if not capabilities.caches and not capabilities.bandwidths:
            why = f"{self.root} can only monitor: it has no info/L3, L2 or MB with num_closids"
            return Resctrl(absent=why, monitor=capabilities.monitor)
        groups = dict(self._groups(frozenset(with_tasks or ())))
        if info.contradicted(capabilities, groups.values()):
            self._cached, self._largest, self._fresh = None, {}, {}
            capabilities = self._capabilities() or capabilities
        self._remember_largest(groups.values())
        bandwidths = {name: self._with_maximum(name, cap) for name, cap in capabilities.bandwidths.items()}
        return Resctrl("", capabilities.caches, bandwidths, groups, monitor=capabilities.monitor)

    def is_mounted(self) -> bool:
        """Tell whether there is anything at `root`."""
        return bool(info.resources(self._files, self.root))

    def group_names(self) -> list[str]:
        """All control groups but the root, sorted; nothing when resctrl is not mounted."""
        return _folders(self._files, self.root)

    def mon_group_names(self, group: str) -> list[str]:
        """The monitoring groups of a control group, by their full names."""
        return [f"{group}{MON_GROUPS}{name}" for name in _folders(self._files, f"{self._folder(group)}/mon_groups")]

    def tasks(self, group: str) -> frozenset[int]:
        """Threads of a group; none when it is gone."""
        try:
            return frozenset(map(int, self._files.read(f"{self._folder(group)}/tasks").split()))
        except OSError as error:
            if error.errno in _GONE:
                return frozenset()
            raise

    def mode(self, group: str) -> str:
        """`shareable`, `exclusive`, `pseudo-locksetup` or `pseudo-locked`."""
        return self._files.read(f"{self._folder(group)}/mode").decode().strip()

    def schemata(self, group: str) -> Schemata:
        """Schemata of a group; ValueError names a line that cannot be read."""
        return schemata.parse(self._files.read(f"{self._folder(group)}/schemata").decode())

    def schemata_raw(self, group: str, resource: str) -> bytes:
        """The line of one resource, ready to be written back; OSError ENODATA when the group has none."""
        values = self.schemata(group).values
        if resource not in values:
            path = f"{self._folder(group)}/schemata"
            raise OSError(errno.ENODATA, f"the group has no line {resource} (is it pseudo-locked?)", path)
        return f"{schemata.line(resource, values[resource])}\n".encode()

    def counters(self, group: str) -> dict[int, Counters]:
        """Occupancy and bandwidth counters of a group, by cache id."""
        return monitoring.read(self._files, self._folder(group))

    # ── groups ──

    def mount(self, *options: str) -> None:
        """Mount resctrl: `cdp` and `cdpl2` divide code and data, `mba_MBps` counts bandwidth in MB/s.

        OSError EBUSY when it is mounted elsewhere, EINVAL when the machine lacks what an option needs.
        """
        self._mounts.mount(self.root, ",".join(options))
        self._cached = None
        self._note_fresh(ROOT)

    def umount(self) -> None:
        """Unmount: groups vanish, threads go to the root group, masks and bandwidths go back to their defaults."""
        self._mounts.umount(self.root)
        self._cached = None

    def make_group(self, name: str) -> bool:
        """Make a group; False when there is one of that name already.

        OSError ENOSPC: no CLOSID or RMID is left. EBUSY: RMIDs of removed groups are still in limbo. That takes one or
        two seconds, and more while their lines are in a cache: try again later. ValueError: no name for a group, or not
        one that `owns` allows.
        """
        folder = self._own_folder(name)
        try:
            self._files.mkdir(folder)
        except FileExistsError:
            return False
        except OSError as error:
            raise refusal.explained(self._files, self.root, error, folder, last=1) from error
        if MON_GROUPS not in name:
            self._note_fresh(name)
        return True

    def remove_group(self, name: str) -> None:
        """Remove a group if it is there. Its threads go to the root group, those of a mon_group to its parent."""
        try:
            self._files.rmdir(self._own_folder(name))
        except FileNotFoundError:
            return

    def set_mode(self, group: str, mode: str) -> None:
        """`exclusive`: no other group may overlap, not even the root group. Groups begin as `shareable`."""
        self._write(f"{self._folder(group)}/mode", f"{mode}\n".encode())

    def write_schemata(self, group: str, values: Mapping[str, Values]) -> None:
        """Give each resource its values by cache id, in one write, which the kernel takes or refuses as a whole.

        Only what does not fit in 4096 bytes, the kernel's limit for a write, is split.
        """
        path = f"{self._folder(group)}/schemata"
        for text in schemata.writes(values, longest=_WRITE_LIMIT_BYTES):
            self._write(path, text.encode(), silent=refusal.UNKNOWN_ID)

    def write_back(self, group: str, raw: bytes) -> bool:
        """Write what `schemata_raw` read, as far as it differs and its cache ids still exist. True when it differed."""
        target = schemata.parse(raw.decode()).values
        differing = self.schemata(group).difference(target)
        if differing:
            self.write_schemata(group, differing)
        return bool(differing)

    # ── threads ──

    def move(self, group: str, tids: Iterable[int]) -> Moved:
        """Move threads into the group. Their children begun meanwhile stay behind: see `move_all`."""
        return resctrl_tasks.move(self._files, self.root, self._folder(group), tids)

    def move_all(self, group: str, threads: Callable[[], Collection[int]], *, first: Collection[int] = ()) -> Moved:
        """Move all that `threads` reads, until it reads no new ones; those of `first` are moved first."""
        return resctrl_tasks.move_all(self._files, self.root, self._folder(group), threads, first=first)

    def group_of(self, tid: int) -> str | None:
        """The control group a thread is in; None when the thread is gone, or the kernel does not say."""
        path = resctrl_tasks.group_of(self._files, tid)
        return None if path is None else path.partition(MON_GROUPS)[0]

    def groups_of(self, tids: Collection[int]) -> dict[int, str]:
        """The group of each thread that lives: its monitoring group on Linux 5.6 and later, where it is in one, else
        its control group."""
        return resctrl_tasks.groups_of(
            self._files, tids, lambda: {name: self.tasks(name) for name in self.group_names()}
        )

    # ── internals ──

    def _capabilities(self) -> Capabilities | None:
        """Read once: only an unmount can change them."""
        names = info.resources(self._files, self.root)
        if not names:
            self._cached, self._largest, self._fresh = None, {}, {}
            return None
        self._reads += 1
        if self._cached is None or self._cached[0] != names or self._reads > _READS_BETWEEN_INFO:
            self._cached, self._reads = (names, info.capabilities(self._files, self.root)), 0
        return self._cached[1]

    @functools.cached_property
    def _absence(self) -> tuple[str, bool]:
        """Read once: kernel and CPUs stay what they are, and to print /proc/cpuinfo takes long on a large machine."""
        return info.absence(self._files, self.root)

    def _with_maximum(self, name: str, cap: BandwidthCapability) -> BandwidthCapability:
        return info.with_maximum(cap, largest=self._largest.get(name, 0), fresh=self._fresh.get(name))

    def _groups(self, with_tasks: frozenset[str]) -> Iterator[tuple[str, ControlGroup]]:
        for name in (ROOT, *self.group_names()):
            try:
                yield name, self._group(name, name in with_tasks)
            except OSError as error:
                if name == ROOT:
                    raise  # The cache ids of the machine are known from it alone.
                if error.errno not in _GONE:
                    yield name, ControlGroup({}, unknown=(f"cannot be read: {error}",))

    def _group(self, name: str, with_tasks: bool) -> ControlGroup:
        try:
            parsed = self.schemata(name)
        except ValueError:
            parsed = Schemata()  # A form this library does not know: no value of it can be judged.
        return ControlGroup(parsed.values, self.tasks(name) if with_tasks else None, unknown=parsed.unknown)

    def _remember_largest(self, groups: Iterable[ControlGroup]) -> None:
        for group in groups:
            for resource, values in group.schemata.items():
                self._largest[resource] = max([self._largest.get(resource, 0), *values.values()])

    def _note_fresh(self, name: str) -> None:
        """A group just made has no limits: only its values show the largest bandwidth."""
        try:
            present = self.schemata(name).values
        except (OSError, ValueError):
            return  # Gone already; the next group that is made shows it as well.
        self._fresh |= {resource: max(values.values()) for resource, values in present.items() if values}

    def _write(self, path: str, data: bytes, *, silent: str = "") -> None:
        try:
            self._files.write(path, data)
        except OSError as error:
            last = _WRITE_LIMIT_BYTES
            raise refusal.explained(self._files, self.root, error, path, last=last, silent=silent) from error

    def _own_folder(self, name: str) -> str:
        folder = self._folder(name)
        if folder == self.root or not self._owns(name):
            raise ValueError(f"{name!r} is no name for a resctrl group that this program may make or remove")
        return folder

    def _folder(self, group: str) -> str:
        if group == ROOT:
            return self.root
        control, monitors, monitor = group.partition(MON_GROUPS)
        parts = [part for part, used in ((control, control or not monitors), (monitor, monitors)) if used]
        if any(not _is_name(part) for part in parts):
            raise ValueError(f"{group!r} is no name for a resctrl group")
        return f"{self.root}/{group.lstrip('/')}"


def _is_name(part: str) -> bool:
    return bool(part) and not {"/", "\n"} & set(part) and part not in _NOT_GROUPS and part not in (".", "..")


def _folders(files: Files, folder: str) -> list[str]:
    try:
        names = files.list(folder)
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise
    folders = (name[:-1] for name in names if name.endswith("/"))
    return sorted(name for name in folders if name not in _NOT_GROUPS)
