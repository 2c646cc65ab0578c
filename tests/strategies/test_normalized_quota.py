"""A limit means the same work on every machine: quotas divided by the ratio, and undone with it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import burst
from koordlite.model.picture.groups import Cgroup, Original, PodGroups
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, CPUBurst
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import cpu_burst, discover, normalized_quota

POD = "kubepods/burstable/podp"
MAIN, SIDE = f"{POD}/main", f"{POD}/side"
RULE = next(rule for rule in discover() if rule.module == "normalized_quota")
QUOTAS = {POD: 300_000, MAIN: 200_000, SIDE: 100_000}


def pod(qos: str = "LS", **more: Any) -> Any:
    limits = {"main": 2000, "side": 1000}
    containers = tuple(
        ContainerInfo(name, name, True, {}, {"cpu": Quantity.of_milli(milli)}) for name, milli in limits.items()
    )
    return {"qos": qos, "containers": containers, **more}


def picture(
    build: Any, one: dict[str, Any], *, ratio: float | None = 1.25, quotas: dict[str, int] | None = None, **more: Any
) -> Snapshot:
    described = dict(one)
    made: Pod = build.pod("p", described.pop("qos"), "Burstable", **described)
    cgroups = {group: Cgroup(quota_us=quota) for group, quota in (quotas or QUOTAS).items()}
    fixed = {
        "pods": (made,),
        "places": {"p": PodGroups(POD, {"main": MAIN, "side": SIDE})},
        "cgroups": cgroups,
        "notes": NodeNotes(cpu_normalization=ratio),
    }
    seen: Snapshot = build.snapshot(**{**fixed, **more})
    return seen


def changes(build: Any, seen: Snapshot) -> Any:
    return build.changes(list(RULE.answer(seen, normalized_quota.Config())))


DIVIDED = {f"{POD}/cpu.quota": "240000", f"{MAIN}/cpu.quota": "160000", f"{SIDE}/cpu.quota": "80000"}


@pytest.mark.parametrize(
    ("one", "divided"),
    [
        pytest.param(pod(), True, id="an LS pod"),
        pytest.param(pod(""), True, id="an unlabelled pod"),
        pytest.param(pod("", cpus="1"), False, id="one with its own CPUs"),
        pytest.param(pod("LSR"), False, id="an LSR pod"),
        pytest.param(pod("BE"), False, id="batch work"),
        pytest.param(pod(phase="Succeeded"), False, id="a pod that has ended"),
    ],
)
def test_quotas_of_pods_that_share_cpus_are_divided(build: Any, one: dict[str, Any], divided: bool) -> None:
    assert changes(build, picture(build, one)) == (DIVIDED if divided else {})


@pytest.mark.parametrize("ratio", [None, 1.0, 0.8], ids=["none on the Node", "1.00", "below 1"])
def test_without_a_ratio_above_one_limits_stay_whole(build: Any, ratio: float | None) -> None:
    assert changes(build, picture(build, pod(), ratio=ratio)) == {}


def test_a_quota_that_is_not_kubelets_stays(build: Any) -> None:
    quotas = {POD: -1, MAIN: 150_000, SIDE: 100_000}
    assert changes(build, picture(build, pod(), quotas=quotas)) == {f"{SIDE}/cpu.quota": "80000"}


HELD = {f"{group}/cpu.quota": Original(quota, normalized_quota.NAME) for group, quota in QUOTAS.items()}


def test_a_ratio_that_goes_gives_back_what_the_limit_is_today(build: Any) -> None:
    resized = {"main": 4000, "side": 1000}
    containers = tuple(
        ContainerInfo(name, name, True, {}, {"cpu": Quantity.of_milli(milli)}) for name, milli in resized.items()
    )
    quotas = {POD: 240_000, MAIN: 160_000, SIDE: 80_000}
    seen = picture(build, {**pod(), "containers": containers}, ratio=1.0, quotas=quotas, found=dict(HELD))
    assert changes(build, seen) == {
        f"{POD}/cpu.quota": "500000",
        f"{MAIN}/cpu.quota": "400000",
        f"{SIDE}/cpu.quota": "100000",
    }


def test_another_ratio_moves_our_own_quotas(build: Any) -> None:
    quotas = {POD: 240_000, MAIN: 160_000, SIDE: 80_000}
    found = changes(build, picture(build, pod(), ratio=2.0, quotas=quotas, found=dict(HELD)))
    assert found[f"{MAIN}/cpu.quota"] == "100000"


@pytest.mark.parametrize("policy", ["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"])
def test_one_rule_writes_a_quota(build: Any, policy: str) -> None:
    """Quotas that may grow are `cpuBurst`'s, the others ours, and neither undoes the other in the next tick."""
    slo = SLO(cpu_burst=CPUBurst(policy=policy))  # type: ignore[arg-type]
    quotas, found = dict(QUOTAS), {}
    for _ in range(4):
        held = dict(found)
        seen = picture(build, pod(), slo=slo, quotas=quotas, found=held, ours=frozenset(held))
        writers: dict[str, str] = {}
        ours = RULE.answer(seen, normalized_quota.Config())
        rules = (("cpuBurst", cpu_burst.decide(seen, cpu_burst.Config())), (RULE.name, ours))
        for name, decisions in rules:
            for place, value in build.changes(list(decisions)).items():
                if place.endswith("/cpu.quota"):
                    assert writers.setdefault(place, name) == name
                    group = place.removesuffix("/cpu.quota")
                    found.setdefault(place, Original(quotas[group], name))
                    quotas[group] = int(value)
    # A quota that may grow stays while nothing is known of the load: it is within its bounds.
    assert quotas[MAIN] == (160_000 if policy in ("none", "cpuBurstOnly") else 200_000)


@given(st.integers(10, 100_000), st.floats(1.01, 5))
def test_a_divided_quota_is_what_the_formula_says(limit: int, ratio: float) -> None:
    quota = burst.base_quota(limit_milli=limit, ratio=ratio)
    assert quota == max(math.ceil(max(limit * 100, 1000) / ratio), 1000)
    assert dataclasses.fields(normalized_quota.Config)
