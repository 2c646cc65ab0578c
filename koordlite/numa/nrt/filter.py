"""Fit of a pod where only amounts by NUMA node are known, as a report has them: the filter of scheduler-plugins, and
kubelet's admission.

Source: scheduler-plugins NodeResourceTopologyMatch, filter.go and pluginhelpers.go. Amounts are integers of nano-units,
so that they compare exactly; a zone is what one NUMA node has available. Differences, named in docs/compatibility.md: a
sidecar keeps what it takes, zones are known by id and may have gaps, and `restricted` is checked. Source of `admit`:
kubelet 1.36, `cm/cpumanager/policy_static.go`, `cm/devicemanager` and `topologymanager/policy.go`: CPUs and devices of
an init container that has ended are used again, so a hint for a later container has to contain them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from koordlite.model.cpuset import CPUSet
from koordlite.numa.kubelet.requests import peak

Amounts = Mapping[str, int]
"""Nano-units by resource name."""
Zones = Mapping[int, Amounts]
"""Available amounts by NUMA node id."""
NANO = 10**9

POD_REFUSED = "cannot align pod"
REFUSED = {
    "init": "cannot align init container",
    "sidecar": "cannot align init container",
    "app": "cannot align container",
    "pod": POD_REFUSED,
}
_HOST_LEVEL = frozenset({"ephemeral-storage", "storage"})


def cpu_left(reported: int | None, cpus: CPUSet, free: CPUSet) -> int:
    """CPU that a NUMA node has left for pods with CPUs of their own, in nano-units.

    What the report says is available, and no more than its `cpus` that are `free`: neither reserved nor anybody's own.
    Kubelet's amounts know neither a reservation by annotation nor CPUs that Koordinator's scheduler promised: a pod
    admitted for the difference would get these very CPUs. None: the report does not list CPU.
    """
    whole = NANO * len(cpus & free)
    return whole if reported is None else min(whole, reported)


class Part(msgspec.Struct, frozen=True):
    """Request of a container, or of a pod as a whole. `name` is the container's."""

    kind: Literal["init", "sidecar", "app", "pod"]
    name: str
    requests: tuple[tuple[str, int, bool], ...]
    """Resource, amount, and whether the amount has to be free on the NUMA node; else it only has to be listed there."""

    usage: Amounts = msgspec.field(default_factory=dict)
    """Amounts it takes from its NUMA node."""


class AlignedRequest(msgspec.Struct, frozen=True):
    """Request of a pod, ready to be compared with many nodes."""

    parts: tuple[Part, ...]
    """Init containers and sidecars in their order, then app containers."""
    whole: Part

    def of_scope(self, scope: str) -> tuple[Part, ...]:
        """Units of alignment: each container, or the pod."""
        return (self.whole,) if scope == "pod" else self.parts


class Fit(msgspec.Struct, frozen=True):
    """The NUMA nodes of each part that takes something for good, or `why_not`."""

    placed: tuple[tuple[Part, tuple[int, ...]], ...] = ()
    why_not: str = ""

    @property
    def nodes(self) -> tuple[int, ...]:
        """All NUMA nodes used."""
        return tuple(sorted({node for _, nodes in self.placed for node in nodes}))


Containers = Sequence[tuple[Literal["init", "sidecar", "app"], str, Amounts]]
"""Kind, name and requests, in the order in which they start."""


def request(containers: Containers, *, guaranteed: bool, overhead: Amounts) -> AlignedRequest:
    """A pod's requests as scheduler-plugins counts them: of a pod that is not Guaranteed only devices by amount."""

    def part(kind: Literal["init", "sidecar", "app", "pod"], name: str, amounts: Amounts) -> Part:
        rows = tuple((r, amount, guaranteed or not is_shared(r)) for r, amount in amounts.items() if amount > 0)
        return Part(kind, name, rows, {resource: amount for resource, amount, by_amount in rows if by_amount})

    # Source of the pod's sum: Kubernetes component-helpers, resource.PodRequests.
    names = dict.fromkeys(resource for _, _, amounts in containers for resource in amounts)
    total = {r: peak((amounts.get(r, 0), kind == "init") for kind, _, amounts in containers) for r in names}
    add(total, overhead)
    return AlignedRequest(tuple(part(*container) for container in containers), part("pod", "", total))


def aligned_by_kubelet(containers: Containers, *, guaranteed: bool) -> AlignedRequest:
    """A pod's requests as kubelet's managers hint about them: devices, and of a Guaranteed pod memory and whole CPUs.

    A container that asks for a part of a CPU gets none of its own, and overhead belongs to no container. Source:
    kubelet 1.36, cpumanager/policy_static.go and memorymanager/policy_static.go.
    """

    def own(amounts: Amounts) -> dict[str, int]:
        return {r: amount for r, amount in amounts.items() if is_own(r, amount, guaranteed=guaranteed)}

    aligned = [(kind, name, own(amounts)) for kind, name, amounts in containers]
    return request(aligned, guaranteed=guaranteed, overhead={})


def is_own(resource: str, amount: int, *, guaranteed: bool) -> bool:
    """Tell whether a container has so much of it to itself: devices, and of a Guaranteed pod memory and whole CPUs."""
    if not is_shared(resource):
        return not is_native(resource)
    return guaranteed and (resource != "cpu" or amount % NANO == 0)


def add(into: dict[str, int], more: Amounts) -> None:
    """Add `more` to `into`, name by name."""
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def is_shared(resource: str) -> bool:
    """Handed out by share, not by piece, unless the pod is Guaranteed."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def is_native(resource: str) -> bool:
    """Kubernetes' own, by a name without a domain or of `kubernetes.io`; anything else is a device."""
    return "/" not in resource or "kubernetes.io/" in resource


def only_native(pod: AlignedRequest) -> bool:
    """Tell whether no container asks for a device."""
    return all(is_native(name) for part in pod.parts for name, _, _ in part.requests)


def align(pod: AlignedRequest, *, zones: Zones, allocatable: Amounts | None, scope: str) -> Fit:
    """Place the pod, or each container, on one NUMA node each: what `single-numa-node` admits.

    `allocatable` is the node's; None: it is not asked about, and what no zone lists is not aligned, as kubelet does it.
    A container takes from the lowest NUMA node that holds it; one that ends before the next starts takes nothing.
    """
    placed: list[tuple[Part, tuple[int, ...]]] = []
    parts = pod.of_scope(scope)
    last = len(parts) - 1
    for place, part in enumerate(parts):
        node = fit_zone(part, zones, allocatable)
        if node is None:
            return Fit(why_not=REFUSED[part.kind])
        if part.kind != "init" and node in zones:
            placed.append((part, (node,)))
            if place < last:
                zones = without(zones, (node,), part.usage)
    return Fit(tuple(placed))


def fit_zone(part: Part, zones: Zones, allocatable: Amounts | None) -> int | None:
    """The lowest NUMA node that has enough of everything asked for; None when there is none."""
    lowest = -1
    for node, zone in zones.items():
        if lowest >= 0 and node > lowest:
            continue
        for name, amount, by_amount in part.requests:
            free = zone.get(name)
            if free is None or (by_amount and free < amount):
                break
        else:
            lowest = node
    if lowest >= 0 and (allocatable is None or all(name in allocatable for name, _, _ in part.requests)):
        return lowest
    return _fit_some(part, zones, allocatable)


def _fit_some(part: Part, zones: Zones, allocatable: Amounts | None) -> int | None:
    """The same where not every resource is listed by every zone."""
    rows = [each for each in part.requests if not _is_of_the_machine(each[0], zones, allocatable)]
    if allocatable is not None and any(name not in allocatable for name, _, _ in rows):
        return None
    fitting = [
        node
        for node, zone in zones.items()
        if all(name in zone and (not by_amount or zone[name] >= amount) for name, amount, by_amount in rows)
    ]
    return min(fitting, default=None if rows else 0)


def _is_of_the_machine(name: str, zones: Zones, allocatable: Amounts | None) -> bool:
    """Tell whether a resource is the machine's and no NUMA node's: storage, and devices of the node that no zone
    lists."""
    possible = allocatable is None or name in _HOST_LEVEL or (name in allocatable and not is_native(name))
    return possible and not any(name in zone for zone in zones.values())


def without(zones: Zones, nodes: Sequence[int], amounts: Amounts) -> dict[int, Amounts]:
    """The zones after `amounts` were taken from `nodes`, each giving what it has before the next is asked."""
    remaining, after = dict(amounts), dict(zones)
    for node in nodes:
        zone = after.get(node)
        if zone is None:
            continue
        fewer = dict(zone)
        for name, amount in remaining.items():
            if name in fewer:
                share = min(amount, fewer[name])
                fewer[name] -= share
                remaining[name] = amount - share
        after[node] = fewer
    return after


def preferred(part: Part, zones: Zones, totals: Zones) -> Iterator[tuple[int, ...]]:
    """The sets of NUMA nodes that every counted resource prefers under `restricted`, the lowest first: as few as an
    empty machine would need. () when none is counted. Since kubelet 1.26 a merged hint is preferred only when all
    hints are preferred and have one mask."""
    amounts = [(name, amount) for name, amount, is_counted in part.requests if is_counted]
    listed = {name for zone in zones.values() for name in zone}
    amounts = [(name, amount) for name, amount in amounts if name in listed]
    sizes = {_smallest(name, amount, totals) for name, amount in amounts}
    if not sizes:
        yield ()
        return
    size = sizes.pop()
    if sizes or size is None:
        return  # Resources that need different numbers of NUMA nodes never have one mask.
    for nodes in sorted(itertools.combinations(sorted(zones), size), key=lambda nodes: nodes[::-1]):
        if all(sum(zones[node].get(name, 0) for node in nodes) >= amount for name, amount in amounts):
            yield nodes


def _smallest(name: str, amount: int, totals: Zones) -> int | None:
    """Number of NUMA nodes that an empty machine would need for the amount."""
    total = 0
    for size, most in enumerate(sorted((zone.get(name, 0) for zone in totals.values()), reverse=True), 1):
        total += most
        if total >= amount:
            return size
    return None


Policy = Literal["single-numa-node", "restricted"]
Nodes = tuple[int, ...]
Bound = dict[str, tuple[Nodes, int]]
"""Resource → the NUMA nodes where ended init containers have some of it, and how much can be used again there."""

MOST_PATHS = 200
"""Ways to place a pod that are followed; a pod with more of them is refused until it is known what is free."""


def admit(pod: AlignedRequest, policy: Policy, *, zones: Zones, at_most: Zones, totals: Zones, scope: str) -> Fit:
    """Place the pod, or each container, as the policy admits it, on the lowest NUMA nodes that kubelet would take.

    `zones` is what is available at least, `at_most` what may be there if pods that were bound took from other NUMA
    nodes: a container that goes to a lower NUMA node than expected can leave too little for the next one, so a pod of
    several containers fits only where it fits in every case. `totals` is what each NUMA node may hand out at most.

    Under `single-numa-node` it never says yes where kubelet says no; under `restricted`, where a container on several
    NUMA nodes takes from each of them is a guess. Where both amounts are the same it can say no where kubelet says yes
    for pods with several app containers beside an init container with CPUs of its own: which CPUs are used again
    decides then, and amounts do not tell. And for pods whose memory as a whole fits nowhere, not even on several NUMA
    nodes: kubelet's memory manager then hints nothing at all, and scope `pod` lets them pass, on several NUMA nodes.
    """
    parts, is_single = pod.of_scope(scope), policy == "single-numa-node"
    if is_single and (len(parts) == 1 or (at_most is zones and not any(p.kind == "init" and p.usage for p in parts))):
        return align(pod, zones=zones, allocatable=None, scope=scope)
    fitting = _single if is_single else lambda part, free: preferred(part, free, totals)
    return _Paths(parts, fitting).follow(0, zones, at_most, {})


def _single(part: Part, zones: Zones) -> Iterator[Nodes]:
    """Each NUMA node that has enough; () where nothing that is asked for is counted by NUMA node."""
    listed = {name for zone in zones.values() for name in zone}
    rows = [each for each in part.requests if each[0] in listed]
    if not rows:
        yield ()
        return
    for node in sorted(zones):
        zone = zones[node]
        if all(name in zone and (not by_amount or zone[name] >= amount) for name, amount, by_amount in rows):
            yield (node,)


class _Paths:
    """All ways in which kubelet may place the parts one after the other."""

    def __init__(self, parts: Sequence[Part], fitting: Callable[[Part, Zones], Iterator[Nodes]]) -> None:
        """`fitting`: the sets of NUMA nodes that can hold a part, in the order in which kubelet prefers them."""
        self._parts, self._fitting, self._paths_left = parts, fitting, MOST_PATHS

    def follow(self, place: int, least: Zones, most: Zones, bound: Bound) -> Fit:
        """Place the parts from `place` on; the answer is that of the case in which the least is free, or a refusal."""
        if place == len(self._parts):
            return Fit()
        self._paths_left -= 1
        part = self._parts[place]
        sure = next(self._reachable(part, least, bound), None)
        if sure is None or self._paths_left < 0:
            return Fit(why_not=REFUSED[part.kind])
        if not sure:
            return self.follow(place + 1, least, most, bound)
        fit = Fit()
        for nodes in self._possible(part, sure, least, most, bound):
            after = dict(bound)
            _use_again(part, nodes, after)
            consumed = () if part.kind == "init" else nodes
            less = without(least, consumed, part.usage)
            fit = self.follow(place + 1, less, less if most is least else without(most, consumed, part.usage), after)
            if fit.why_not:
                return fit
        return fit if part.kind == "init" else Fit(((part, sure), *fit.placed))

    def _possible(self, part: Part, sure: Nodes, least: Zones, most: Zones, bound: Bound) -> Iterator[Nodes]:
        """NUMA nodes that kubelet prefers and that may have enough, then those that surely have."""
        if most is not least:
            yield from itertools.takewhile(lambda nodes: nodes != sure, self._reachable(part, most, bound))
        yield sure

    def _reachable(self, part: Part, zones: Zones, bound: Bound) -> Iterator[Nodes]:
        """Select the hints that contain all that can be used again of what the part asks for."""
        needed = {node for name in part.usage if name in bound for node in bound[name][0]}
        return (nodes for nodes in self._fitting(part, zones) if not nodes or needed.issubset(nodes))


def _use_again(part: Part, nodes: Nodes, bound: Bound) -> None:
    """Memory binds nobody. Of CPUs it is not known which ones a container takes, so some may be left to bind others."""
    for name, amount in part.usage.items():
        if name == "memory" or name.startswith("hugepages-"):
            continue
        _, reusable = bound.get(name, (nodes, 0))
        if part.kind == "init":
            bound[name] = (nodes, max(reusable, amount))
        elif name != "cpu" and reusable <= amount:
            bound.pop(name, None)
        elif name != "cpu" and name in bound:
            bound[name] = (bound[name][0], reusable - amount)
