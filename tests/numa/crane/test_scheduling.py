"""What Crane's scheduler would answer, and where ours differs from it on purpose."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.pod import crane
from koordlite.model.quantity import NANO, Quantity
from koordlite.model.topology import CPU, NUMANode
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.crane import scheduling, zones
from koordlite.numa.crane.scheduling import CranePod, CraneVerdict
from koordlite.numa.machine import Machine


def amounts(**given: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in given.items()}


def node(*cpus: str, aware: bool = True, **more: str) -> TopologyObject:
    policy = "SingleNUMANodePodLevel" if aware else "None"
    found = [
        {"name": f"node{n}", "type": "Node", "resources": {"allocatable": {"cpu": cpu, **more}}}
        for n, cpu in enumerate(cpus)
    ]
    raw: dict[str, Any] = {
        "craneManagerPolicy": {"cpuManagerPolicy": "Static", "topologyManagerPolicy": policy},
        "zones": [*found, {"name": "socket0", "type": "Socket", "resources": {"allocatable": {"cpu": "99"}}}],
    }
    return msgspec.convert(raw, TopologyObject)


def judged(topology: TopologyObject, *used: dict[str, dict[str, Quantity]], **asked: str) -> CraneVerdict:
    wanted = amounts(**asked)
    return scheduling.verdict(CranePod(containers=[("main", wanted, wanted)]), topology, used, resources=tuple(asked))


def test_memory_in_the_result_is_the_memory_that_was_requested() -> None:
    found = judged(node("4", "8", memory="16Gi"), cpu="3", memory="2Gi")
    assert json.loads(found.annotation) == [
        {"name": "node1", "type": "Node", "resources": {"capacity": {"cpu": "3", "memory": "2Gi"}}}
    ]


def test_extended_resources_are_counted() -> None:
    found = judged(node("4", "4", aware=False, **{"example.com/nic": "1"}), cpu="2", **{"example.com/nic": "2"})
    assert {name: {r: str(q) for r, q in part.items()} for name, part in found.result.items()} == {
        "node0": {"cpu": "2", "example.com/nic": "1"},
        "node1": {"example.com/nic": "1"},
    }


def test_an_overcommitted_numa_node_gives_nothing_and_a_full_node_scores_0() -> None:
    over = {"node0": amounts(cpu="6")}
    found = judged(node("4", "8", aware=False), over, cpu="6").result
    assert {name: str(part["cpu"]) for name, part in found.items()} == {"node1": "6"}
    full = judged(node("4", aware=False), over, cpu="2")
    assert (full.score, full.annotation, full.passes) == (0, "", True)
    assert "2 cpu on no NUMA node" in full.detail


def test_what_one_numa_node_cannot_reserve_the_next_one_does() -> None:
    nodes = [NUMANode(0, CPUSet([0, 1]), 2**30), NUMANode(1, CPUSet([2, 3]), 2**30)]
    reserved = amounts(cpu="3", memory="1536Mi")
    found = list(zones.node_zones(nodes, reserved_cpus=EMPTY, reserved=reserved))
    left = [zone.resources.allocatable for zone in found if zone.resources]
    assert left == [{"cpu": "0", "memory": "0"}, {"cpu": "1", "memory": "512Mi"}]
    assert [zone.resources.reserved_cpu_nums for zone in found if zone.resources] == [2, 1]
    machine = Machine(tuple(CPU(n, n, n // 2, n // 2) for n in range(4)))
    assert zones.reserved_by_number(machine, 3) == CPUSet([0, 1, 2])


COUNTS = some.lists(some.integers(0, 8), min_size=1, max_size=4)


@given(COUNTS, COUNTS, some.integers(1, 12), some.booleans())
def test_a_result_fits_what_is_free_and_is_never_more_than_was_asked(
    free: list[int], used: list[int], cpus: int, aware: bool
) -> None:
    given = {f"node{n}": {"cpu": Quantity.of(count)} for n, count in enumerate(used)}
    found = judged(node(*map(str, free), aware=aware), given, cpu=str(cpus))
    left = {f"node{n}": count - (used[n] if n < len(used) else 0) for n, count in enumerate(free)}
    parts = {name: part["cpu"].nano // NANO for name, part in found.result.items()}
    assert all(0 < part <= left[name] for name, part in parts.items())
    assert sum(parts.values()) == (min(cpus, sum(max(n, 0) for n in left.values())) if found.passes else 0)
    if aware:
        assert found.passes == any(count >= cpus for count in left.values())
        assert len(parts) == int(found.passes)
    if found.annotation:
        decoded = crane.decode_result(found.annotation)
        assert {f"node{n}": count for n, count in decoded.items()} == parts
