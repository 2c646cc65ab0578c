"""Kubelet's topology manager out of attributes and of the older list."""

from __future__ import annotations

import pytest

from descheduler.snapshot import topology_manager
from descheduler.snapshot.topology_manager import DEFAULT, Told


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        pytest.param({"topologyManagerPolicy": "restricted"}, Told("restricted"), id="the policy alone"),
        pytest.param({"topologyManagerScope": "pod"}, Told("", "pod"), id="the scope alone"),
        pytest.param({"topologyManagerPolicy": "Restricted"}, Told(), id="a word that kubelet does not know"),
        pytest.param({"topologyManagerMaxNUMANodes": "12"}, Told("", "", 12), id="the most NUMA nodes"),
        pytest.param({"topologyManagerMaxNUMANodes": "9999"}, Told("", "", 1024), id="no more than 1024"),
        pytest.param({"topologyManagerMaxNUMANodes": "-3"}, Told(), id="a number that is none"),
    ],
)
def test_attributes_say_what_can_be_read(attributes: dict[str, str], told: Told) -> None:
    found = topology_manager.by_attributes([{"name": n, "value": v} for n, v in attributes.items()])
    assert found == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["SingleNUMANodePodLevel", "None"], Told("single-numa-node", "pod"), id="the first word counts"),
        pytest.param(["None"], Told("none", "container"), id="none is a policy"),
        pytest.param(["Unheard"], Told(), id="an unknown word says nothing"),
        pytest.param([], Told(), id="an empty list says nothing"),
    ],
)
def test_the_older_list(words: list[str], told: Told) -> None:
    assert topology_manager.by_policies(words) == told


def test_each_part_comes_from_the_first_source_that_has_it() -> None:
    assert Told("restricted").over(Told("none", "pod")).over(DEFAULT) == Told("restricted", "pod", 8)
