"""CPU is shared out without losing or inventing any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.lab.load import workloads
from koordlite.model.cpuset import CPUSet


@pytest.mark.parametrize(
    ("amount", "wants", "weights", "given_out"),
    [
        pytest.param(100, [10, 20], [1, 1], [10, 20], id="enough for all"),
        pytest.param(100, [90, 90], [1, 1], [50, 50], id="equal weights share equally"),
        pytest.param(100, [90, 90], [3, 1], [75, 25], id="weights share in proportion"),
        pytest.param(100, [10, 200], [1, 1], [10, 90], id="what one leaves the other takes"),
        pytest.param(100, [200, 10, 200], [1, 2, 1], [45, 10, 45], id="the rest goes by weight again"),
        pytest.param(0, [5, 5], [1, 1], [0, 0], id="nothing to share"),
    ],
)
def test_fill(amount: float, wants: list[float], weights: list[float], given_out: list[float]) -> None:
    got = workloads.fill(amount, dict(enumerate(wants)), dict(enumerate(weights)))
    assert [got[number] for number in range(len(wants))] == pytest.approx(given_out)


def test_regions_put_the_pinned_first() -> None:
    cut = workloads.regions([CPUSet([0, 1, 2]), CPUSet([2]), CPUSet([0, 1, 2, 3])])
    assert [(region.cpus, region.claimants) for region in cut] == [
        ((3,), (2,)),
        ((0, 1), (0, 2)),
        ((2,), (0, 1, 2)),
    ]


def test_a_pinned_claimant_uses_its_own_cpus_before_it_competes() -> None:
    cut = workloads.regions([CPUSet([0, 1]), CPUSet([1])])
    shares = workloads.share_out(capacity=100, wants=[100, 100], weights=[1, 1], cut=cut)
    assert shares.used == (100, 100)


SETS = st.sets(st.integers(0, 7), max_size=8).map(CPUSet)
CLAIM = st.tuples(SETS, st.floats(0, 2000), st.floats(0.001, 1000))


@given(st.lists(CLAIM, max_size=8))
def test_work_is_conserved(claims: list[tuple[CPUSet, float, float]]) -> None:
    allowed, wants, weights = ([claim[part] for claim in claims] for part in range(3))
    shares = workloads.share_out(capacity=100, wants=wants, weights=weights, cut=workloads.regions(allowed))
    assert sum(shares.used) == pytest.approx(sum(shares.by_cpu.values()), abs=1e-6), "work done is work charged"
    for (cpus, want, _), used in zip(claims, shares.used, strict=True):
        assert -1e-6 <= used <= want + 1e-6, "nobody gets more than he wants"
        assert used <= 100 * len(cpus) + 1e-6, "nobody gets more than his CPUs can do"
    for cpu, busy in shares.by_cpu.items():
        assert busy <= 100 + 1e-6, "no CPU does more than it can"
        assert any(cpu in cpus for cpus, *_ in claims), "no CPU works that nobody may use"


@given(st.lists(CLAIM, max_size=8))
def test_no_cpu_idles_while_a_claimant_that_may_use_it_wants_more(claims: list[tuple[CPUSet, float, float]]) -> None:
    allowed, wants, weights = ([claim[part] for claim in claims] for part in range(3))
    shares = workloads.share_out(capacity=100, wants=wants, weights=weights, cut=workloads.regions(allowed))
    for (cpus, want, _), used in zip(claims, shares.used, strict=True):
        if want - used > 1e-3:
            assert all(shares.by_cpu.get(cpu, 0) > 100 - 1e-3 for cpu in cpus)
