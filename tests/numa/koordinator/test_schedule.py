"""A whole pod on a node by Koordinator's rules: what holds for every pod and node, and where we ask earlier."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from koordinator_nodes import machine, node, quantities, wanted

from koordlite.model.cpuset import CPUSet
from koordlite.model.pod import pod_reader
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects
from koordlite.numa.koordinator import assignments, schedule
from koordlite.numa.koordinator.allocate import NodeRequest, Supply, allocate, fits
from koordlite.numa.koordinator.ask import DEFAULTS, NUMAArgs, PodRequest
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.schedule import Suitability
from koordlite.numa.koordinator.take import TakePolicy
from koordlite.numa.koordinator.values import Allocation, NodeAllocation, Refusal, available_zones
from koordlite.numa.machine import Machine, subsets

POLICY = "node.koordinator.sh/numa-topology-policy"
SPECS = some.sampled_from(
    [
        "{}",
        '{"requiredCPUBindPolicy":"FullPCPUs"}',
        '{"requiredCPUBindPolicy":"SpreadByPCPUs"}',
        '{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}',
        '{"preferredCPUBindPolicy":"ConstrainedBurst"}',
    ]
)
ASKS = some.builds(
    wanted,
    cpu=some.sampled_from(["1", "2", "3", "4", "6", "10"]),
    memory=some.sampled_from(["0", "1Gi", "20Gi", "33Gi"]),
    qos=some.sampled_from(["LSR", "LSE", "LS"]),
    spec=SPECS,
    numa=some.sampled_from(
        ["{}", "{}", '{"numaTopologyPolicy":"SingleNUMANode"}', '{"numaTopologyPolicy":"Restricted"}']
    ),
)
LABELS = some.fixed_dictionaries(
    {},
    optional={
        POLICY: some.sampled_from(["BestEffort", "Restricted", "SingleNUMANode"]),
        "node.koordinator.sh/cpu-bind-policy": some.sampled_from(["FullPCPUsOnly", "SpreadByPCPUs", "None"]),
        "node.koordinator.sh/numa-allocate-strategy": some.sampled_from(["MostAllocated", "DistributeEvenly"]),
    },
)
SHAPES = some.sampled_from([machine(), machine(2, 2, 2), machine(1, 1, 8), machine(2, 1, 4, 1)])


def with_pods(before: KoordinatorNode, allocations: list[Allocation]) -> KoordinatorNode:
    return KoordinatorNode(
        labels=before.labels,
        allocatable=before.allocatable,
        topology=before.topology,
        allocated=NodeAllocation.of(before.topology.machine, allocations),
    )


@given(SHAPES, LABELS, some.lists(ASKS, max_size=6), some.sampled_from(["", "0,8"]))
def test_no_cpu_is_given_twice_and_no_numa_node_gives_more_than_it_has(
    cpus: Machine, labels: dict[str, str], asks: list[PodRequest], reserved: str
) -> None:
    current = node(cpus, labels=labels, reserved=reserved)
    given_out: list[Allocation] = []
    for number, ask in enumerate(asks):
        found = schedule.judge(ask, current)
        assert found == schedule.judge(ask, with_pods(current, given_out))
        allocation = schedule.bind(ask, current, uid=str(number))
        if isinstance(found, Refusal):
            assert allocation == found
        else:
            assert not isinstance(allocation, Refusal)
            assert 0 <= found.score <= 100
            if allocation is not None:
                holds(ask, current, found, allocation)
                given_out.append(allocation)
                current = with_pods(current, given_out)


def holds(ask: PodRequest, before: KoordinatorNode, found: Suitability, allocation: Allocation) -> None:
    """What the pod gets is free, whole, and inside the NUMA nodes that were chosen."""
    free = before.topology.machine.all - before.topology.reserved - CPUSet(before.allocated.cpus)
    assert allocation.cpus <= free
    assert len(allocation.cpus) == (ask.count if schedule.is_bound(ask, before) else 0)
    left = available_zones(before.allocated, before.zones)
    for zone, amounts in allocation.zones.items():
        assert zone in found.nodes
        assert all(amount <= left[zone][name] for name, amount in amounts.items())
        there = before.topology.machine.by_node[zone] & allocation.cpus
        assert not allocation.cpus or 1000 * len(there) == amounts.get("cpu", Quantity(0)).milli
    if allocation.zones:
        for name, amount in ask.requests.items():
            assert sum(part.get(name, Quantity(0)).nano for part in allocation.zones.values()) == amount.nano
    bind, required = schedule.bind_policy(ask, before)
    cores = before.topology.machine.by_core(allocation.cpus)
    if allocation.cpus and required:
        threads = before.topology.machine.per_core if bind == "FullPCPUs" else 1
        assert all(len(core) == threads for core in cores.values())


AMOUNTS = some.fixed_dictionaries(
    {
        "cpu": some.sampled_from(["0", "1", "2500m", "3", "4", "0.5m", "6"]),
        "memory": some.sampled_from(["0", "7", "1500m", "1Gi"]),
    }
)


@given(
    SHAPES,
    some.lists(some.tuples(some.integers(0, 3), AMOUNTS, some.sets(some.integers(0, 15), max_size=3)), max_size=4),
    AMOUNTS,
    some.tuples(some.booleans(), some.booleans(), some.sampled_from(["FullPCPUs", "SpreadByPCPUs"])),
)
def test_sums_decide_as_the_allocation_on_trial_does(
    cpus: Machine,
    pods: list[tuple[int, dict[str, str], set[int]]],
    asked: dict[str, str],
    bind: tuple[bool, bool, str],
) -> None:
    bound, required, policy = bind
    others = [
        Allocation(uid=str(n), cpus=CPUSet(ids), zones={zone: quantities(**amounts)})
        for n, (zone, amounts, ids) in enumerate(pods)
    ]
    current, amounts = node(cpus, others, memory="2Gi"), quantities(**asked)
    request = NodeRequest(
        requests=amounts,
        original=amounts,
        count=amounts["cpu"].milli // 1000,
        bound=bound,
        required=required,
        policy=TakePolicy(policy),
    )
    supply = Supply.of(current, request)
    for mask in [None, *(mask for _, mask in subsets(current.zones))]:
        assert fits(supply, request, mask) != isinstance(allocate(supply, request, mask), Refusal)


def test_a_preferred_policy_that_has_too_few_cpus_is_refused_at_once() -> None:
    """Koordinator's filter lets the pod pass and its reserve step fails, on one node after the other."""
    full = node(machine(), [Allocation(uid="a", cpus=CPUSet(range(14)))])
    assert not isinstance(schedule.filter_node(wanted("4"), full), Refusal)
    assert schedule.judge(wanted("4"), full) == Refusal(("not enough cpus available to satisfy request",))


def test_amounts_are_split_by_what_numa_nodes_have_whatever_their_numbers() -> None:
    """NUMA nodes 2 and 3 have 4 CPUs and 1 CPU left. Koordinator takes half from node 2 first and fails."""
    used = {0: "4", 1: "4", 2: "0", 3: "3"}
    pods = [Allocation(uid=str(zone), zones={zone: quantities(cpu=cpu)}) for zone, cpu in used.items()]
    found = schedule.bind(
        wanted("4500m", qos="LS"), node(machine(4, 1, 2), pods, labels={POLICY: "Restricted"}), uid="p"
    )
    assert isinstance(found, Allocation)
    cpu = {zone: str(amounts["cpu"]) for zone, amounts in found.zones.items()}
    assert cpu == {2: "3500m", 3: "1"}


def test_what_is_written_at_bind_is_what_the_next_round_reads() -> None:
    before = node(machine(), labels={POLICY: "SingleNUMANode"})
    ask = wanted("4", spec='{"preferredCPUExclusivePolicy":"PCPULevel"}')
    found = schedule.bind(ask, before, uid="p")
    assert isinstance(found, Allocation)
    texts = schedule.for_binding(ask, before, found)
    assert json.loads(texts["scheduling.koordinator.sh/resource-status"]) == {
        "cpuset": "0-1,8-9",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "1Gi"}}],
    }
    pod = {"metadata": {"namespace": "ns", "name": "p", "uid": "p", "annotations": texts}, "spec": {}, "status": {}}
    assert list(assignments.allocations([read_pod(pod)])) == [found]


def read_pod(obj: object) -> Pod:
    return pod_reader.from_wire(msgspec.convert(obj, objects.PodObject))


@pytest.mark.parametrize("policy", ["None", "single-numa-node"])
def test_an_unknown_policy_is_refused_by_its_name(policy: str) -> None:
    found = schedule.judge(wanted("1"), node(machine(), labels={POLICY: policy}))
    assert found == Refusal((f"unknown NUMA topology policy {policy}",), "UnschedulableAndUnresolvable")


@given(
    some.sampled_from([machine(2, 2, 2), machine(4, 1, 2, 1), machine(1, 2, 4)]),
    LABELS,
    some.lists(ASKS, max_size=5),
    some.integers(1, 8),
    some.lists(some.integers(11, 40), min_size=6, max_size=6),
)
def test_closest_numa_nodes_are_as_few_and_no_farther_apart(
    cpus: Machine, labels: dict[str, str], before: list[PodRequest], count: int, far: list[int]
) -> None:
    pairs = dict(zip(itertools.combinations(range(4), 2), far, strict=True))
    rows = {a: {b: 10 if a == b else pairs[min(a, b), max(a, b)] for b in range(4)} for a in range(4)}
    current = node(cpus, labels=labels, distances=rows)
    for number, ask in enumerate(before):
        held = schedule.bind(ask, current, uid=str(number))
        if isinstance(held, Allocation):
            current = current.with_pod(held)
    asked, closest = wanted(str(count)), NUMAArgs(prefer_closest=True)
    usual, near = (schedule.bind(asked, current, each, uid="p") for each in (DEFAULTS, closest))
    found = schedule.judge(asked, current, closest)
    assert isinstance(found, Refusal) == isinstance(near, Refusal) == isinstance(usual, Refusal)
    if isinstance(found, Suitability) and isinstance(near, Allocation) and isinstance(usual, Allocation):
        holds(asked, current, found, near)
        nodes = [schedule.numa_nodes(each, current) for each in (near, usual)]
        spread = [sum(rows[a][b] for a in each for b in each) / len(each) ** 2 for each in nodes]
        assert (len(nodes[0]), spread[0]) <= (len(nodes[1]), spread[1])


def test_amounts_that_others_share_keep_no_pod_from_the_nearest_cpus() -> None:
    """A pod without CPUs of its own holds amounts of NUMA nodes whose CPUs are free all the same."""
    rows = {a: {b: 10 if a == b else 11 for b in range(4)} for a in range(4)}
    current = node(machine(2, 2, 2), distances=rows)
    single, restricted = '{"numaTopologyPolicy":"SingleNUMANode"}', '{"numaTopologyPolicy":"Restricted"}'
    before = [wanted("1", "0"), wanted("1", "0", numa=single), wanted("1", "33Gi", qos="LS", numa=restricted)]
    for number, ask in enumerate(before):
        held = schedule.bind(ask, current, uid=str(number))
        assert isinstance(held, Allocation)
        current = current.with_pod(held)
    near = schedule.bind(wanted("8"), current, NUMAArgs(prefer_closest=True), uid="p")
    assert isinstance(near, Allocation)
    assert schedule.numa_nodes(near, current) == (2, 3)
