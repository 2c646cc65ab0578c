"""When the NodeResourceTopology is written again."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.formulas.topology import topology_diff
from koordlite.formulas.topology.topology_diff import Report
from koordlite.model import keys
from koordlite.model.picture.published import Published
from koordlite.model.wire.objects import Zone, ZoneResource

POLICY, POOLS = keys.CPU_MANAGER_POLICY, keys.LS_SHARED_POOLS
GPU = ZoneResource(name="koordinator.sh/gpu", capacity="100", allocatable="100")


def cpu(allocatable: str = "4", capacity: str = "4") -> ZoneResource:
    return ZoneResource(name="cpu", capacity=capacity, allocatable=allocatable, available="0")


def zone(*resources: ZoneResource, name: str = "node-0", kind: str = "Node") -> Zone:
    return Zone(name=name, type=kind, resources=resources)


WANTED = Report(
    annotations={POLICY: '{"policy":"none"}', POOLS: '[{"socket":0,"node":0,"cpuset":"0-3"}]'},
    labels={keys.NUMA_RESERVATION: "true"},
    policies=("None",),
    zones=(zone(cpu()),),
)
SAID = Published(
    {},
    {POLICY: '{ "policy" : "none" }', POOLS: '[{"cpuset":"0-3","node":0,"socket":0.0}]', "other": "x"},
    (zone(cpu("4000m"), GPU),),
    ("None",),
    {keys.NUMA_RESERVATION: "true", "other": "x"},
)


def test_the_same_in_another_print_and_what_others_add_is_no_difference() -> None:
    assert topology_diff.difference(SAID, WANTED) == ""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        pytest.param({"topology": {}}, "metadata changed", id="nothing there"),
        pytest.param({"topology_policies": ()}, "TopologyPolicies changed", id="no policy"),
        pytest.param({"topology_policies": ("None", "None")}, "TopologyPolicies changed", id="two of them"),
        pytest.param({"topology": {"x": "y"}}, f"annotations changed, key {POLICY}", id="an annotation lacks"),
        pytest.param(
            {"topology": {**SAID.topology, POOLS: "[]"}}, f"annotations changed, key {POOLS}", id="one is different"
        ),
        pytest.param(
            {"topology": {**SAID.topology, POLICY: "{"}}, f"annotations changed, key {POLICY}", id="one is broken"
        ),
        pytest.param({"topology_labels": {}}, f"labels changed, key {keys.NUMA_RESERVATION}", id="the label lacks"),
        pytest.param({"zones": ()}, "Zones changed, item: zones number", id="no zone"),
        pytest.param({"zones": (zone(name="node-1"),)}, "Zones changed, item: zone 0 name", id="another zone"),
        pytest.param({"zones": (zone(kind="Die"),)}, "Zones changed, item: zone 0 type", id="another type"),
        pytest.param({"zones": (zone(cpu("3")),)}, "Zones changed, item: resources", id="less to hand out"),
        pytest.param({"zones": (zone(cpu("4", "8")),)}, "Zones changed, item: resources", id="another capacity"),
        pytest.param({"zones": (zone(cpu("many")),)}, "Zones changed, item: resources", id="no amount at all"),
        pytest.param({"zones": (zone(),)}, "Zones changed, item: resources", id="the resource lacks"),
        pytest.param(
            {"zones": (zone(cpu(), ZoneResource(name="memory")),)}, "Zones changed, item: resources", id="one too many"
        ),
    ],
)
def test_the_first_difference_is_told(said: dict[str, Any], told: str) -> None:
    assert topology_diff.difference(msgspec.structs.replace(SAID, **said), WANTED) == told


def test_a_resource_that_is_wanted_counts_whoever_usually_owns_it() -> None:
    wanted = msgspec.structs.replace(WANTED, zones=(zone(cpu(), with_more(GPU)),))
    assert topology_diff.difference(SAID, wanted) == "Zones changed, item: resources"


def with_more(resource: ZoneResource) -> ZoneResource:
    """The same resource with another amount."""
    return ZoneResource(name=resource.name, capacity="200", allocatable="200")


def test_what_is_not_to_be_there_differs_when_it_is() -> None:
    without = msgspec.structs.replace(WANTED, annotations={POLICY: None}, labels={})
    assert topology_diff.difference(SAID, without) == f"annotations changed, key {POLICY}"


JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-9, 9) | some.text(max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_texts_are_the_same_when_they_mean_the_same(a: Any, b: Any) -> None:
    assert topology_diff.same_text(json.dumps(a, indent=2), json.dumps(a, separators=(",", ":")))
    alike = json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    assert topology_diff.same_text(json.dumps(a), json.dumps(b)) == alike
