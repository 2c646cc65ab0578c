"""Kubelet's topology manager out of attributes and of the older list."""

from __future__ import annotations

from koordlite.numa.nrt.reader import DEFAULT
from koordlite.numa.nrt.reader import ReportedPolicy as Policy


def test_each_part_comes_from_the_first_source_that_has_it() -> None:
    assert Policy("restricted").over(Policy("none", "pod")).over(DEFAULT) == Policy("restricted", "pod", 8)
