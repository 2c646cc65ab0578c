"""NUMA nodes before and after a plan, in every form of the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from descheduler.plan import EvictionPlan, ZoneLoad
from descheduler.report import html, text
from koordlite.model.nrt import ContainerPlacement

Place = Callable[..., ContainerPlacement]
GIB = 1 << 30


@pytest.fixture
def plan(cluster: Any, placed: Place) -> EvictionPlan:
    """On a, `p` spans both NUMA nodes beside two reserved CPUs; b is empty."""
    cluster.node("a", reservation={"reservedCPUs": "0-1"})
    memory = {0: GIB, 1: GIB // 8}
    container = placed("p", cpuset="6-9", promised_cpus="6-9", exclusive=True, single_numa=True, memory_by_numa=memory)
    cluster.report("a", reservation={"reservedCPUs": "0-1"}, containers=[container])
    cluster.node("b")
    cluster.report("b")
    cluster.pod("p", "a", cpu="4", memory="2Gi")
    made: EvictionPlan = cluster.plan()
    assert [o.target for o in made.evict] == ["b"]
    return made


def test_cpus_change_hands_and_memory_moves(plan: EvictionPlan) -> None:
    a, b = plan.nodes
    assert [(z.zone, z.cpus, z.reserved) for z in a.zones] == [(0, 8, 2), (1, 8, 0)]
    assert [(z.before, z.after) for z in a.zones] == [
        (ZoneLoad(2, 4, GIB), ZoneLoad(0, 6, 0)),
        (ZoneLoad(2, 6, GIB // 8), ZoneLoad(0, 8, 0)),
    ]
    assert [(z.before, z.after) for z in b.zones] == [
        (ZoneLoad(0, 8, 0), ZoneLoad(4, 4, 2 * GIB)),
        (ZoneLoad(0, 8, 0), ZoneLoad(0, 8, 0)),
    ]


def test_the_text_has_a_line_for_each_numa_node(plan: EvictionPlan) -> None:
    said = text.render(plan)
    assert "NUMA 0: 8 CPUs, 2 reserved, own 2 → 0, shared 4 → 6" in said
    assert "NUMA 0: 8 CPUs, 0 reserved, own 0 → 4, shared 8 → 4" in said


def test_the_page_draws_the_node_before_and_after(plan: EvictionPlan) -> None:
    page = html.render(plan)
    before, after = page.split("after the plan:")
    assert "CPU 8: exclusive, held by default/p" in before
    assert "CPU 8: shared<" in after
    assert "memory of pods with a promise" in after


def test_nodes_where_it_does_not_matter_have_none(cluster: Any) -> None:
    cluster.node("a", reservation={"resources": {"cpu": "4"}})
    cluster.report("a")
    cluster.node("b")
    cluster.pod("p", "a", cpu="14")
    assert [change.zones for change in cluster.plan().nodes] == [(), ()]
