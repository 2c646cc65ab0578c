"""Answers of Crane's scheduler about a pod and a node: does it fit, how well, and on which NUMA nodes.

One entry, `verdict`. Source: crane-scheduler `noderesourcetopology` (filter.go, helper.go, scorer.go); its texts are
kept. docs/compatibility.md lists where ours differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.model.pod.crane import encode_result
from koordlite.model.quantity import NANO, ZERO, Quantity, add_resources, parse_resources
from koordlite.model.wire.crane import SINGLE_NUMA, STATIC, TopologyObject, Zone, numa_node
from koordlite.numa.crane import assignments
from koordlite.numa.crane.assignments import Container

NO_TOPOLOGY = "node(s) failed to get NRT"
NOT_ENOUGH = "node(s) had insufficient resource of NUMA node"
NOT_EXCLUSIVE = "pod names containers that cannot have CPUs of their own"
AWARE_RESOURCES = ("cpu",)
"""Resources that Crane's scheduler counts by NUMA node unless it is configured otherwise."""
MAX_SCORE = 100
Amounts = Mapping[str, Quantity]


class CranePod(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the pod for the scheduler."""

    containers: Sequence[Container]
    """Containers of the spec, without init containers."""
    policy: str = ""
    """`topology.crane.io/cpu-policy`; empty when the pod does not say."""
    only: Sequence[str] = ()
    """Containers that `cpus.koordlite.io/exclusive` names; empty when the pod does not say."""
    aware: bool | None = None
    """`topology.crane.io/topology-awareness`; None when the pod does not say."""
    of_daemon_set: bool = False


class CraneVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one node."""

    text: str = ""
    """Refusal of the node, in Crane's words; empty when it is not."""
    detail: str = ""
    """The same, or why Crane has no say, with numbers."""
    score: int = 0
    """0 to 100; fewer NUMA nodes are better. 0 where Crane has no say."""
    result: Mapping[str, Amounts] = msgspec.field(default_factory=dict)
    """Amounts by name of the NUMA node."""

    @property
    def passes(self) -> bool:
        """The pod fits."""
        return not self.text

    @property
    def annotation(self) -> str:
        """`topology.crane.io/topology-result` for the Binding; empty when there is nothing to write."""
        return encode_result(self.result) if self.result else ""


class _Offer(msgspec.Struct, frozen=True):
    """A NUMA node: what may be given, and what is given already, both by resource."""

    name: str
    allocatable: Amounts
    used: Amounts

    def free(self, resource: str, *, whole_cpus: bool = False) -> int:
        """Nano-units; `whole_cpus` counts no part of a CPU that could be given."""
        allocatable = self.allocatable.get(resource, ZERO).nano
        if whole_cpus and resource == "cpu":
            allocatable -= allocatable % NANO
        return allocatable - self.used.get(resource, ZERO).nano

    def fits(self, request: Amounts) -> bool:
        """All of the request."""
        return all(amount.nano <= self.free(resource) for resource, amount in request.items())


def verdict(
    pod: CranePod,
    topology: TopologyObject | None,
    results: Iterable[Mapping[str, Amounts]],
    *,
    resources: Sequence[str] = AWARE_RESOURCES,
) -> CraneVerdict:
    """Judge whether the pod may go to the node with this topology.

    `results` are those of the pods that are there or on their way: amounts by name of the NUMA node. `resources`
    are counted by NUMA node.
    """
    why = assignments.unfit(pod.containers, pod.only)
    if why:
        return CraneVerdict(text=NOT_EXCLUSIVE, detail=why)
    counts = assignments.targets(pod.policy, pod.containers, pod.only) if "cpu" in resources else {}
    if pod.of_daemon_set or not counts:
        why = "pods of a DaemonSet are not bound" if pod.of_daemon_set else "no container asks for whole CPUs"
        return CraneVerdict(detail=f"Crane places no container of this pod: {why}")
    if topology is None:
        why = (
            "no NodeResourceTopology of topology.crane.io is known for the node: "
            "agents make it (publish.craneTopology), and the extender reads it (--crane)"
        )
        # Of our own annotation Crane knows nothing.
        return CraneVerdict(text=why if pod.only else NO_TOPOLOGY, detail=why)
    policy = topology.crane_manager_policy
    if policy.cpu_manager_policy != STATIC:
        return CraneVerdict(
            detail=f"Crane places no pod here: cpuManagerPolicy is {policy.cpu_manager_policy or 'not set'}"
        )
    request = _request(pod, counts, resources)
    offers = _offers_of(topology.zones or (), results)
    if pod.aware if pod.aware is not None else policy.topology_manager_policy == SINGLE_NUMA:
        return _one(request, offers)
    return _several(request, offers)


def results_of(zones: Iterable[Zone]) -> dict[str, Amounts]:
    """The amounts of a topology result by name of the NUMA node, as `verdict` takes them."""
    return {
        zone.name: _amounts(zone.resources.capacity if zone.resources else None) for zone in zones if _is_node(zone)
    }


def _request(pod: CranePod, counts: Mapping[str, int], resources: Sequence[str]) -> Amounts:
    total: dict[str, Quantity] = {}
    for name, requests, _ in pod.containers:
        if name in counts:
            add_resources(total, {r: amount for r, amount in requests.items() if r in resources})
    return {resource: amount for resource, amount in total.items() if amount.nano > 0}


def _offers_of(zones: Iterable[Zone], results: Iterable[Mapping[str, Amounts]]) -> list[_Offer]:
    """NUMA nodes, those with the most free CPU first."""
    used: dict[str, dict[str, Quantity]] = {}
    for result in results:
        for name, amounts in result.items():
            add_resources(used.setdefault(name, {}), amounts)
    offers = [
        _Offer(zone.name, _amounts(zone.resources.allocatable if zone.resources else None), used.get(zone.name, {}))
        for zone in zones
        if _is_node(zone)
    ]
    return sorted(offers, key=lambda offer: -offer.free("cpu"))


def _one(request: Amounts, offers: Sequence[_Offer]) -> CraneVerdict:
    best = next((offer for offer in offers if offer.fits(request)), None)
    if best is None:
        return CraneVerdict(
            text=NOT_ENOUGH, detail=f"{_said(request)} of one NUMA node requested; {_numbers(request, offers)}"
        )
    return CraneVerdict(
        score=MAX_SCORE, result={best.name: request}, detail=f"all on {best.name}; {_numbers(request, offers)}"
    )


def _several(request: Amounts, offers: Sequence[_Offer]) -> CraneVerdict:
    """Whole CPUs from the emptiest NUMA node on; with too few everywhere the result names what there is."""
    remaining = {resource: amount.nano for resource, amount in request.items()}
    result: dict[str, Amounts] = {}
    for offer in offers:
        share = {r: min(nano, max(offer.free(r, whole_cpus=True), 0)) for r, nano in remaining.items()}
        remaining = {r: nano - share[r] for r, nano in remaining.items()}
        part = {r: Quantity(nano, request[r].format) for r, nano in share.items() if nano}
        if part:
            result[offer.name] = part
        if not any(remaining.values()):
            break
    missing = {r: Quantity(nano, request[r].format) for r, nano in remaining.items() if nano}
    lacking = f"{_said(missing)} on no NUMA node; " if missing else ""
    return CraneVerdict(
        score=MAX_SCORE // len(result) if result else 0,
        result=dict(sorted(result.items())),
        detail=f"{lacking}on {', '.join(sorted(result)) or 'none'}; {_numbers(request, offers)}",
    )


def _numbers(request: Amounts, offers: Sequence[_Offer]) -> str:
    """`node0 has 2 of 8 cpu free` for each NUMA node and resource that is asked for."""
    texts = [
        f"{offer.name} has {Quantity(offer.free(r))} of {offer.allocatable.get(r, ZERO)} {r} free"
        for offer in sorted(offers, key=lambda offer: offer.name)
        for r in request
    ]
    return ", ".join(texts) or "the node has no NUMA nodes"


def _said(amounts: Amounts) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in amounts.items())


def _amounts(texts: Mapping[str, str | int | float] | None) -> dict[str, Quantity]:
    return parse_resources(texts, "", "", [])


def _is_node(zone: Zone) -> bool:
    """A zone with any other name is no NUMA node, whatever its type says: its name could not be promised to a pod."""
    return zone.type in ("", "Node") and numa_node(zone.name) is not None
