"""Samples of who uses the CPU: three counters, cheap enough to read fifty times a second.

A whole picture costs too much for that. /proc/stat is too coarse: it counts in hundredths of a second, cgroups in
nanoseconds. A running thread is accounted at each timer interrupt (4 ms at 250 Hz), in all groups above it at once, so
that the difference of two groups is exact where each of them is not. What runs without a break has used whole periods
of the interrupt between two samples, now one more and now one less than their distance in time; so the time between two
samples is by the clock or by the interrupts, whichever says more.
"""

from __future__ import annotations

import functools
import os
import select
from collections.abc import Callable, Collection
from typing import Literal

import msgspec

from koordlite import inotify
from koordlite.clock import coarse_monotonic, timer_period_seconds
from koordlite.formulas.cpu import reaction
from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.host.cgroups.versions import Version
from koordlite.host.files import RealFiles
from koordlite.inotify import Inotify
from koordlite.model.picture.usage import Usage
from koordlite.model.status import FreshUse
from koordlite.ports import Clock, Files

_BYTES = 4096


class UsageSample(msgspec.Struct, frozen=True):
    """CPU time used until one moment, in nanoseconds."""

    time: float
    accounted: float
    """Time up to which threads that run without a break are accounted: the last timer interrupt."""
    node_ns: int | None
    pods_ns: int
    best_effort_ns: int


class OpenCounter:
    """A file read by pread through a descriptor of its own: `RealFiles` does the same, with more around it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> bytes:
        """The content; OSError when the file is gone and there is no new one of its name."""
        try:
            return os.pread(self._fd, _BYTES, 0)
        except OSError:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            os.close(self._fd)
            self._fd = fd
            return os.pread(fd, _BYTES, 0)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


class Sentinel:
    """Reads the counters of the node, of all pods, and of best effort."""

    def __init__(self, files: Files, cgroups: Cgroups, clock: Clock) -> None:
        """OSError where a counter cannot be opened."""
        layout = cgroups.layout
        # The root group of v2 repeats /proc/stat, tick by tick and CPU by CPU; the one of v1 counts like any other.
        groups = [*([""] if layout.version == 1 else []), layout.kubepods, layout.besteffort]
        real = isinstance(files, RealFiles)
        paths = [cgroups.path(group, "cpu.usage") for group in groups]
        counters: list[Callable[[], bytes]] = [
            OpenCounter(path) if real else functools.partial(files.read, path) for path in paths
        ]
        self._now, self._usage_ns = clock.monotonic, Version(layout.version).usage_ns
        self._accounted = coarse_monotonic if real else clock.monotonic
        self.confirm_seconds = reaction.confirm_seconds(timer_period_seconds=timer_period_seconds() if real else 0.0)
        """Least time between two samples for their difference to be worth an answer."""
        self._open_counters = [counter for counter in counters if isinstance(counter, OpenCounter)]
        self._node = counters[0] if layout.version == 1 else None
        self._pods, self._best_effort = counters[-2:]
        self._widest = counters[0]

    def sample(self) -> UsageSample:
        """The counters at this moment; OSError where one cannot be read."""
        usage_ns, time, accounted = self._usage_ns, self._now(), self._accounted()
        node_ns = usage_ns(self._node()) if self._node else None
        return UsageSample(time, accounted, node_ns, usage_ns(self._pods()), usage_ns(self._best_effort()))

    def others(self) -> tuple[float, int]:
        """The time, and the CPU time of all but best effort: of the node, on v2 of all pods. The cheapest sample."""
        usage_ns = self._usage_ns
        return self._now(), usage_ns(self._widest()) - usage_ns(self._best_effort())

    def close(self) -> None:
        """Close the descriptors."""
        while self._open_counters:
            self._open_counters.pop().close()

    def outside_milli(self, usage: Usage) -> int:
        """Use in `usage` that `others` does not count: on v2 what runs outside of pods."""
        if self._node or usage.node is None:
            return 0
        return max(0, usage.node.cpu - sum(use.cpu for use in usage.pods.values()))


def between(first: UsageSample, second: UsageSample) -> FreshUse:
    """Use between two samples."""
    seconds = max(second.time - first.time, second.accounted - first.accounted)
    node = None
    if first.node_ns is not None and second.node_ns is not None:
        node = reaction.milli(used_ns=second.node_ns - first.node_ns, seconds=seconds)
    return FreshUse(
        node=node,
        pods=reaction.milli(used_ns=second.pods_ns - first.pods_ns, seconds=seconds),
        best_effort=reaction.milli(used_ns=second.best_effort_ns - first.best_effort_ns, seconds=seconds),
    )


SHORTEST_WINDOW_US = 500_000
STALL_US = 25_000
"""Stall within a window that is worth a measurement: a twentieth of it."""

Event = Literal["quiet", "pressure", "gone", "other"]
"""`other`: the descriptor given to `also` can be read."""


class PressureTrigger:
    """Notices from the kernel that threads wait for CPU: one trigger on one pressure file. OSError with the path where
    the kernel refuses it.

    Rules of the Linux document "PSI - Pressure Stall Information": one write of `some STALL_US WINDOW_US` to a pressure
    file makes a trigger that lives as long as the descriptor; a window is 0.5 to 10 s; poll(2) answers POLLPRI at most
    once a window, and POLLERR when the group is gone. Without CAP_SYS_RESOURCE a window must be a multiple of 2 s;
    others are refused with EINVAL. A second trigger on one descriptor is EBUSY; kernels without PSI have no such file
    or refuse to open it (EOPNOTSUPP).
    """

    def __init__(self, path: str, *, stall_us: int = STALL_US, window_us: int = SHORTEST_WINDOW_US) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # The kernel overwrites the last byte with its own end of string.
            os.write(self._fd, f"some {stall_us} {window_us}\0".encode())
        except OSError as error:
            os.close(self._fd)
            raise OSError(error.errno, error.strerror, path) from None
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI)

    def also(self, descriptor: int) -> None:
        """Let a wait end as well when `descriptor` can be read."""
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> Event:
        """Pass `seconds` at most, less when there is pressure or the group is gone."""
        events = dict(self._poll.poll(max(0.0, seconds) * 1000))
        if self._fd in events:
            return "gone" if events[self._fd] & (select.POLLERR | select.POLLNVAL) else "pressure"
        return "other" if events else "quiet"

    def close(self) -> None:
        """Take the trigger away."""
        os.close(self._fd)


MOST_WATCHES = 2048
"""The default limit of a user is 8192 on small machines; no node has that many pods."""


class Notices(msgspec.Struct, frozen=True):
    """Groups reported since the last call."""

    groups: frozenset[str] = frozenset()
    """Groups that were made."""
    lost: bool = False
    """There were more than the kernel keeps."""


class GroupNotices:
    """Notices from the kernel that a cgroup was made: one inotify descriptor on the folders of groups above it. On v1
    it watches the hierarchy of the cpu controller: runtimes make the groups of cpuset and memory before that one.

    Rules of inotify(7) on kernfs, seen on cgroup v1 and v2: mkdir is reported as IN_CREATE | IN_ISDIR, as is a file by
    IN_CREATE alone, and so only folders are asked for. Removing a watched group is not reported and the watch stays, so
    it is taken away explicitly. A queue that is full ends in one IN_Q_OVERFLOW, and what came after it is lost.
    """

    def __init__(self, cgroups: Cgroups, *, most: int = MOST_WATCHES) -> None:
        """OSError where there is no inotify, or the user has no instance of it left."""
        self._cgroups, self._most = cgroups, most
        self._inotify = Inotify()
        # Waited for many times a second: epoll(7) keeps between two calls what select(2) sets up each time.
        self._epoll = select.epoll()
        self._epoll.register(self._inotify.fileno(), select.EPOLLIN)
        self._groups: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self.why = ""
        """Reason why some groups are not watched."""

    def __len__(self) -> int:
        return len(self._watches)

    def fileno(self) -> int:
        """The descriptor, which can be read when something was reported."""
        return self._inotify.fileno()

    def watch(self, groups: Collection[str]) -> frozenset[str]:
        """Watch these groups and no others; in the order given, as many as there may be. What is in those that were not
        watched before, as nothing reports it."""
        target = dict.fromkeys(groups)
        for group in [group for group in self._watches if group not in target]:
            self._drop(group)
        self.why = ""
        fresh = [group for group in target if group not in self._watches]
        free = max(0, self._most - len(self._watches))
        if len(fresh) > free:
            self.why = f"only {self._most} of {len(target)} groups are watched"
        for group in fresh[:free]:
            self._add(group)
        return frozenset(child for group in fresh[:free] for child in self._children(group))

    def wait(self, seconds: float) -> bool:
        """Pass `seconds` at most; True when something was reported."""
        return bool(self._epoll.poll(max(0.0, seconds), 1))

    def take(self) -> Notices:
        """Groups that were reported, without waiting."""
        created, lost, watched = set[str](), False, frozenset(self._watches)
        for watch, mask, name in self._inotify.events():
            parent = self._groups.get(watch)
            lost = lost or bool(mask & inotify.OVERFLOW)
            if mask & inotify.IGNORED and parent is not None:
                self._forget(parent)
            elif mask & inotify.CREATE and mask & inotify.ISDIR and parent is not None:
                created.add(f"{parent}/{name}")
        for group in created & watched:
            # A group of this name was made once more: the watch is on the one that ended.
            if group in self._watches:
                self._drop(group)
            self._add(group)
        return Notices(frozenset(created), lost)

    def close(self) -> None:
        """Give the descriptor and all watches back."""
        self._epoll.close()
        self._inotify.close()
        self._groups, self._watches = {}, {}

    def _children(self, group: str) -> list[str]:
        try:
            return [f"{group}/{name}" for name in self._cgroups.children(group)]
        except OSError as error:
            if not vanished(error):
                self.why = f"group {group} cannot be listed: {error}"
            return []

    def _add(self, group: str) -> None:
        try:
            watch = self._inotify.add(self._cgroups.folder(group, "cpu"), inotify.CREATE | inotify.ONLYDIR)
        except OSError as error:
            if not vanished(error):
                self.why = f"group {group} is not watched: {error}"
            return
        self._groups[watch], self._watches[group] = group, watch

    def _drop(self, group: str) -> None:
        self._inotify.remove(self._watches[group])
        self._forget(group)

    def _forget(self, group: str) -> None:
        self._groups.pop(self._watches.pop(group), None)
