"""Admission where only amounts by NUMA node are known, as a report has them, and no CPU ids.

Source: kubelet 1.36, `cm/cpumanager/policy_static.go` and `cm/devicemanager`: CPUs and devices of an init container
that has ended are used again, so a hint for a later container has to contain them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from koordlite.numa.nrt import filter as nrt

Policy = Literal["single-numa-node", "restricted"]
Nodes = tuple[int, ...]
Bound = dict[str, tuple[Nodes, int]]
"""Resource → the NUMA nodes where ended init containers have some of it, and how much can be used again there."""

MOST_PATHS = 200
"""Ways to place a pod that are followed; a pod with more of them is refused until it is known what is free."""


def align(
    asked: nrt.Request, policy: Policy, *, zones: nrt.Zones, at_most: nrt.Zones, totals: nrt.Zones, scope: str
) -> nrt.Fit:
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
    parts, is_single = asked.of_scope(scope), policy == "single-numa-node"
    if len(parts) == 1 or (at_most is zones and not any(part.kind == "init" and part.taken for part in parts)):
        if is_single:
            return nrt.align(asked, zones=zones, allocatable=None, scope=scope)
        return nrt.align_restricted(asked, zones=zones, totals=totals, scope=scope)
    fitting = _single if is_single else lambda part, free: nrt.preferred(part, free, totals)
    return _Paths(parts, fitting).follow(0, zones, at_most, {})


def _single(part: nrt.Part, zones: nrt.Zones) -> Iterator[Nodes]:
    """Each NUMA node that has enough; () where nothing that is asked for is counted by NUMA node."""
    listed = {name for zone in zones.values() for name in zone}
    wanted = [each for each in part.wanted if each[0] in listed]
    if not wanted:
        yield ()
        return
    for node in sorted(zones):
        zone = zones[node]
        if all(name in zone and (not counted or zone[name] >= amount) for name, amount, counted in wanted):
            yield (node,)


class _Paths:
    """All ways in which kubelet may place the parts one after the other."""

    def __init__(self, parts: Sequence[nrt.Part], fitting: Callable[[nrt.Part, nrt.Zones], Iterator[Nodes]]) -> None:
        """`fitting`: the sets of NUMA nodes that can hold a part, in the order in which kubelet prefers them."""
        self._parts, self._fitting, self._left = parts, fitting, MOST_PATHS

    def follow(self, place: int, least: nrt.Zones, most: nrt.Zones, bound: Bound) -> nrt.Fit:
        """Place the parts from `place` on; the answer is that of the case in which the least is free, or a refusal."""
        if place == len(self._parts):
            return nrt.Fit()
        self._left -= 1
        part = self._parts[place]
        sure = next(self._reachable(part, least, bound), None)
        if sure is None or self._left < 0:
            return nrt.Fit(why_not=nrt.REFUSED[part.kind])
        if not sure:
            return self.follow(place + 1, least, most, bound)
        fit = nrt.Fit()
        for nodes in self._possible(part, sure, least, most, bound):
            after = dict(bound)
            _use_again(part, nodes, after)
            taken = () if part.kind == "init" else nodes
            less = nrt.without(least, taken, part.taken)
            fit = self.follow(place + 1, less, less if most is least else nrt.without(most, taken, part.taken), after)
            if fit.why_not:
                return fit
        return fit if part.kind == "init" else nrt.Fit(((part, sure), *fit.placed))

    def _possible(
        self, part: nrt.Part, sure: Nodes, least: nrt.Zones, most: nrt.Zones, bound: Bound
    ) -> Iterator[Nodes]:
        """NUMA nodes that kubelet prefers and that may have enough, then those that surely have."""
        if most is not least:
            yield from itertools.takewhile(lambda nodes: nodes != sure, self._reachable(part, most, bound))
        yield sure

    def _reachable(self, part: nrt.Part, zones: nrt.Zones, bound: Bound) -> Iterator[Nodes]:
        """Select the hints that contain all that can be used again of what the part asks for."""
        needed = {node for name in part.taken if name in bound for node in bound[name][0]}
        return (nodes for nodes in self._fitting(part, zones) if not nodes or needed.issubset(nodes))


def _use_again(part: nrt.Part, nodes: Nodes, bound: Bound) -> None:
    """Memory binds nobody. Of CPUs it is not known which ones a container takes, so some may be left to bind others."""
    for name, amount in part.taken.items():
        if name == "memory" or name.startswith("hugepages-"):
            continue
        _, left = bound.get(name, (nodes, 0))
        if part.kind == "init":
            bound[name] = (nodes, max(left, amount))
        elif name != "cpu" and left <= amount:
            bound.pop(name, None)
        elif name != "cpu" and name in bound:
            bound[name] = (bound[name][0], left - amount)
