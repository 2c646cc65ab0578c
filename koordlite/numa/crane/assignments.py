"""CPUs of containers by Crane's policies: what was given stays, what is new comes after, pod by pod.

The result of Crane's scheduler is the pod's: its CPUs are chosen together and then divided among its containers, each
as many as it requests.

exclusive: CPUs of the pod alone. immovable: the same CPUs for life, shared with whoever has no CPUs of its own, and
given to no second such pod. numa: whatever is shared of its NUMA nodes, at any time. Source: crane-agent
`cpumanager/policy.go`; docs/compatibility.md lists where ours differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.quantity import NANO, ZERO, Quantity
from koordlite.numa.kubelet.cpu_take import take_packed
from koordlite.numa.machine import Machine
from koordlite.numa.resize import resized


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
    """Entries by pod uid and container name."""

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
        if entry.policy != "numa":
            return entry.cpus
        return CPUSet(self.shared.ids & self.machine.in_nodes(node for node, _ in entry.zones))

    def free(self, node: int) -> CPUSet:
        """CPUs of a NUMA node that may be fixed: reserved, exclusive and immovable ones are not."""
        return CPUSet((self.shared - self.immovable).ids & self.machine.in_nodes((node,)))

    def pick(self, zones: Mapping[int, int]) -> CPUSet:
        """CPUs for a topology result: on each NUMA node so many of the free ones, packed as kubelet does. ValueError
        with too few."""
        return union(take_packed(self.machine, self.free(node), count) for node, count in sorted(zones.items()))

    def with_entry(self, pod: str, container: str, entry: Entry) -> Assignments:
        """The assignments with this one."""
        theirs = {**self.entries.get(pod, {}), container: entry}
        return msgspec.structs.replace(self, entries={**self.entries, pod: theirs})

    def _fixed(self, policy: str) -> CPUSet:
        entries = (entry for theirs in self.entries.values() for entry in theirs.values())
        return union(entry.cpus for entry in entries if entry.policy == policy)


Container = tuple[str, Mapping[str, Quantity], Mapping[str, Quantity]]
"""Name, requests, limits."""


def guaranteed_cpus(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> int:
    """Whole CPUs that the container requests, where its limit is the same; else 0."""
    request = requests.get("cpu", ZERO)
    if request != limits.get("cpu", ZERO) or request.nano % NANO or request.nano < 0:
        return 0
    return request.value


def unfit(containers: Sequence[Container], only: Sequence[str]) -> str:
    """Reason why a container that the pod names in `only` cannot have CPUs alone; empty when all can."""
    by_name = {name: (requests, limits) for name, requests, limits in containers}
    for name in only:
        if name not in by_name:
            return f"it names container {name[:63]!r}, and has {', '.join(by_name)}"
        requests, limits = by_name[name]
        if not guaranteed_cpus(requests, limits):
            request, limit = requests.get("cpu", ZERO), limits.get("cpu", ZERO)
            return f"container {name} needs whole CPUs as request and limit, and has cpu {request} and {limit}"
    return ""


def targets(policy: str, containers: Sequence[Container], only: Sequence[str] = ()) -> dict[str, int]:
    """CPUs by name of the containers that are given some: of those in `only`, where it names any; none under policy
    `none`."""
    if policy == "none":
        return {}
    containers = [each for each in containers if not only or each[0] in only]
    counts = {name: guaranteed_cpus(requests, limits) for name, requests, limits in containers}
    return {name: count for name, count in counts.items() if count}


Entries = Mapping[str, Mapping[str, Entry]]
"""Entries by pod uid and container name."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Request of one pod's annotations."""

    uid: str
    policy: str
    zones: tuple[tuple[int, int], ...]
    """NUMA nodes with the CPUs on each."""
    containers: Mapping[str, int]
    """Containers that are given CPUs, with the CPUs they request, in the order of the spec."""
    barred: str = ""
    """Reason why the pod gets no CPUs by Crane's rules, whatever it asks for; empty when nothing stands against it."""


def valid_entries(before: Entries, claims: Iterable[Claim]) -> Entries:
    """Rest of `before` that still holds: the assignments of pods that ask for the same as they did."""
    by_uid = {claim.uid: claim for claim in claims if not claim.barred}
    return {uid: theirs for uid, theirs in before.items() if uid in by_uid and _same(theirs, by_uid[uid])}


def with_checkpoint(
    checkpoint: Mapping[str, Mapping[str, CPUSet]], current: Assignments, claims: Iterable[Claim]
) -> Assignments:
    """`current` with the entries of crane-agent's `checkpoint`, by pod uid and container, that are what the claims ask
    for and that nobody else has: such pods stay on their CPUs."""
    for claim in claims:
        theirs = {name: cpus for name, cpus in checkpoint.get(claim.uid, {}).items() if name in claim.containers}
        if theirs.keys() == claim.containers.keys() and _fits(union(theirs.values()), current, claim):
            for name, each in theirs.items():
                current = current.with_entry(claim.uid, name, Entry(claim.policy, claim.zones, each))
    return current


def _fits(cpus: CPUSet, current: Assignments, claim: Claim) -> bool:
    """Tell whether these CPUs are what the claim asks for, and free."""
    counts = tuple((node, len(cpus.ids & current.machine.in_nodes((node,)))) for node, _ in claim.zones)
    matches = counts == claim.zones and len(cpus) == sum(count for _, count in claim.zones)
    free = cpus <= current.shared - current.immovable and bool(current.default - cpus)
    return matches and free and claim.policy in ("exclusive", "immovable") and not claim.barred


def with_claims(
    current: Assignments, claims: Sequence[Claim], shortage: Callable[[CPUSet], str] = lambda _exclusive: ""
) -> tuple[Assignments, Mapping[str, str]]:
    """`current` with what the claims get that have nothing yet, in their order; and why the others get nothing, by uid.

    `shortage` says why not so many CPUs may be exclusive, empty when they may; what holds already stays.
    """
    refused: dict[str, str] = {}
    current = _resized(current, claims, shortage)
    for claim in claims:
        if claim.uid in current.entries:
            continue
        why = claim.barred or _objection(current, claim)
        after = current if why else _with_claim(current, claim)
        why = why or (shortage(after.exclusive) if after.exclusive != current.exclusive else "")
        if why:
            refused[claim.uid] = why
        else:
            current = after
    return current, refused


def _resized(current: Assignments, claims: Sequence[Claim], shortage: Callable[[CPUSet], str]) -> Assignments:
    """`current` after containers were resized in place: each keeps as many of its CPUs as it requests.

    One that grows again gets others as far as the pod's result reaches and they are free. First those that shrink: the
    others may need what they had.

    Ours: crane-agent leaves a container what it had, whatever it requests.
    """
    for grows, claim in itertools.product((False, True), claims):
        theirs, promised = current.entries.get(claim.uid, {}), sum(count for _, count in claim.zones)
        each_its_own = len(union(entry.cpus for entry in theirs.values())) == sum(len(e.cpus) for e in theirs.values())
        if claim.policy == "numa" or not each_its_own or sum(claim.containers.values()) > promised:
            continue
        for name, entry in theirs.items():
            count = claim.containers.get(name, 0)
            if not count or count == len(entry.cpus) or (count > len(entry.cpus)) != grows:
                continue
            try:
                cpus = resized(entry.cpus, count, current.machine, union(current.free(node) for node, _ in claim.zones))
            except ValueError:
                continue  # It keeps what it has until there is more.
            after = current.with_entry(claim.uid, name, msgspec.structs.replace(entry, cpus=cpus))
            if not grows or (after.default and not shortage(after.exclusive)):
                current = after
    return current


def contradiction(entries: Entries) -> str:
    """Reason why these assignments cannot all hold: a CPU is exclusive twice, or exclusive and immovable; empty when
    they can."""
    owners: dict[int, str] = {}
    for uid, theirs in entries.items():
        for cpu in sorted({cpu for entry in theirs.values() for cpu in entry.cpus}):
            if cpu in owners:
                return f"CPU {cpu} is given to the pods {owners[cpu]} and {uid}"
            owners[cpu] = uid
    return ""


def _same(theirs: Mapping[str, Entry], claim: Claim) -> bool:
    alike = all((entry.policy, entry.zones) == (claim.policy, claim.zones) for entry in theirs.values())
    return alike and theirs.keys() == claim.containers.keys()


def _objection(current: Assignments, claim: Claim) -> str:
    """Reason why the claim cannot be granted, with numbers; empty when it can."""
    nodes = sorted(current.machine.nodes)
    absent = [node for node, _ in claim.zones if node not in nodes]
    if absent:
        return f"it names NUMA node {absent[0]}, and this machine has {', '.join(map(str, nodes)) or 'none'}"
    if claim.policy == "numa":
        return ""
    requested, promised = sum(claim.containers.values()), sum(count for _, count in claim.zones)
    if promised > requested:
        return f"it names {promised} CPUs, and the containers request {requested}"
    short = [(node, count) for node, count in claim.zones if count > len(current.free(node))]
    if short:
        node, count = short[0]
        free = current.free(node)
        return f"{count} CPUs of NUMA node {node} are asked for, and {len(free)} are free: {free}"
    if claim.policy == "exclusive" and promised >= len(current.default):
        return (
            f"{promised} CPUs are asked for, and of {len(current.default)} shared ones one has to stay for other pods"
        )
    return ""


def _with_claim(current: Assignments, claim: Claim) -> Assignments:
    """Each container gets as many of the pod's CPUs as it requests; all of them where there are not enough."""
    cpus = EMPTY if claim.policy == "numa" else current.pick(dict(claim.zones))
    divides = bool(cpus) and sum(claim.containers.values()) == len(cpus)
    for name, count in claim.containers.items():
        part = take_packed(current.machine, cpus, count) if divides else cpus
        cpus -= part if divides else EMPTY
        current = current.with_entry(claim.uid, name, Entry(claim.policy, claim.zones, part))
    return current
