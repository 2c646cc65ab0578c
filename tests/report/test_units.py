"""Numbers as people read them."""

from __future__ import annotations

import pytest

from koordlite.report import units


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        pytest.param(units.cores(9340), "9.3", id="cores have one decimal"),
        pytest.param(units.cores(None), "–", id="unknown cores are a dash"),
        pytest.param(units.cores(-400), "-0.4", id="a budget can be negative"),
        pytest.param(units.cores(-40), "0.0", id="zero has no sign"),
        pytest.param(units.size(0), "0 B", id="nothing"),
        pytest.param(units.size(1023), "1023 B", id="below a KiB"),
        pytest.param(units.size(1536 << 20), "1.5 GiB", id="binary units"),
        pytest.param(units.size(3 << 40), "3.0 TiB", id="largest unit"),
        pytest.param(units.size(None), "–", id="unknown size"),
        pytest.param(units.clock(7.4), "0:07", id="seconds"),
        pytest.param(units.stamp(7.0, 1764322245.0), "11-28 09:30:45", id="a row by the wall clock"),
        pytest.param(units.stamp(7.0, 0.0), "0:07", id="a row of a run without a wall clock"),
        pytest.param(units.clock(3723), "1:02:03", id="hours"),
        pytest.param(units.clock(-3), "0:00", id="a clock never shows less than nothing"),
        pytest.param(units.span(0.00034), "340 µs", id="microseconds"),
        pytest.param(units.span(0), "0 s", id="no time at all"),
        pytest.param(units.span(0.0124), "12 ms", id="milliseconds"),
        pytest.param(units.span(4.25), "4.2 s", id="short spans"),
        pytest.param(units.span(754), "12:34", id="long spans"),
        pytest.param(units.share(3, 4), "75 %", id="percent"),
        pytest.param(units.share(3, 0), "–", id="no share of nothing"),
        pytest.param(units.bare("quota_us", -1), "unlimited", id="no quota"),
        pytest.param(units.bare("quota_us", 250_000), "250 ms", id="quota"),
        pytest.param(units.bare("cpuset", ""), "none", id="an empty set is said"),
        pytest.param(units.bare("ratio", 0.25), "0.25", id="plain numbers"),
        pytest.param(units.full("prod_milli", 1500), "1.5 cores", id="with unit"),
        pytest.param(units.label("node_reserved_milli"), "node reserved", id="the unit is not repeated"),
        pytest.param(units.label("degradeTimeMinutes"), "degrade time minutes", id="camelCase splits"),
        pytest.param(units.label("reservedCPUs"), "reserved CPUs", id="abbreviations stay whole"),
        pytest.param(units.label("memory"), "memory", id="a name that is a unit stays"),
    ],
)
def test_shown(shown: str, wanted: str) -> None:
    assert shown == wanted
