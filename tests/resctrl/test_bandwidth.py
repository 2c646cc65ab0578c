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
    ("percent", "cap", "reach", "value", "why"),
    [
        pytest.param(None, INTEL, 0, None, "bandwidth is left alone", id="not given"),
        pytest.param(None, AMD, 0, None, "bandwidth is left alone", id="nor on AMD"),
        pytest.param(0, INTEL, 0, None, "bandwidth is left alone", id="0 is out of range"),
        pytest.param(101, INTEL, 0, None, "bandwidth is left alone", id="so is 101"),
        pytest.param(50, INTEL, 0, 50, "50 % of the bandwidth", id="as it is"),
        pytest.param(85, INTEL, 0, 90, "85 % of the bandwidth is 90 %, in steps of 10", id="up to the granularity"),
        pytest.param(1, INTEL, 0, 10, "1 % of the bandwidth is 10 %, never less than 10", id="raised to the minimum"),
        pytest.param(100, INTEL, 0, 100, "100 % of the bandwidth", id="all"),
        pytest.param(
            5, COARSE, 0, 20, "5 % of the bandwidth is 20 %, never less than 10", id="the minimum rounded too"
        ),
        pytest.param(90, COARSE, 0, 100, "90 % of the bandwidth is 100 %, in steps of 20", id="never above all"),
        pytest.param(100, AMD, 0, 2048, "no limit on bandwidth is 2048", id="AMD: all is the machine's maximum"),
        pytest.param(50, AMD, 0, 80, "50 % of 20 GB/s a cache is 80 eighths of a GB/s", id="AMD: of 160 units"),
        pytest.param(1, AMD, 0, 1, "1 % of 20 GB/s a cache is 1 eighths of a GB/s", id="AMD: never 0"),
        pytest.param(50, AMD, 1_000_000, 2048, "50 % of 1000 GB/s a cache is 2048 eighths of a GB/s", id="at most all"),
        pytest.param(1, AMD, 1, 1, "1 % of 0.001 GB/s a cache is 1 eighths of a GB/s", id="of next to nothing"),
        pytest.param(100, AMD_LARGE, 0, 4096, "no limit on bandwidth is 4096", id="a machine that counts further"),
        pytest.param(50, AMD_LARGE, 0, 160, "50 % of 40 GB/s a cache is 160 eighths of a GB/s", id="scales with it"),
        pytest.param(
            50,
            MBPS,
            0,
            None,
            "bandwidth counts in MB/s here (mba_MBps): a percentage needs l3BandwidthMbps",
            id="a percent means nothing in MB/s",
        ),
        pytest.param(50, MBPS, 9000, 4500, "50 % of 9000 MB/s a cache is 4500 MB/s", id="but of a known reach"),
        pytest.param(100, MBPS, 0, 2**32 - 1, "no limit on bandwidth is 4294967295", id="all in MB/s"),
    ],
)
def test_a_bandwidth_and_its_reason(
    *, percent: int | None, cap: BandwidthCapability, reach: int, value: int | None, why: str
) -> None:
    fit = bandwidth.fit(percent=percent, cap=cap, l3_bandwidth_mbps=reach)
    assert (fit.value, fit.why) == (value, why)


@given(percent=st.integers(1, 100), least=st.integers(1, 20), step=st.sampled_from([1, 5, 10, 20, 25]))
def test_a_bandwidth_is_one_the_kernel_keeps(percent: int, least: int, step: int) -> None:
    value = bandwidth.fit(percent=percent, cap=BandwidthCapability(least, step, 100)).value
    assert value is not None
    assert max(percent, least) <= value <= 100
    assert value % step == 0
