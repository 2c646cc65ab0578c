"""Memory bandwidth: a percentage in the unit this machine counts in.

Intel and ARM count in percent, AMD in eighths of a GB/s, a mount with `mba_MBps` in MB/s. Sources: Linux resctrl
document, "Memory bandwidth Allocation"; Koordinator `calculateMbaPercentForGroup`.
"""

from __future__ import annotations

from koordlite.resctrl.masks import Fit
from koordlite.resctrl.values import PERCENT, BandwidthCapability

# 2048 × 5/64 = 160: 20 GB/s in units of 1/8 GB/s, 80 % of what one Milan core complex reaches.
_USEFUL_SHARE_OF_MAXIMUM = 0.078125
_UNITS_PER_GB = 8
_MB_PER_GB = 1000


def fit(*, percent: int | None, cap: BandwidthCapability, l3_bandwidth_mbps: int = 0) -> Fit:
    """⌈max(percent, minimum) / granularity⌉ × granularity, or on AMD 160 × percent / 100, with its reason in words.

    The value is None, which means leave it alone, without a percent between 1 and 100. 100 is the machine's own
    maximum: no limit. Below that AMD's percents are of 20 GB/s per core complex, scaled where the machine counts
    further than 2048. `l3_bandwidth_mbps`, the memory bandwidth behind one L3 cache in MB/s, replaces that figure. With
    `mba_MBps` it is needed: there a percent means nothing without it. Source: Koordinator
    `calculateMbaPercentForGroup`, whose 160 was measured on Milan.
    """
    if percent is None or not 0 < percent <= PERCENT:
        return Fit(None, "bandwidth is left alone")
    if not (cap.absolute or cap.mbps):
        step = max(cap.bandwidth_gran, 1)
        value = min(-(-max(percent, cap.min_bandwidth, 1) // step) * step, cap.maximum)
        rule = f"never less than {cap.min_bandwidth}" if percent < cap.min_bandwidth else f"in steps of {step}"
        same = value == percent
        return Fit(value, f"{percent} % of the bandwidth" + ("" if same else f" is {value} %, {rule}"))
    if percent == PERCENT:
        return Fit(cap.maximum, f"no limit on bandwidth is {cap.maximum}")
    if cap.mbps and not l3_bandwidth_mbps:
        return Fit(None, "bandwidth counts in MB/s here (mba_MBps): a percentage needs l3BandwidthMbps")
    if cap.mbps:
        value = min(max(1, l3_bandwidth_mbps * percent // PERCENT), cap.maximum)
        return Fit(value, f"{percent} % of {l3_bandwidth_mbps} MB/s a cache is {value} MB/s")
    # AMD. Never 0: the kernel accepts it, but what the hardware does then is not documented.
    full = l3_bandwidth_mbps * _UNITS_PER_GB / _MB_PER_GB or cap.maximum * _USEFUL_SHARE_OF_MAXIMUM
    value = min(max(1, int(full * percent / PERCENT)), cap.maximum)
    return Fit(value, f"{percent} % of {full / _UNITS_PER_GB:g} GB/s a cache is {value} eighths of a GB/s")


def same(first: int, second: int, cap: BandwidthCapability) -> bool:
    """Tell whether the hardware makes no difference between two values.

    Kernels store percents in the hardware's own steps and read them back from there: ARM's may come back as less.
    """
    if cap.absolute or cap.mbps:
        return first == second
    return abs(first - second) < max(cap.bandwidth_gran, 1)
