"""Requests beside a reservation: how much too many, and who goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.framework import Finding
from descheduler.plugins import reserved_cpus
from tests.support.handles import said


def found(cluster: Any) -> list[Finding]:
    answers = said(reserved_cpus, cluster.view())
    return [a for a in answers if isinstance(a, Finding) and a.reason == "OvercommittedBesideReserve"]


def excess(cluster: Any) -> dict[str, int]:
    return {name: nano // 10**6 for name, nano in reserved_cpus.excess(cluster.view().nodes["a"]).items()}


@pytest.mark.parametrize(
    ("reservation", "cpu_milli"),
    [
        pytest.param({"resources": {"cpu": "4"}}, 2000, id="by quantity"),
        pytest.param({"reservedCPUs": "0-3"}, 2000, id="by list"),
        pytest.param({"resources": {"cpu": "4"}, "applyPolicy": "ReservedCPUsOnly"}, None, id="only CPU ids are kept"),
        pytest.param({"resources": {"cpu": "2"}}, None, id="it just fits"),
        pytest.param(None, None, id="nothing is reserved"),
    ],
)
def test_excess_is_what_requests_have_over_the_rest(cluster: Any, reservation: object, cpu_milli: int | None) -> None:
    cluster.node("a", reservation=reservation)
    for number in range(7):
        cluster.pod(f"p-{number}", "a", cpu="2")
    assert excess(cluster) == ({} if cpu_milli is None else {"cpu": cpu_milli})


def test_amplified_cpus_of_its_own_count_as_often_as_they_are_sold(cluster: Any) -> None:
    node = cluster.node("a", cpu="24", reservation={"resources": {"cpu": "6"}})
    node["metadata"]["annotations"]["node.koordinator.sh/resource-amplification-ratio"] = '{"cpu":1.5}'
    cluster.pinned("own", "a", "0-3")
    cluster.pod("shared", "a", cpu="14")
    assert excess(cluster) == {"cpu": 2000}


def test_the_fewest_and_least_important_go(cluster: Any) -> None:
    cluster.node("a", reservation={"resources": {"cpu": "4"}})
    for name, cpu, priority in (("small", "1", 0), ("middle", "5", 10), ("large", "10", 100)):
        cluster.pod(name, "a", cpu=cpu)["spec"]["priority"] = priority
    (finding,) = found(cluster)
    assert finding.pod == "uid-middle", "the small one alone would not do, and is not needed once the middle one goes"
    assert (finding.severity, finding.home) == ("hard", "elsewhere")
    assert finding.fact == "requests on it exceed what is left by cpu 4; this pod asks for cpu 5"


def test_guarded_and_system_pods_are_not_chosen(cluster: Any) -> None:
    cluster.node("a", reservation={"resources": {"cpu": "4"}})
    cluster.pod("daemon", "a", cpu="8", owner="DaemonSet/app")
    cluster.pod("system", "a", cpu="8", labels={"koordinator.sh/qosClass": "SYSTEM"})
    assert found(cluster) == []


amounts = st.fixed_dictionaries({"cpu": st.integers(0, 8), "memory": st.integers(0, 8)})


@given(st.lists(amounts, max_size=8), amounts)
def test_who_goes_is_enough_and_nobody_goes_needlessly(pods: list[dict[str, int]], over: dict[str, int]) -> None:
    candidates: list[Any] = list(enumerate(pods))
    gone = reserved_cpus.fewest(candidates, over)

    def enough(chosen: Any) -> bool:
        return all(sum(pods[n][name] for n in chosen) >= nano for name, nano in over.items())

    if enough(range(len(pods))):
        assert enough(gone)
        assert not any(enough([n for n in gone if n != one]) for one in gone)
    elif any(nano > 0 for nano in over.values()):
        assert all(any(pods[int(str(n))][name] for name in over if over[name]) for n in gone)
