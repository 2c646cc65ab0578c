"""resctrl in the picture: groups each tick, threads when they may have changed, counters every so often."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.changes.resctrl import GROUP
from koordlite.host.bundle import Host
from koordlite.host.files import readable
from koordlite.model import keys
from koordlite.model.picture.groups import PodGroups
from koordlite.model.place import Place
from koordlite.model.pod import resctrl_protocol as protocol
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import SLO
from koordlite.resctrl import monitoring
from koordlite.resctrl.monitoring import Counters
from koordlite.resctrl.values import ROOT, CacheUse, Resctrl


class Subjects(msgspec.Struct, frozen=True):
    """Pods and host applications whose threads are to be read."""

    slo: SLO
    pods: tuple[Pod, ...]
    places: Mapping[str, PodGroups]
    host_groups: Mapping[str, str]
    ours: frozenset[Place] = frozenset()
    """Places that hold a value of ours."""

    @property
    def cgroups(self) -> tuple[str, ...]:
        """Every container's group, sandboxes and host applications included."""
        return (*(group for place in self.places.values() for group in place.inside), *self.host_groups.values())

    @property
    def requests(self) -> tuple[object, ...]:
        """Inputs that decide which group a thread belongs to: when it changes, all threads are read."""
        asking = (pod for pod in self.pods if keys.POD_RESCTRL in pod.annotations)
        notes = tuple((pod.uid, pod.active, pod.annotations[keys.POD_RESCTRL]) for pod in asking)
        return (tuple((qos, each.enable) for qos, each in self.slo.resctrl.items()), notes)

    @property
    def are_any(self) -> bool:
        """Tell whether there is a group, or one is asked for: else no thread matters."""
        is_annotated = any(keys.POD_RESCTRL in pod.annotations and pod.active for pod in self.pods)
        return is_annotated or any(each.enable for each in self.slo.resctrl.values()) or _have_ours(self.ours)


@functools.lru_cache(maxsize=4)
def _have_ours(ours: frozenset[Place]) -> bool:
    """Asked in every tick, of the same hundreds of places."""
    return any(place.kind.is_resctrl for place in ours)


class ResctrlReader:
    """Reads resctrl for the picture. Remembers processes and counters from one tick to the next."""

    def __init__(self, host: Host, *, tasks_seconds: float, monitor_seconds: float = 0.0) -> None:
        """All threads are read each `tasks_seconds`, counters each `monitor_seconds` (0: never)."""
        self._host = host
        self._tasks_seconds, self._monitor_seconds = tasks_seconds, monitor_seconds
        self._tasks_at: float | None = None
        self._requests: tuple[object, ...] = ()
        self._below: dict[str, list[str]] = {}
        self._processes: dict[str, bytes] = {}
        self._measured_at: float | None = None
        self._counters: dict[str, dict[int, Counters]] = {}
        self._use: dict[str, dict[int, CacheUse]] = {}

    def read(self, subjects: Subjects) -> Resctrl:
        """Groups as they are; threads of containers whose processes changed, of all of them when it is time.

        A thread begins in the group of the one that made it, so that only a process that comes from outside can be in
        the wrong one: a container that starts, a command executed in one.
        """
        try:
            if subjects.are_any and self._host.resctrl.is_mounted():
                return self._with_threads(subjects)
            self._tasks_at = None
            return self._measured(self._host.resctrl.read(), subjects)
        except OSError as error:
            # The rest of the picture is needed all the same.
            self._tasks_at = None
            return Resctrl(absent=f"{self._host.resctrl.root} cannot be read: {error}")

    def _with_threads(self, subjects: Subjects) -> Resctrl:
        changed = self._changed(subjects)
        pods = (protocol.pod_group(pod.uid) for pod in subjects.pods if keys.POD_RESCTRL in pod.annotations)
        read = self._host.resctrl.read(with_tasks=(*protocol.CLASS_GROUPS, *pods) if changed else ())
        threads = {group: readable(self._host.cgroups.threads, group) or () for group in changed}
        monitors = {name: self._host.resctrl.tasks(name) for name in _monitors(subjects.ours)} if changed else {}
        return self._measured(dataclasses.replace(read, threads=threads, monitors=monitors), subjects)

    # ── threads ──

    def _changed(self, subjects: Subjects) -> tuple[str, ...]:
        """The cgroups whose threads have to be read."""
        now, groups, requests = self._host.clock.monotonic(), subjects.cgroups, subjects.requests
        due = self._tasks_at is None or now - self._tasks_at >= self._tasks_seconds or requests != self._requests
        if due:
            self._tasks_at, self._requests = now, requests
            trees = {group: tuple(self._host.cgroups.tree(group)) for group in groups}
            self._below = {group: below for group, (_, *below) in trees.items() if below}
        before, self._processes = self._processes, {group: self._procs(group) for group in groups}
        return groups if due else tuple(g for g in groups if self._processes[g] != before.get(g))

    def _procs(self, group: str) -> bytes:
        """The processes of a cgroup and of those below it that existed when all threads were last read."""
        below = (group, *self._below.get(group, ()))
        return b"".join(readable(self._host.cgroups.read_raw, each, "procs") or b"" for each in below)

    # ── counters ──

    def _measured(self, read: Resctrl, subjects: Subjects) -> Resctrl:
        """The last measurement goes into the picture until the next one."""
        if not self._monitor_seconds or read.absent or read.monitor is None:
            return read
        now = self._host.clock.monotonic()
        if self._measured_at is None or now - self._measured_at >= self._monitor_seconds:
            measurable = [group for group in read.groups if group == ROOT or protocol.may_be_ours(group)]
            self._count([*measurable, *_monitors(subjects.ours)], now)
        return dataclasses.replace(read, use=self._use)

    def _count(self, groups: Iterable[str], now: float) -> None:
        seconds = 0.0 if self._measured_at is None else now - self._measured_at
        before, counters = self._counters, {g: each for g in groups if (each := self._host.resctrl.counters(g))}
        self._use = {group: monitoring.use(before.get(group, {}), each, seconds) for group, each in counters.items()}
        self._counters, self._measured_at = counters, now


def _monitors(ours: Iterable[Place]) -> list[str]:
    """Monitoring groups that are in the undo journal."""
    groups = (place.part("group") for place in ours if place.kind is GROUP)
    return sorted(group for group in groups if "/mon_groups/" in group)
