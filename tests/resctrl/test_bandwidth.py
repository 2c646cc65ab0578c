"""Memory bandwidth: percentages in the unit of each machine, and the reason in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.resctrl import bandwidth
from koordlite.resctrl.values import BandwidthCapability

INTEL = BandwidthCapability(min_bandwidth=10, bandwidth_gran=10, maximum=100)
COARSE = BandwidthCapability(min_bandwidth=10, bandwidth_gran=20, maximum=100)
AMD = BandwidthCapability(min_bandwidth=0, bandwidth_gran=1, maximum=2048, delay_linear=False)
AMD_LARGE = BandwidthCapability(min_bandwidth=0, bandwidth_gran=1, maximum=4096, delay_linear=False)
MBPS = BandwidthCapability(min_bandwidth=10, bandwidth_gran=10, maximum=2**32 - 1, mbps=True)


@pytest.mark.parametrize(
    ("machine_cap", "percent", "value"),
    [
        pytest.param(INTEL, None, None, id="not given"),
        pytest.param(INTEL, 0, None, id="0 is out of range"),
        pytest.param(INTEL, 101, None, id="so is 101"),
        pytest.param(MBPS, 50, None, id="a percent means nothing in MB/s"),
        pytest.param(INTEL, 85, 90, id="rounded up to the granularity"),
        pytest.param(INTEL, 1, 10, id="raised to the minimum"),
        pytest.param(INTEL, 100, 100, id="all"),
        pytest.param(COARSE, 5, 20, id="the minimum is rounded too"),
        pytest.param(COARSE, 90, 100, id="never above all"),
        pytest.param(AMD, 100, 2048, id="AMD: all is the machine's maximum"),
        pytest.param(AMD, 50, 80, id="AMD: a share of 160 units"),
        pytest.param(AMD, 1, 1, id="AMD: never 0"),
        pytest.param(AMD_LARGE, 100, 4096, id="a machine that counts further"),
        pytest.param(AMD_LARGE, 50, 160, id="scales with it"),
    ],
)
def test_bandwidth(machine_cap: BandwidthCapability, percent: int | None, value: int | None) -> None:
    assert bandwidth.fit(percent=percent, cap=machine_cap).value == value


@given(percent=st.integers(1, 100), least=st.integers(1, 20), step=st.sampled_from([1, 5, 10, 20, 25]))
def test_a_bandwidth_is_one_the_kernel_keeps(percent: int, least: int, step: int) -> None:
    value = bandwidth.fit(percent=percent, cap=BandwidthCapability(least, step, 100)).value
    assert value is not None
    assert max(percent, least) <= value <= 100
    assert value % step == 0


@pytest.mark.parametrize(
    ("percent", "cap", "reach", "value", "why"),
    [
        (50, BandwidthCapability(10, 10, 100), 0, 50, "50 % of the bandwidth"),
        (85, BandwidthCapability(10, 10, 100), 0, 90, "85 % of the bandwidth is 90 %, in steps of 10"),
        (1, BandwidthCapability(10, 10, 100), 0, 10, "1 % of the bandwidth is 10 %, never less than 10"),
        (100, AMD, 0, 2048, "no limit on bandwidth is 2048"),
        (50, AMD, 0, 80, "50 % of 20 GB/s a cache is 80 eighths of a GB/s"),
        (50, AMD, 1_000_000, 2048, "50 % of 1000 GB/s a cache is 2048 eighths of a GB/s"),
        (1, AMD, 1, 1, "1 % of 0.001 GB/s a cache is 1 eighths of a GB/s"),
        (50, BandwidthCapability(10, 10, 2**32 - 1, mbps=True), 9000, 4500, "50 % of 9000 MB/s a cache is 4500 MB/s"),
        (100, BandwidthCapability(10, 10, 2**32 - 1, mbps=True), 0, 2**32 - 1, "no limit on bandwidth is 4294967295"),
        (None, AMD, 0, None, "bandwidth is left alone"),
    ],
)
def test_why_a_bandwidth_is_what_it_is(
    percent: int | None, cap: BandwidthCapability, reach: int, value: int | None, why: str
) -> None:
    fit = bandwidth.fit(percent=percent, cap=cap, l3_bandwidth_mbps=reach)
    assert (fit.value, fit.why) == (value, why)
