"""A pod on a node: may it run there, how well does it go with it, and what does it get.

    ask.of(pod)      → what it asks, once for all nodes
    judge(ask, node) → a refusal with Koordinator's reasons, or NUMA nodes and score
    bind(ask, node)  → the CPUs and amounts; for_binding has the text

`filter_node`, `score_node` and `reserve` are the single steps, each as Koordinator takes it. Koordinator asks about
preferred bind policies and BestEffort only when it reserves, and the pod goes from node to node; `judge` asks at once.
Source: Koordinator v1.9 `Filter`, `Score`, `Reserve`, `PreBind` (plugin.go, scoring.go).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.pod.values import ResourceSpec
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.reading import declared
from koordlite.numa.koordinator.allocate import (
    NodeRequest,
    Supply,
    attempt,
    feasible,
    fits,
    hint_supply,
    nominated_reuse,
    split,
    take,
)
from koordlite.numa.koordinator.ask import DEFAULTS, NUMAArgs, PodRequest
from koordlite.numa.koordinator.merge import hints, merge, score, whole
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.take import TakePolicy
from koordlite.numa.koordinator.values import (
    BEST_EFFORT,
    CPUS_NOT_WHOLE,
    DEFAULT_BIND,
    ERROR,
    EXCLUSIVE_REQUIRED,
    FULL_PCPUS,
    NEVER,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    Allocation,
    Amounts,
    Refusal,
    Zones,
    allocated_zones,
    amplified,
    amplify,
    refuse,
    released,
    total,
    with_amplified,
)
from koordlite.numa.machine import nodes_of, subsets
from koordlite.numa.nrt import score as nrt_score

NO_CPU_TOPOLOGY = "node(s) invalid CPU Topology"

Mask = int | None
"""The NUMA nodes chosen for a pod; None: no choice was made, or none is needed."""


class Suitability(msgspec.Struct, frozen=True):
    """A node that will do: the NUMA nodes the pod would get, ascending, and a score from 0 to 100."""

    nodes: tuple[int, ...]
    score: int


def judge(ask: PodRequest, node: KoordinatorNode, settings: NUMAArgs = DEFAULTS) -> Suitability | Refusal:
    """Judge whether the pod may be bound to `node`, and how well it goes with it. Equal for equal requests."""
    filtered = filter_node(ask, node, settings)
    if isinstance(filtered, Refusal):
        return filtered
    mask = reservable(ask, node, filtered, settings)
    if isinstance(mask, Refusal):
        return mask
    return Suitability(nodes_of(mask or 0), score_node(ask, node, filtered, settings))


def bind(
    ask: PodRequest, node: KoordinatorNode, settings: NUMAArgs = DEFAULTS, *, uid: str
) -> Allocation | Refusal | None:
    """Allocation of the pod when it is bound to `node` now; None when that is nothing of its own."""
    filtered = filter_node(ask, node, settings)
    return filtered if isinstance(filtered, Refusal) else reserve(ask, node, filtered, settings, uid=uid)


def filter_node(ask: PodRequest, node: KoordinatorNode, settings: NUMAArgs = DEFAULTS) -> Mask | Refusal:
    """Koordinator's filter: the NUMA nodes under Restricted and SingleNUMANode, or why the node will not do."""
    policy, bound = numa_policy(ask, node), is_bound(ask, node)
    if isinstance(policy, Refusal):
        return policy
    if isinstance(bound, Refusal):
        return bound
    why = _amplified_refusal(ask, node, bound) or (_bind_refusal(ask, node) if bound else None)
    if why:
        return why
    if policy not in ("", BEST_EFFORT):
        return _aligned(ask, node, policy, settings)
    required = bound and not policy and bind_policy(ask, node)[1]
    return _tried(ask, node, settings, None) if required else None


def reservable(ask: PodRequest, node: KoordinatorNode, mask: Mask, settings: NUMAArgs = DEFAULTS) -> Mask | Refusal:
    """The NUMA nodes in which `reserve` would succeed after the filter gave `mask`, or why it would not."""
    policy, bound = numa_policy(ask, node), is_bound(ask, node)
    if isinstance(bound, Refusal):
        return bound
    if bound and not node.topology.machine.cpus:
        return refuse(NO_CPU_TOPOLOGY, code=ERROR)
    if policy == BEST_EFFORT:
        return _aligned(ask, node, BEST_EFFORT, settings)
    return _tried(ask, node, settings, mask) if bound and not policy else mask


def reserve(
    ask: PodRequest, node: KoordinatorNode, mask: Mask, settings: NUMAArgs = DEFAULTS, *, uid: str = ""
) -> Allocation | Refusal | None:
    """Allocation of the pod after the filter gave `mask`: None when it gets no CPUs of its own and no NUMA node."""
    target = reservable(ask, node, mask, settings)
    if isinstance(target, Refusal):
        return target
    if not is_bound(ask, node) and not numa_policy(ask, node):
        return None
    request = request_on(ask, node, settings)
    usual = take(node, request, target, uid=uid)
    near = nearest(node, request, uid=uid) if settings.prefer_closest and target is None and request.bound else None
    # Amounts that other pods share may keep it from NUMA nodes that have the CPUs: then the usual ones can be nearer.
    if near is None or (isinstance(usual, Allocation) and _spread(usual, node) < _spread(near, node)):
        return usual
    return near


def _spread(allocation: Allocation, node: KoordinatorNode) -> tuple[int, int]:
    """Number of NUMA nodes that an allocation is on, and their distances in all."""
    nodes = numa_nodes(allocation, node)
    return len(nodes), nrt_score.distance(nodes, node.topology.distances)


def numa_nodes(allocation: Allocation, node: KoordinatorNode) -> tuple[int, ...]:
    """The NUMA nodes on which an allocation has CPUs or amounts."""
    cpus = node.topology.machine.by_id
    return tuple(sorted({*allocation.zones, *(cpus[cpu].node for cpu in allocation.cpus)}))


def score_node(ask: PodRequest, node: KoordinatorNode, mask: Mask, settings: NUMAArgs = DEFAULTS) -> int:
    """Koordinator's score after its filter gave `mask`; 0 where nothing can be allocated."""
    bound = is_bound(ask, node)
    if isinstance(bound, Refusal) or (bound and not node.topology.machine.cpus):
        return 0
    request = request_on(ask, node, settings)
    allocatable, requested = node.allocatable, node.requested
    if not numa_policy(ask, node):
        if ask.cpu_milli:
            requested = with_amplified(requested, len(node.allocated.cpus), node.cpu_ratio)
        return _score(settings, allocatable, requested, request)
    share = _chosen_zones(node, request, mask)
    if share is None:
        return 0
    zones, own = share
    back = nominated_reuse(node)
    if zones:
        allocated = allocated_zones(node.allocated, node.zones, cpu_ratio=node.cpu_ratio, reusable=back.zones)
        allocatable = total(node.zones, zones)
        requested = total(allocated, zones)
    if bound and request.count:
        used = len(released(node.allocated.cpus, back.preferred - own))
        requested = {**requested, "cpu": Quantity.of_milli(amplify(1000 * used, node.cpu_ratio))}
    return _score(settings, allocatable, requested, request)


def _score(settings: NUMAArgs, allocatable: Amounts, requested: Amounts, request: NodeRequest) -> int:
    most, used, demand = (whole(each, settings.weights) for each in (allocatable, requested, request.requests))
    return score(settings.scoring, settings.weights, allocatable=most, requested=used, request=demand)


def _chosen_zones(node: KoordinatorNode, request: NodeRequest, mask: Mask) -> tuple[Zones, CPUSet] | None:
    """The NUMA nodes with a part of the pod, and those of its CPUs that matter: without reservations none do. None
    where it gets nothing."""
    if node.reservations:
        allocation = take(node, request, mask, uid="")
        return None if isinstance(allocation, Refusal) else (allocation.zones, allocation.cpus)
    supply = Supply.of(node, request)
    if not fits(supply, request, mask):
        return None
    return ({} if mask is None else split(supply, request, nodes_of(mask))[0]), EMPTY


def numa_policy(ask: PodRequest, node: KoordinatorNode) -> str | Refusal:
    """The NUMA policy of this pod on this node; empty for none."""
    if node.numa_policy and ask.numa_policy and node.numa_policy != ask.numa_policy:
        return refuse("node(s) NUMA Topology policy not match", code=NEVER)
    return ask.numa_policy or node.numa_policy


def is_bound(ask: PodRequest, node: KoordinatorNode) -> bool | Refusal:
    """Tell whether the pod gets CPUs of its own here: by its class, or because the node binds every pod."""
    if ask.bound or not ask.cpu_milli or not node.bind_policy:
        return ask.bound
    return refuse(CPUS_NOT_WHOLE, code=NEVER) if ask.cpu_milli % 1000 else True


def bind_policy(ask: PodRequest, node: KoordinatorNode) -> tuple[str, bool]:
    """(the bind policy that is used, whether it must be kept): the pod's required one, the node's, the preferred."""
    required = ask.required_bind or node.bind_policy
    return required or ask.preferred_bind, bool(required)


def _amplified_refusal(ask: PodRequest, node: KoordinatorNode, bound: bool) -> Refusal | None:
    """CPUs of pods' own count as many times as the node sells a CPU."""
    if not ask.cpu_milli:
        return None
    if node.bad_amplification:
        return refuse("node(s) invalid CPU amplification ratio", code=NEVER)
    ratio = (node.amplification or {}).get("cpu", -1.0)
    if ratio <= 1:
        return None
    request_milli = amplify(ask.cpu_milli, ratio) if bound else ask.cpu_milli
    own, requested = 1000 * len(node.allocated.cpus), node.requested.get("cpu", ZERO).milli
    if requested >= own > 0:
        requested += amplify(own, ratio) - own
    free = node.allocatable.get("cpu", ZERO).milli - requested
    return refuse("Insufficient amplified cpu") if request_milli > free else None


def _bind_refusal(ask: PodRequest, node: KoordinatorNode) -> Refusal | None:
    """Refusal where the node cannot bind CPUs in the way that the pod and the node ask for."""
    machine, (policy, required) = node.topology.machine, bind_policy(ask, node)
    if not machine.cpus:
        return refuse(NO_CPU_TOPOLOGY, code=NEVER)
    if required and node.bind_policy not in ("", policy):
        return refuse("node(s) cpu bind policy conflicts with pod's required cpu bind policy", code=NEVER)
    if required and policy == FULL_PCPUS and ask.count % machine.per_core:
        return refuse("node(s) requested cpus not multiple cpus per core", code=NEVER)
    return None


def request_on(ask: PodRequest, node: KoordinatorNode, settings: NUMAArgs = DEFAULTS) -> NodeRequest:
    """The pod's ask in the node's terms; the same object for nodes that have the same terms."""
    strategy = node.labels.get(keys.NUMA_ALLOCATE_STRATEGY, "") or settings.strategy
    terms = node.bind_policy, node.cpu_ratio, strategy, node.topology.most_holders
    return ask.once(terms, lambda: _request(ask, node, strategy))


def _request(ask: PodRequest, node: KoordinatorNode, strategy: str) -> NodeRequest:
    bound = is_bound(ask, node) is True
    bind, required = bind_policy(ask, node)
    cpu = ask.requests.get("cpu")
    requests: Mapping[str, Quantity] = ask.requests
    if bound and cpu and node.cpu_ratio > 1:
        requests = {**requests, **amplified({"cpu": cpu}, {"cpu": node.cpu_ratio})}
    return NodeRequest(
        requests=requests,
        original=ask.requests,
        count=ask.count,
        bound=bound,
        required=required,
        policy=TakePolicy(bind, ask.exclusive, strategy, node.topology.most_holders),
        must_reserve=ask.needs_reservation,
    )


def _tried(ask: PodRequest, node: KoordinatorNode, settings: NUMAArgs, mask: Mask) -> Mask | Refusal:
    """These NUMA nodes when the pod can be allocated there, or why not."""
    request = request_on(ask, node, settings)
    if feasible(node, request, mask):
        return mask
    why = attempt(node, request, mask)
    return why if isinstance(why, Refusal) else mask


def _aligned(ask: PodRequest, node: KoordinatorNode, policy: str, settings: NUMAArgs) -> Mask | Refusal:
    """The NUMA nodes for the pod under `policy`, when it can be allocated there."""
    if policy not in (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE):
        return refuse(f"unknown NUMA topology policy {policy}", code=NEVER)
    if not node.zones:
        return refuse("node(s) missing NUMA resources", code=NEVER)
    request = request_on(ask, node, settings)
    provider = hints(
        node.zones,
        hint_supply(node, request).zones,
        request,
        lambda mask: feasible(node, request, mask),
        policy=policy,
        settings=settings,
    )
    merged = merge(
        policy,
        tuple(node.zones),
        [provider],
        exclusive=ask.numa_exclusive or (EXCLUSIVE_REQUIRED if ask.numa_policy else ""),
        states=node.allocated.states,
        costs=node.topology.distances if settings.prefer_closest else None,
    )
    return _tried(ask, node, settings, merged.hint.mask) if merged.admitted else Refusal(merged.reasons)


def nearest(node: KoordinatorNode, request: NodeRequest, *, uid: str) -> Allocation | None:
    """CPUs for a pod without a NUMA policy that no single NUMA node has enough of, on NUMA nodes nearest together; None
    where one has, or where nothing is known of distances: then Koordinator's own choice counts.

    Ours: Koordinator's scheduler reads no distances. The order is kubelet's with `prefer-closest-numa-nodes`: first as
    few NUMA nodes as will do, then the smaller mean distance, then the lower ones. The pod's memory is not looked at:
    nothing binds it to NUMA nodes.
    """
    if not node.topology.distances or node.reservations:
        return None
    only = msgspec.structs.replace(
        request,
        requests={name: amount for name, amount in request.requests.items() if name == "cpu"},
        original={name: amount for name, amount in request.original.items() if name == "cpu"},
    )
    for count, same in itertools.groupby((mask for _, mask in subsets(node.zones)), key=int.bit_count):
        fitting = [mask for mask in same if feasible(node, only, mask)]
        if fitting:
            closest = min(fitting, key=lambda mask: nrt_score.mean_distance(mask, node.topology.distances))
            allocation = take(node, only, closest, uid=uid) if count > 1 else None
            return msgspec.structs.replace(allocation, zones={}) if isinstance(allocation, Allocation) else None
    return None


def for_binding(ask: PodRequest, node: KoordinatorNode, allocation: Allocation | None) -> dict[str, str]:
    """The annotations of the Binding; none for a pod without CPUs of its own and without a NUMA policy."""
    if allocation is None:
        return {}
    written = {keys.RESOURCE_STATUS: resource_status(allocation)}
    spec = completed_spec(ask, node) if is_bound(ask, node) is True else ask.spec
    if spec == ask.spec:
        return written
    return {**written, keys.RESOURCE_SPEC: _json({name: word for name, word in declared.plain(spec).items() if word})}


def resource_status(allocation: Allocation) -> str:
    """Text of `scheduling.koordinator.sh/resource-status`."""
    zones = [
        {"node": zone, "resources": {name: str(amount) for name, amount in sorted(amounts.items())}}
        for zone, amounts in allocation.zones.items()
    ]
    status = {"cpuset": str(allocation.cpus), "numaNodeResources": zones}
    return _json({name: value for name, value in status.items() if value})


def completed_spec(ask: PodRequest, node: KoordinatorNode) -> ResourceSpec:
    """The pod's resource-spec with the bind policy that was used, where the pod left it open."""
    used, is_required = bind_policy(ask, node)
    required, preferred = ask.spec.required_cpu_bind_policy, ask.spec.preferred_cpu_bind_policy
    if is_required and required in ("", DEFAULT_BIND):
        required = used
    if preferred == DEFAULT_BIND or not (required or preferred):
        preferred = used
    return msgspec.structs.replace(ask.spec, required_cpu_bind_policy=required, preferred_cpu_bind_policy=preferred)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
