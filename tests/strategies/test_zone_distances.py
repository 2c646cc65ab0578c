"""Distances between NUMA nodes are published as costs of the zones, and those of others stay."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from koordlite.changes.published import ZonesChange
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.strategies import topology_report

COSTS = ({"name": "node-0", "value": 10}, {"name": "node-1", "value": 21})


def zones(build: Any, *distances: tuple[tuple[int, int], ...]) -> tuple[objects.Zone, ...]:
    seen = build.snapshot()
    nodes = tuple(
        msgspec.structs.replace(node, distances=far) for node, far in zip(seen.topology.nodes, distances, strict=True)
    )
    seen = dataclasses.replace(seen, topology=Topology(seen.topology.cpus, nodes))
    decisions = topology_report.decide(seen, topology_report.Config())
    changes = [change for decision in decisions for change in decision.changes]
    return next(change.zones for change in changes if isinstance(change, ZonesChange))


def test_each_zone_says_how_far_the_others_are(build: Any) -> None:
    first, second = zones(build, ((0, 10), (1, 21)), ((0, 21), (1, 10)))
    assert first.costs == COSTS
    assert second.costs == ({"name": "node-0", "value": 21}, {"name": "node-1", "value": 10})


def test_a_machine_that_does_not_say_publishes_none(build: Any) -> None:
    assert [zone.costs for zone in zones(build, (), ())] == [None, None]


def test_costs_that_stand_there_stay_and_missing_ones_are_filled_in() -> None:
    theirs = ({"name": "node-1", "value": 40},)
    wanted = (objects.Zone(name="node-0", type="Node", costs=COSTS),)
    for held, expected in ((theirs, theirs), (None, COSTS)):
        topology = objects.NRTObject(zones=(objects.Zone(name="node-0", type="Node", costs=held),))
        found = ZonesChange(wanted, ("None",)).onto(topology).zones
        assert found is not None and found[0].costs == expected
