"""TCP connections between the pods of the node, counted now and then in a thread of its own beside the ticks.

Each pod has one network namespace, whose tables any of its processes shows; so each namespace is read once a count. The
kernel walks all sockets of the machine for every table, some milliseconds on a large one. So one without sockets is not
read, the thread rests between two pods, and counts are the rarer the more they cost.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.formulas.topology import talks
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.model.picture.affinity import AffinityState, Connections, Talk
from koordlite.model.picture.groups import PodGroups
from koordlite.model.wire import affinity, objects
from koordlite.ports import ClusterView, Files
from koordlite.resctrl.files import LocalFiles
from koordlite.strategies.shared.affinity import Config
from koordlite.threads import Worker
from koordlite.unchanged import Unchanged

PODS_A_TICK = 16
"""Pods whose processes are looked up in one tick, before the thread begins."""
MOST_SOCKETS = 4096
"""Maximum number of sockets of a pod that is counted: its owner decides how many it has, and this agent would have to
read them."""
MOST_ALTOGETHER = 65_536
"""Maximum number of sockets of all pods in one count."""
REST = 4.0
"""Rest after each pod, in times of the work for it: the thread takes a fifth of a core at most."""
MOST_OF_A_CORE = 0.01
"""Part of a core that counts may cost: the next one begins later where they cost more."""
_PROCESSES = 3
"""Processes of a pod that are asked for its tables before it is given up: one may end meanwhile."""
HOST_NETWORK = "it uses the network of the node, so its connections cannot be told from those of others"
NO_PROCESS = "none of its processes could be asked for its connections"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a count."""

    files: Files
    begin: Callable[[Callable[[], None]], object]
    wait: Callable[[float], object]
    spent: Callable[[], float]
    """CPU time of the thread so far, in seconds."""


def work_on(host: Host) -> Work:
    """Way of working: in a thread on the real machine; at once on an emulated or recorded one, whose time only passes
    in between."""
    if not isinstance(host.files, RealFiles):
        return Work(files=host.files, begin=lambda count: count(), wait=lambda _: None, spent=lambda: 0.0)

    def begin(count: Callable[[], None]) -> None:
        Worker("connections", count).start()

    return Work(files=LocalFiles(), begin=begin, wait=time.sleep, spent=time.thread_time)


class ConnectionReader:
    """Remembers the last count."""

    def __init__(self, host: Host, config: Config | None, work: Work | None = None) -> None:
        """`config` is that of the strategy, None while it is off: then nothing is read. `work` is that on `host` unless
        given."""
        self._host, self._config, self._work = host, config, work
        self._began: float | None = None
        self._waiting: deque[str] = deque()
        self._pids: dict[str, tuple[int, ...]] = {}
        self._counting, self._unchanged = False, Unchanged()
        self._connections: Connections | None = None
        self._last = AffinityState(enforced=config is not None and config.mode == "enforce")

    def read(self, now: float, view: ClusterView, places: Mapping[str, PodGroups]) -> AffinityState:
        """State of the pods; begins a count when it is time. Never waits for one."""
        if self._config is None:
            return self._last
        # While it is not known whether there is a Whitelist, no pod may be moved.
        inputs = view.oenuma, view.node, view.whitelist, view.whitelist_known
        named, allowed = self._unchanged.of("declared", inputs, lambda: _declared(view))
        if (self._last.numa_nodes, self._last.whitelist) != (named, allowed):
            self._last = msgspec.structs.replace(self._last, numa_nodes=named, whitelist=allowed)
        if not self._config.sample_seconds:
            return self._last
        last = self._connections
        interval = max(self._config.sample_seconds, last.cost_seconds / MOST_OF_A_CORE if last else 0.0)
        is_due = self._began is None or now - self._began >= interval
        if is_due and not self._waiting and not self._counting:
            self._began, self._pids = now, {}
            self._waiting = deque(pod.metadata.uid for pod in view.pods if pod.metadata.uid in places)
        for _ in range(min(PODS_A_TICK, len(self._waiting))):
            uid = self._waiting.popleft()
            if uid in places:
                self._pids[uid] = self._processes(places[uid])
        if self._pids and not self._waiting and not self._counting:
            self._begin(view.pods)
        connections = self._connections  # The thread replaces it at any moment.
        if connections is not self._last.connections:
            self._last = msgspec.structs.replace(self._last, connections=connections)
        return self._last

    def _begin(self, pods: Iterable[objects.PodObject]) -> None:
        shared = frozenset(pod.metadata.uid for pod in pods if pod.spec.host_network)
        pids, self._pids, self._counting = self._pids, {}, True
        work = self._work = self._work or work_on(self._host)
        work.begin(lambda: self._count(pids, shared, work))

    def _count(self, pids: Mapping[str, Sequence[int]], shared: frozenset[str], work: Work) -> None:
        """Make a count, in the thread. The result is replaced as a whole."""
        try:
            before = self._connections
            connections = _counts(pids, shared, work, 1 + (before.rounds if before else 0))
            self._connections = connections
        finally:
            self._counting = False

    def _processes(self, place: PodGroups) -> tuple[int, ...]:
        """First processes of its groups, the sandbox first: that one stays as long as the pod does."""
        pids: list[int] = []
        for group in (*place.sandboxes, *place.containers.values()):
            try:
                pids += self._host.cgroups.procs(group)[:1]
            except OSError:
                continue
            if len(pids) >= _PROCESSES:
                break
        return tuple(pids)


def _declared(view: ClusterView) -> tuple[Mapping[str, int], frozenset[str] | None]:
    node = view.node.metadata.name if view.node else ""
    allowed = affinity.allowed(view.whitelist) if view.whitelist_known else frozenset()
    return affinity.numa_nodes(view.oenuma, node), allowed


def _counts(processes: Mapping[str, Sequence[int]], shared: frozenset[str], work: Work, rounds: int) -> Connections:
    began, budget = work.spent(), MOST_ALTOGETHER
    sockets: dict[str, Sequence[Socket]] = {}
    uncounted: dict[str, str] = {}
    for uid, pids in processes.items():
        if uid in shared:
            uncounted[uid] = HOST_NETWORK
            continue
        start = work.spent()
        try:
            endpoints = _first(work.files, pids, min(MOST_SOCKETS, budget))
        except TooMany as error:
            uncounted[uid] = str(error)
            continue
        if endpoints is None:
            uncounted[uid] = NO_PROCESS
        else:
            sockets[uid], budget = endpoints, budget - len(endpoints)
        work.wait(REST * (work.spent() - start))
    totals, pairs = talks.matched(sockets)
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return Connections(
        rounds=rounds,
        totals=totals,
        talks=tuple(Talk(first, second, number) for (first, second), number in ordered),
        uncounted=uncounted,
        cost_seconds=work.spent() - began,
    )


def _first(files: Files, pids: Iterable[int], most: int) -> tuple[Socket, ...] | None:
    """Sockets of the first process that is still there; None when none of them is."""
    for pid in pids:
        try:
            return _tables(files, pid, most)
        except (OSError, ValueError):
            continue
    return None


def _tables(files: Files, pid: int, most: int) -> tuple[Socket, ...]:
    """OSError when the process is gone, ValueError when the kernel's text is none we know, TooMany."""
    folder, endpoints = f"/proc/{pid}/net", list[Socket]()
    for table, statistics in (("tcp", "sockstat"), ("tcp6", "sockstat6")):
        try:
            text = files.read(f"{folder}/{statistics}")
        except FileNotFoundError:
            if table == "tcp":
                raise
            continue  # A kernel without IPv6.
        sockets = in_use(text)
        if sockets + len(endpoints) > most:
            raise TooMany(sockets, most)
        if sockets:
            endpoints += established(files.read(f"{folder}/{table}"))
    return tuple(endpoints)


class TooMany(Exception):
    """A pod has more sockets than are read."""

    def __init__(self, sockets: int, most: int) -> None:
        super().__init__(f"it has {sockets} sockets, and {most} more are read")


Socket = tuple[str, str]
"""Its own endpoint, and the one of the other side."""

_ESTABLISHED = b"01"
_IPV4_IN_IPV6 = ("0000000000000000FFFF0000", "00000000000000000000FFFF")
"""Beginning of `::ffff:0:0/96` on machines of either byte order: one socket may be in the table of either family."""
_IPV6_ENDPOINT = 37
_ENDPOINT = re.compile(rb"(?:[0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]{4}\Z")
_IN_USE = re.compile(rb"^TCP6?: inuse (\d+)", re.MULTILINE)
_WAITING = re.compile(rb"^TCP: .*\btw (\d+)", re.MULTILINE)


def established(table: bytes) -> Iterator[Socket]:
    """The established connections in one table, `/proc/PID/net/tcp` or `tcp6`; its headline and lines of any other form
    are passed over. An endpoint stays the text that the kernel prints, `0100007F:1F90`: it is only compared, so that
    the byte order of the machine does not matter.

    The kernel writes a table page by page while connections come and go, so the last line may be cut.
    """
    for line in table.splitlines():
        fields = line.split(None, 4)
        if len(fields) < 4 or fields[3] != _ESTABLISHED or not (_ENDPOINT.match(fields[1])):
            continue
        if _ENDPOINT.match(fields[2]):
            yield _plain(fields[1].decode()), _plain(fields[2].decode())


def in_use(sockstat: bytes) -> int:
    """Upper bound of a namespace's TCP sockets, from its `sockstat` or `sockstat6`: what its tables will cost.

    ValueError when the text does not say.
    """
    match = _IN_USE.search(sockstat)
    if match is None:
        raise ValueError(f"no number of TCP sockets in {sockstat[:80]!r}")
    waiting = _WAITING.search(sockstat)
    return int(match[1]) + (int(waiting[1]) if waiting else 0)


def _plain(endpoint: str) -> str:
    """IPv4 inside IPv6 as the table of IPv4 has it."""
    if len(endpoint) == _IPV6_ENDPOINT and endpoint.startswith(_IPV4_IN_IPV6):
        return endpoint[24:]
    return endpoint
