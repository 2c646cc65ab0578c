"""Waits of services for a CPU: the run delay of a bounded number of their threads, in turns.

The kernel counts for each thread how long it ran and how long it was ready and did not run (`/proc/TID/schedstat`),
whatever kernel.sched_schedstats is. A kernel that does not count may have pressure by group on v2, which says when a
thread or more of the group waited. A thread that its group's own quota has stopped waits too: such intervals are left
out.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.host import procfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.picture.groups import Cgroup, PodGroups
from koordlite.model.picture.usage import CPUWait
from koordlite.ports import Files

WINDOW_SECONDS = 5.0
THREADS_OF_A_POD = 16
"""Number of sampled threads, those that ran most so far: a server has few threads that work, and many that sleep."""
MOST_CANDIDATES = 128
"""Threads of a pod among which these are chosen."""
THREADS_A_TICK = 192
"""The pods beyond that have their turn in the next tick."""
LIST_SECONDS = 10.0
"""Time for which a pod keeps the threads that were chosen."""
LISTS_A_TICK = 8
"""Pods whose threads are chosen in a tick, while nobody asks how long they wait."""
THREADS_OF_A_SURGE = 32
"""Threads that are looked at when a surge is suspected: those of the pods that use most."""

Counters = Mapping[int | str, tuple[int, int, int]]
"""Counters by thread, or by group where the kernel only counts so: ns that it ran, ns that it waited, and number of
times that quotas have stopped its pod."""


class _Point(msgspec.Struct, frozen=True):
    time: float
    ran_ns: int
    waited_ns: int


class _SampledPod(msgspec.Struct):
    """State of a pod."""

    place: PodGroups | None = None
    limited: tuple[str, ...] = ()
    """Its groups with a quota."""
    threads: tuple[int, ...] = ()
    listed_at: float | None = None
    tried_at: float = -math.inf
    """Time of the last try to list its threads."""
    counters: Counters = msgspec.field(default_factory=dict)
    points: collections.deque[_Point] = msgspec.field(default_factory=collections.deque)


class CPUWaitReader:
    """Remembers the counters of sampled threads."""

    def __init__(self, files: Files, cgroups: Cgroups) -> None:
        self._files, self._cgroups = files, cgroups
        self._pods: dict[str, _SampledPod] = {}

    def read(self, now: float, places: Mapping[str, PodGroups], limits: Mapping[str, Cgroup]) -> dict[str, CPUWait]:
        """The last window of each pod of `places`, by uid; `limits` are the limits of their groups. A pod that cannot
        be read, or has been seen once only, has none."""
        pods, budget = self._sampled(places, limits), THREADS_A_TICK
        # Those that have waited longest for their turn stand first.
        for uid in sorted(pods, key=lambda uid: pods[uid].points[-1].time if pods[uid].points else -1.0):
            if budget <= 0:
                break
            budget -= 1 + self._sample(now, pods[uid], places[uid])
        return {uid: window for uid, pod in pods.items() if (window := _window(pod))}

    def follow(self, now: float, places: Mapping[str, PodGroups], limits: Mapping[str, Cgroup]) -> None:
        """Keep the threads of each pod at hand, a few pods a tick and the first of `places` first; count nothing."""
        pods = self._sampled(places, limits)
        due = (uid for uid, pod in pods.items() if pod.listed_at is None or now - pod.listed_at >= LIST_SECONDS)
        # One that cannot be listed is behind those that were not tried since.
        for uid in sorted(due, key=lambda uid: pods[uid].tried_at)[:LISTS_A_TICK]:
            pods[uid].tried_at = now
            with contextlib.suppress(OSError, ValueError):  # It went away, or is not there yet.
                self._choose(now, pods[uid], places[uid])

    def counters(self, uids: Iterable[str]) -> Counters:
        """The counters of threads of these pods at this moment, those of the first pods first."""
        counters: dict[int | str, tuple[int, int, int]] = {}
        for uid in uids:
            room = THREADS_OF_A_SURGE - len(counters)
            if room <= 0:
                break
            if uid in self._pods:
                with contextlib.suppress(OSError, ValueError):  # It went away.
                    counters |= self._counters(self._pods[uid], self._pods[uid].threads[:room])
        return counters

    def _sampled(self, places: Mapping[str, PodGroups], limits: Mapping[str, Cgroup]) -> dict[str, _SampledPod]:
        """The pods at these places, with what is known of them so far."""
        self._pods = {uid: self._pods.get(uid) or _SampledPod() for uid in places}
        for uid, pod in self._pods.items():
            pod.place = places[uid]
            pod.limited = tuple(g for g in pod.place.all if g in limits and (limits[g].quota_us or -1) > 0)
        return self._pods

    def _sample(self, now: float, pod: _SampledPod, place: PodGroups) -> int:
        """Add a point to `pod`; how many files that took, about."""
        candidates = 0
        try:
            if pod.listed_at is None or now - pod.listed_at >= LIST_SECONDS:
                candidates = self._choose(now, pod, place)
            counters = self._counters(pod, pod.threads)
        except (OSError, ValueError):
            pod.points.clear()  # It went away, is not there yet, or holds no number: no window says so.
            return 1
        if not counters:
            pod.points.clear()
            return 1
        ran, waited = between(pod.counters, counters)
        last = pod.points[-1] if pod.points else _Point(now, 0, 0)
        pod.points.append(_Point(now, last.ran_ns + ran, last.waited_ns + waited))
        while len(pod.points) > 2 and pod.points[1].time <= now - WINDOW_SECONDS:
            pod.points.popleft()
        pod.counters = counters
        return candidates + len(counters)

    def _choose(self, now: float, pod: _SampledPod, place: PodGroups) -> int:
        groups = (*place.containers.values(),) or (place.group,)
        listed = itertools.islice((tid for group in groups for tid in self._cgroups.threads(group)), MOST_CANDIDATES)
        threads = sorted(set(listed) - {0})
        times = self._times(threads) if len(threads) > THREADS_OF_A_POD else {}
        busiest = sorted(threads, key=lambda tid: -times.get(tid, (0, 0))[0])[:THREADS_OF_A_POD]
        pod.threads, pod.listed_at = tuple(busiest), now
        return len(times)

    def _times(self, threads: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Counters of the threads that are still there; empty where the kernel does not count."""
        times = {tid: delay for tid in threads if (delay := procfs.run_delay(self._files, tid))}
        return times if any(ran or waited for ran, waited in times.values()) else {}

    def _counters(self, pod: _SampledPod, threads: Iterable[int]) -> Counters:
        """Counters by thread; by group where the kernel has pressure only, and empty where it has not even that."""
        times: Mapping[int, tuple[int, int]] | Mapping[str, tuple[int, int]] = self._times(threads)
        if not times and pod.place and self._cgroups.layout.version == 2:
            group = pod.place.group
            waited_us = procfs.pressure(self._cgroups.read_raw(group, "cpu.pressure")).some.total_us
            times = {group: (self._cgroups.cpu_usage_ns(group), waited_us * 1000)}
        stopped = sum(self._cgroups.throttling(group).throttled for group in pod.limited) if times else 0
        return {key: (ran, waited, stopped) for key, (ran, waited) in times.items()}


def between(first: Counters, second: Counters) -> tuple[int, int]:
    """ns that the threads in both ran, and that they waited; those aside that a quota of their pod stopped meanwhile:
    they waited for that."""
    both = {key for key in first.keys() & second.keys() if first[key][2] == second[key][2]}
    ran, waited = (sum(max(0, second[tid][at] - first[tid][at]) for tid in both) for at in (0, 1))
    return ran, waited


def _window(pod: _SampledPod) -> CPUWait | None:
    if len(pod.points) < 2:
        return None
    first, last = pod.points[0], pod.points[-1]
    ran, waited = last.ran_ns - first.ran_ns, last.waited_ns - first.waited_ns
    return CPUWait(first.time, last.time, ran // 1000, waited // 1000)
