"""An operator who gave kubelet's top group only some of the CPUs is obeyed: nothing is asked for beyond them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cpuset import CPUSet
from koordlite.strategies import cpu_suppress, cpuset_pools

NONE_OR_SOME = st.frozensets(st.integers(0, 7), max_size=8)


def wanted_sets(build: Any, seen: Any) -> list[CPUSet]:
    """Every set that is asked for below kubelet's top group."""
    decisions = [
        *cpu_suppress.decide(seen, cpu_suppress.Config()),
        *cpuset_pools.decide(seen, cpuset_pools.Config()),
    ]
    changes = [change for decision in decisions for change in decision.changes]
    sets = (change.value for change in changes if isinstance(change, CgroupChange) and change.field == "cpuset.cpus")
    return [value for value in sets if isinstance(value, CPUSet)]


def picture(build: Any, top: str | None, **given: Any) -> Any:
    """A service, and best effort on CPU 0; kubelet's top group has the CPUs `top`, or does not say."""
    groups = {**build.best_effort("0"), "kubepods/burstable/poda/main": build.cgroup("0")}
    if top is not None:
        groups["kubepods"] = build.cgroup(top)
    places = {"a": build.place("kubepods/burstable/poda"), "b": build.place("kubepods/besteffort/podb")}
    pods = (build.pod("a", "LS"), build.pod("b", "BE", "BestEffort"))
    return build.snapshot(cgroups=groups, places=places, pods=pods, **given)


@pytest.mark.parametrize("top", ["0-3", "2-5", "7", "0-7"])
def test_a_release_gives_what_the_top_group_has(build: Any, top: str) -> None:
    seen = picture(build, top, slo=build.suppression(enable=False))
    asked = wanted_sets(build, seen)
    assert asked, "best effort stands on one CPU and gets more"
    assert set(asked) == {CPUSet.parse(top)}


def test_without_a_word_of_the_top_group_all_online_cpus_count(build: Any) -> None:
    seen = picture(build, None, slo=build.suppression(enable=False))
    assert set(wanted_sets(build, seen)) == {CPUSet.parse("0-7")}


def test_an_empty_set_of_v2_is_no_restriction(build: Any) -> None:
    """Without the cpuset controller the file of the effective CPUs is not there, or says nothing."""
    seen = picture(build, "", slo=build.suppression(enable=False))
    assert set(wanted_sets(build, seen)) == {CPUSet.parse("0-7")}


@given(top=NONE_OR_SOME, node=st.integers(0, 8000), enable=st.booleans())
def test_no_set_goes_beyond_the_top_group(build: Any, top: frozenset[int], node: int, enable: bool) -> None:
    allowed = CPUSet(top)
    seen = picture(build, str(allowed), slo=build.suppression(enable), usage=build.used(node, a=node // 2))
    assert all(asked <= allowed for asked in wanted_sets(build, seen) if allowed)


def test_a_promise_beyond_the_top_group_is_told(build: Any) -> None:
    seen = dataclasses.replace(picture(build, "0-3"), pods=(build.pod("a", "LSR", cpus="6-7"),))
    (told,) = [d for d in cpuset_pools.decide(seen, cpuset_pools.Config()) if d.subject == "pod/ns/a"]
    assert told.reason == "PinnedCPUsNotOnline"
