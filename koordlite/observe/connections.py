"""TCP connections between the pods of the node, counted now and then: a few pods a tick, until all have been asked.

Each pod has one network namespace, whose tables any of its processes shows; so each namespace is read once a round. The
kernel walks all sockets of the machine for each table, so one without sockets is not read.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from koordlite.formulas.topology import talks
from koordlite.host import tcp_tables
from koordlite.host.bundle import Host
from koordlite.host.tcp_tables import Socket
from koordlite.model.picture.affinity import AffinityState, Connections, Talk
from koordlite.model.picture.groups import PodGroups
from koordlite.model.wire import objects
from koordlite.ports import ClusterView

PODS_A_TICK = 16
SOCKETS_A_TICK = 4096
"""Beyond that the rest of the pods waits for the next tick."""
MOST_SOCKETS = 4096
"""A pod with more is not counted: its owner decides how many it has, and they are this machine's to read."""
_PROCESSES = 3
"""How many processes of a pod are asked for its tables before it is given up: one may end meanwhile."""
HOST_NETWORK = "it uses the network of the node, so its connections cannot be told from those of others"
NO_PROCESS = "none of its processes could be asked for its connections"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How the strategy is configured."""

    enforced: bool
    sample_seconds: float
    """Time from one round to the next; 0 counts nothing."""


class ConnectionReader:
    """Remembers the last count, and the round under way. Without `wanted` nothing is read."""

    def __init__(self, host: Host, wanted: Wanted | None) -> None:
        self._host, self._wanted = host, wanted
        self._began: float | None = None
        self._waiting: deque[str] = deque()
        self._sockets: dict[str, Sequence[Socket]] = {}
        self._uncounted: dict[str, str] = {}
        self._cost, self._last = 0.0, AffinityState(enforced=bool(wanted and wanted.enforced))

    def read(self, now: float, view: ClusterView, places: Mapping[str, PodGroups]) -> AffinityState:
        """What is known of the pods in `places`; goes on with the round, or begins one when it is time."""
        if self._wanted is None:
            return self._last
        if self._wanted.sample_seconds and (self._began is None or now - self._began >= self._wanted.sample_seconds):
            self._begin(now, view.pods, places)
        if self._waiting:
            self._go_on(places)
        return self._last

    def _begin(self, now: float, pods: Iterable[objects.PodObject], places: Mapping[str, PodGroups]) -> None:
        """A round that has not ended by now is given up: it is as old as the next one would be."""
        self._began, self._cost = now, 0.0
        running = [pod for pod in pods if pod.metadata.uid in places]
        shared = {pod.metadata.uid for pod in running if pod.spec.host_network}
        self._uncounted = dict.fromkeys(sorted(shared), HOST_NETWORK)
        self._waiting = deque(pod.metadata.uid for pod in running if pod.metadata.uid not in shared)
        self._sockets = {}
        if not self._waiting:
            self._end()

    def _go_on(self, places: Mapping[str, PodGroups]) -> None:
        began, budget = self._host.clock.monotonic(), SOCKETS_A_TICK
        for _ in range(PODS_A_TICK):
            if not self._waiting or budget <= 0:
                break
            uid = self._waiting.popleft()
            if uid in places:
                budget -= self._ask(uid, places[uid])
        self._cost += self._host.clock.monotonic() - began
        if not self._waiting:
            self._end()

    def _ask(self, uid: str, place: PodGroups) -> int:
        """How many sockets were read."""
        for pid in self._processes(place):
            try:
                self._sockets[uid] = self._tables(pid)
            except (OSError, ValueError):
                continue
            except TooMany as error:
                self._uncounted[uid] = str(error)
                return 0
            return len(self._sockets[uid])
        self._uncounted[uid] = NO_PROCESS
        return 0

    def _processes(self, place: PodGroups) -> Iterable[int]:
        """Of the sandbox first, whose process stays as long as the pod does."""
        found: list[int] = []
        for group in (*place.sandboxes, *place.containers.values()):
            try:
                found += self._host.cgroups.procs(group)[:1]
            except OSError:
                continue
            if len(found) >= _PROCESSES:
                break
        return found

    def _tables(self, pid: int) -> tuple[Socket, ...]:
        """OSError when the process is gone, ValueError when the kernel's text is none we know."""
        folder, found = f"/proc/{pid}/net", list[Socket]()
        for table, statistics in (("tcp", "sockstat"), ("tcp6", "sockstat6")):
            try:
                text = self._host.files.read(f"{folder}/{statistics}")
            except FileNotFoundError:
                if table == "tcp":
                    raise
                continue  # A kernel without IPv6.
            sockets = tcp_tables.in_use(text)
            if sockets > MOST_SOCKETS:
                raise TooMany(sockets)
            if sockets:
                found += tcp_tables.established(self._host.files.read(f"{folder}/{table}"))
        return tuple(found)

    def _end(self) -> None:
        assert self._wanted is not None
        before = self._last.connections
        totals, pairs = talks.matched(self._sockets)
        ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        counted = Connections(
            rounds=1 + (before.rounds if before else 0),
            totals=totals,
            talks=tuple(Talk(first, second, number) for (first, second), number in ordered),
            uncounted=dict(self._uncounted),
            cost_seconds=self._cost,
        )
        self._last = AffinityState(enforced=self._wanted.enforced, connections=counted)
        self._sockets = {}


class TooMany(Exception):
    """A pod has more sockets than are read."""

    def __init__(self, sockets: int) -> None:
        super().__init__(f"it has {sockets} sockets, and at most {MOST_SOCKETS} of one pod are read")
