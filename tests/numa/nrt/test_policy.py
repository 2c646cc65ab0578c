"""Kubelet's topology manager out of attributes and of the older list."""

from __future__ import annotations

import pytest

from koordlite.numa.nrt import reader
from koordlite.numa.nrt.reader import DEFAULT
from koordlite.numa.nrt.reader import ReportedPolicy as Policy


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        pytest.param({"topologyManagerPolicy": "restricted"}, Policy("restricted"), id="the policy alone"),
        pytest.param({"topologyManagerScope": "pod"}, Policy("", "pod"), id="the scope alone"),
        pytest.param({"topologyManagerPolicy": "Restricted"}, Policy(), id="a word that kubelet does not know"),
        pytest.param({"topologyManagerMaxNUMANodes": "12"}, Policy("", "", 12), id="the most NUMA nodes"),
        pytest.param({"topologyManagerMaxNUMANodes": "9999"}, Policy("", "", 1024), id="no more than 1024"),
        pytest.param({"topologyManagerMaxNUMANodes": "-3"}, Policy(), id="a number that is none"),
    ],
)
def test_attributes_say_what_can_be_read(attributes: dict[str, str], told: Policy) -> None:
    found = reader.by_attributes([{"name": n, "value": v} for n, v in attributes.items()])
    assert found == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["SingleNUMANodePodLevel", "None"], Policy("single-numa-node", "pod"), id="the first word counts"),
        pytest.param(["None"], Policy("none", "container"), id="none is a policy"),
        pytest.param(["Unheard"], Policy(), id="an unknown word says nothing"),
        pytest.param([], Policy(), id="an empty list says nothing"),
    ],
)
def test_the_older_list(words: list[str], told: Policy) -> None:
    assert reader.by_policies(words) == told


def test_each_part_comes_from_the_first_source_that_has_it() -> None:
    assert Policy("restricted").over(Policy("none", "pod")).over(DEFAULT) == Policy("restricted", "pod", 8)
