"""Best-effort containers that keep to the NUMA nodes promised to their pods."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite.model.cpuset import CPUSet
from koordlite.model.node import ResolvedReservation
from koordlite.model.picture.groups import PodGroups
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.pod.values import ResourceStatus
from koordlite.strategies import cpu_suppress

BE = "kubepods/besteffort"
NODE_1 = ResourceStatus(numa_nodes=(1,))
PINNED = ResourceStatus(CPUSet.parse("1,5"))


def decide(build: Any, status: ResourceStatus, *, follow: bool = True, **part: Any) -> dict[str, str]:
    """Changes of a tick in which best effort may have every CPU; pod b has the promise, pod c has none."""
    groups = {BE: build.cgroup("0-7"), **{f"{BE}/pod{x}": build.cgroup("0-7") for x in "bc"}}
    groups |= {f"{BE}/pod{x}/main": build.cgroup(part.pop(x, "0-7")) for x in "bc"}
    pods = (build.pod("b", "BE", "BestEffort", status=status), build.pod("c", "BE", "BestEffort"))
    places = {x: PodGroups(f"{BE}/pod{x}", {"main": f"{BE}/pod{x}/main"}) for x in "bc"}
    seen = build.snapshot(pods=pods, places=places, cgroups=groups, **part)
    return dict(build.changes(list(cpu_suppress.decide(seen, cpu_suppress.Config(follow_promises=follow)))))


def narrowed(text: str) -> dict[str, str]:
    return {f"{BE}/podb/main/cpuset.cpus": text}


@pytest.mark.parametrize(
    ("status", "held"),
    [
        pytest.param(NODE_1, "2-3,6-7", id="the CPUs of its node"),
        pytest.param(PINNED, "1,5", id="or its own CPUs"),
    ],
)
def test_a_promise_narrows_its_own_containers(build: Any, status: ResourceStatus, held: str) -> None:
    off = build.suppression(enable=False)
    assert decide(build, status, slo=off) == narrowed(held)
    assert decide(build, status, slo=off, b=held) == {}


@pytest.mark.parametrize(
    ("status", "follow"),
    [
        pytest.param(NODE_1, False, id="unless it is switched on"),
        pytest.param(ResourceStatus(numa_nodes=(1,), numa_cpu=False), True, id="memory ties no CPUs"),
        pytest.param(ResourceStatus(numa_nodes=(7,)), True, id="a node the machine lacks"),
        pytest.param(ResourceStatus(), True, id="no promise"),
    ],
)
def test_others_have_what_best_effort_has(build: Any, status: ResourceStatus, follow: bool) -> None:
    assert decide(build, status, follow=follow, slo=build.suppression(enable=False)) == {}


def test_a_promise_outside_what_best_effort_has_gives_way(build: Any) -> None:
    found = decide(build, PINNED, slo=build.suppression(enable=False), reserved=ResolvedReservation(PINNED.cpuset))
    assert found[f"{BE}/podb/main/cpuset.cpus"] == found[f"{BE}/cpuset.cpus"] == "0,2-4,6-7"


def test_a_promise_is_kept_inside_the_limit(build: Any) -> None:
    found = decide(build, NODE_1, usage=build.used(4000, ls=4000))
    target, held = CPUSet.parse(found[f"{BE}/cpuset.cpus"]), CPUSet.parse(found[f"{BE}/podb/main/cpuset.cpus"])
    assert held and held <= target
    assert found[f"{BE}/podc/main/cpuset.cpus"] == str(target)


def test_under_kubelets_static_policy_a_narrow_container_is_not_taken_for_the_limit(build: Any) -> None:
    kubelet, whole = Kubelet(cpu_manager_policy="static"), build.suppression(cpu_suppress_threshold_percent=100)
    assert decide(build, PINNED, kubelet=kubelet, b="1,5", slo=whole) == {}
