"""CPUs of containers by Crane's policies, one assignment after the other.

exclusive: CPUs of the pod alone. immovable: the same CPUs for life, shared with whoever has no CPUs of its own, and
given to no second such pod. numa: whatever is shared of its NUMA nodes, at any time. Source: crane-agent
`cpumanager/policy.go`; docs/compatibility.md lists where ours differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.quantity import NANO, Quantity
from koordlite.numa.kubelet.cpu_take import take_packed
from koordlite.numa.machine import Machine


class Entry(msgspec.Struct, frozen=True):
    """CPUs of one container."""

    policy: str
    """exclusive, immovable or numa."""
    zones: tuple[tuple[int, int], ...]
    """NUMA nodes of its topology result, with the CPUs on each."""
    cpus: CPUSet = EMPTY
    """Fixed CPUs; empty under numa, where they follow the shared pool."""


class Assignments(msgspec.Struct, frozen=True, kw_only=True):
    """All containers with CPUs by Crane's policies on one machine."""

    machine: Machine
    usable: CPUSet
    """CPUs of the machine that pods may use."""
    reserved: CPUSet = EMPTY
    """Never given to a container by these policies."""
    taken: CPUSet = EMPTY
    """CPUs that other protocols gave to pods alone."""
    entries: Mapping[str, Mapping[str, Entry]] = msgspec.field(default_factory=dict)
    """By pod uid and container name."""

    @property
    def exclusive(self) -> CPUSet:
        """CPUs of containers alone."""
        return self._fixed("exclusive")

    @property
    def immovable(self) -> CPUSet:
        """CPUs of immovable containers, which others share."""
        return self._fixed("immovable")

    @property
    def default(self) -> CPUSet:
        """CPUs of everyone who has none of his own; reserved ones are part of it."""
        return self.usable - self.exclusive - self.taken

    @property
    def shared(self) -> CPUSet:
        """`default` without the reserved CPUs: what numa containers run on."""
        return self.default - self.reserved

    def of(self, pod: str, container: str) -> CPUSet | None:
        """The present CPUs of a container; None when it has no assignment."""
        entry = self.entries.get(pod, {}).get(container)
        if entry is None:
            return None
        return self.shared & self._on(dict(entry.zones)) if entry.policy == "numa" else entry.cpus

    def free(self, node: int) -> CPUSet:
        """CPUs of a NUMA node that may be fixed: reserved, exclusive and immovable ones are not."""
        return (self.shared - self.immovable) & self._on((node,))

    def chosen(self, zones: Mapping[int, int]) -> CPUSet:
        """CPUs for a topology result: on each NUMA node so many of the free ones, packed as kubelet does. ValueError
        with too few."""
        return union(take_packed(self.machine, self.free(node), count) for node, count in sorted(zones.items()))

    def allocate(self, pod: str, container: str, policy: str, zones: Mapping[int, int]) -> Assignments:
        """With an assignment for `container`; the same when it has one already. ValueError as of `chosen`.

        A container whose result is as large as what its pod has gets the pod's CPUs: the result is the pod's.
        """
        if container in self.entries.get(pod, {}):
            return self
        held = union(entry.cpus for entry in self.entries.get(pod, {}).values())
        same = bool(held) and policy != "numa" and len(held) == sum(zones.values())
        cpus = held if same else EMPTY if policy == "numa" else self.chosen(zones)
        return self.with_entry(pod, container, Entry(policy, tuple(sorted(zones.items())), cpus))

    def with_entry(self, pod: str, container: str, entry: Entry) -> Assignments:
        """With this assignment."""
        theirs = {**self.entries.get(pod, {}), container: entry}
        return msgspec.structs.replace(self, entries={**self.entries, pod: theirs})

    def without(self, pod: str, container: str) -> Assignments:
        """Without the assignment of a container: what no sibling holds is everybody's again."""
        theirs = {name: entry for name, entry in self.entries.get(pod, {}).items() if name != container}
        others = {uid: entries for uid, entries in self.entries.items() if uid != pod}
        return msgspec.structs.replace(self, entries={**others, pod: theirs} if theirs else others)

    def _fixed(self, policy: str) -> CPUSet:
        entries = (entry for theirs in self.entries.values() for entry in theirs.values())
        return union(entry.cpus for entry in entries if entry.policy == policy)

    def _on(self, nodes: Iterable[int]) -> CPUSet:
        return CPUSet(frozenset().union(*(self.machine.nodes.get(node, frozenset()) for node in nodes)))


Container = tuple[str, Mapping[str, Quantity], Mapping[str, Quantity]]
"""Name, requests, limits."""
_ZERO = Quantity(0)


def guaranteed_cpus(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> int:
    """Whole CPUs that the container requests, where its limit is the same; else 0."""
    asked = requests.get("cpu", _ZERO)
    if asked != limits.get("cpu", _ZERO) or asked.nano % NANO or asked.nano < 0:
        return 0
    return asked.value


def unfit(containers: Sequence[Container], only: Sequence[str]) -> str:
    """Reason why a container that the pod names in `only` cannot have CPUs alone; empty when all can."""
    by_name = {name: (requests, limits) for name, requests, limits in containers}
    for name in only:
        if name not in by_name:
            return f"it names container {name[:63]!r}, and has {', '.join(by_name)}"
        requests, limits = by_name[name]
        if not guaranteed_cpus(requests, limits):
            asked, limit = requests.get("cpu", _ZERO), limits.get("cpu", _ZERO)
            return f"container {name} needs whole CPUs as request and limit, and has cpu {asked} and {limit}"
    return ""


def targets(policy: str, containers: Sequence[Container], only: Sequence[str] = ()) -> dict[str, int]:
    """CPUs by name of the containers that are given some: of those in `only`, where it names any; none under policy
    `none`."""
    if policy == "none":
        return {}
    containers = [each for each in containers if not only or each[0] in only]
    found = {name: guaranteed_cpus(requests, limits) for name, requests, limits in containers}
    return {name: count for name, count in found.items() if count}
