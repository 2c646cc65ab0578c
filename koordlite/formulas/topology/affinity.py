"""Placement of pods that belong together onto one NUMA node, and whether there is room for them.

Numbers and values in, an answer for each pod out; which pods may be moved at all, the caller knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.model.cpuset import CPUSet


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that may be placed."""

    key: str
    """`namespace/name`: what it is called where one of two equals has to go first."""
    cpus: Mapping[int, CPUSet]
    """CPUs it would have on each NUMA node on which it may be; the smallest set of its containers."""
    demand_milli: int
    """CPU that it uses or requests, whichever is more."""
    limit_milli: int | None = None
    """CPU that it may use; None without a limit."""


class Tie(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons why two pods belong together."""

    first: str
    second: str
    """Uids."""
    connections: int = 0
    percent: int = 0
    """Share of the connections of `first` or `second` these are, of whichever they are more of."""
    group: str = ""
    """Declared by both of them with this word; then nothing has to be measured."""

    def other(self, uid: str) -> str:
        """The partner of `uid`."""
        return self.second if uid == self.first else self.first


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one pod. With `node` it goes there; `reason` is empty or says why it does not."""

    node: int | None = None
    tie: Tie | None = None
    reason: str = ""
    needs_milli: int = 0
    free_milli: int = 0
    """Free CPU of its partner's NUMA node, or of the emptiest one."""
    toward: int | None = None
    """The NUMA node it would go to."""


NO_ROOM, APART, TOO_WIDE = "no room", "apart", "too wide"


class Room:
    """Rest of each NUMA node's shared pool while pods are placed one by one."""

    def __init__(
        self,
        pools: Mapping[int, int],
        *,
        confined: Mapping[int, int],
        spread_milli: int,
        fill_percent: float,
    ) -> None:
        """`pools`: CPUs of the shared pool by NUMA node. `confined`: demand of pods that others have tied to one NUMA
        node. `spread_milli`: demand of all other pods, which run on every node in proportion to its pool."""
        self._pools, self._load = pools, {node: float(confined.get(node, 0)) for node in pools}
        self._spread, self._all, self._fill = spread_milli, sum(pools.values()), fill_percent

    def free_milli(self, node: int, *, percent: float | None = None) -> int:
        """CPU left on the node below `percent` of its pool, by default the fill it may reach."""
        pool = self._pools.get(node, 0)
        part = pool / self._all if self._all else 0.0
        limit = pool * 10 * (self._fill if percent is None else percent)
        return int(limit - self._load.get(node, 0.0) - self._spread * part)

    def needs_milli(self, member: Member, node: int) -> int:
        """CPU that the pod adds to the node: it runs there in part already."""
        part = self._pools.get(node, 0) / self._all if self._all else 0.0
        return int(member.demand_milli * (1 - part))

    def put(self, member: Member, node: int) -> None:
        """The pod runs on that node alone from now on."""
        self._spread -= member.demand_milli
        self._load[node] = self._load.get(node, 0.0) + member.demand_milli


def wide_enough(member: Member, node: int) -> bool:
    """Tell whether one NUMA node can give it what it uses and what it may use."""
    capacity_milli = len(member.cpus.get(node, ())) * 1000
    return capacity_milli > 0 and capacity_milli >= max(member.demand_milli, member.limit_milli or 0)


def retained(
    members: Mapping[str, Member], placed: Mapping[str, int], order: Sequence[str], room: Room
) -> tuple[dict[str, int], dict[str, str]]:
    """Placed pods that can stay, and why the others cannot. Earlier ones of `order` stay first:
    a node may be full before one leaves it, but not more than full."""
    staying: dict[str, int] = {}
    leaving: dict[str, str] = {}
    for uid in order:
        node = placed[uid]
        member = members[uid]
        if not wide_enough(member, node):
            leaving[uid] = TOO_WIDE
        elif room.needs_milli(member, node) > room.free_milli(node, percent=100):
            leaving[uid] = NO_ROOM
        else:
            room.put(member, node)
            staying[uid] = node
    return staying, leaving


def placed(
    members: Mapping[str, Member],
    ties: Iterable[Tie],
    where: Mapping[str, int],
    room: Room,
) -> dict[str, Outcome]:
    """An outcome for each member of a tie that is nowhere yet. `where`: the NUMA node of pods that are on one, be it
    that they were placed or that others have tied them to it. The ties are gone through in their order."""
    now = dict(where)
    outcomes: dict[str, Outcome] = {}
    for tie in ties:
        here, there = now.get(tie.first), now.get(tie.second)
        new = [uid for uid in (tie.first, tie.second) if uid not in now]
        if here is not None and there is not None:
            continue
        if any(uid not in members for uid in new):
            continue
        toward = here if here is not None else there
        for uid, outcome in _together(tie, [(uid, members[uid]) for uid in new], toward, room).items():
            if outcome.node is not None:
                now[uid] = outcome.node
                outcomes[uid] = outcome
            else:
                outcomes.setdefault(uid, outcome)
    return outcomes


def _together(tie: Tie, new: Sequence[tuple[str, Member]], toward: int | None, room: Room) -> Mapping[str, Outcome]:
    """A pod joins its partner on the node `toward`, or both go to the node with most room; together or not at all."""
    nodes = sorted(set.intersection(*({*member.cpus} for _, member in new)) if toward is None else {toward})
    wide = [node for node in nodes if all(wide_enough(member, node) for _, member in new)]
    if not wide:
        wanting = {node for _, member in new for node in member.cpus}
        reason = TOO_WIDE if set(nodes) & wanting else APART
        return {uid: Outcome(tie=tie, reason=reason, toward=toward) for uid, _ in new}
    best = max(wide, key=lambda node: (room.free_milli(node), -node))
    needs = sum(room.needs_milli(member, best) for _, member in new)
    free = room.free_milli(best)
    if needs > free:
        refused = Outcome(tie=tie, reason=NO_ROOM, needs_milli=needs, free_milli=max(free, 0), toward=best)
        return {uid: refused for uid, _ in new}
    for _, member in new:
        room.put(member, best)
    return {uid: Outcome(node=best, tie=tie) for uid, _ in new}


def memory_fits(growth: Sequence[tuple[str, int, bool]], *, free: int, reserve: int) -> frozenset[str]:
    """Pods of one NUMA node that may be given memory of it alone: as much as all of them may still take (`growth`:
    uid, bytes, whether it is so already) is free there. One that is new leaves `reserve` bytes besides; one that is so
    already stays as long as there is anything left. The kernel ends processes when such a node is full, although others
    have memory."""
    fitting: set[str] = set()
    total = 0
    for uid, needs, already in sorted(growth, key=lambda each: (not each[2], each[1], each[0])):
        if total + needs <= free - (0 if already else reserve):
            fitting.add(uid)
            total += needs
    return frozenset(fitting)
