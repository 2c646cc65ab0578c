"""Counters of groups: words in place of numbers, sub-NUMA clusters, rates, counters that go back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from koordlite.resctrl import monitoring
from koordlite.resctrl.filesystem import ResctrlFS
from koordlite.resctrl.monitoring import Counters
from koordlite.resctrl.values import CacheUse

if TYPE_CHECKING:
    from planted import Rooted

DATA = "/sys/fs/resctrl/BE/mon_data"


def planted(machine: Rooted, **files: str) -> dict[int, Counters]:
    return ResctrlFS(
        machine.plant({f"{DATA}/{path.replace('__', '/')}": text for path, text in files.items()})
    ).counters("BE")


def test_numbers_by_cache_id(machine: Rooted) -> None:
    found = planted(
        machine,
        mon_L3_00__llc_occupancy="65536\n",
        mon_L3_00__mbm_total_bytes="100\n",
        mon_L3_00__mbm_local_bytes="60\n",
        mon_L3_08__llc_occupancy="0\n",
    )
    assert found == {0: Counters(65536, 100, 60), 8: Counters(0, None, None)}


@pytest.mark.parametrize("word", ["Unavailable\n", "Error\n", "Unassigned\n", "", "-5\n", "12 KiB\n"])
def test_a_word_is_no_number(machine: Rooted, word: str) -> None:
    assert planted(machine, mon_L3_00__mbm_total_bytes=word, mon_L3_00__llc_occupancy="7\n") == {0: Counters(7)}


def test_sub_numa_clusters_count_once(machine: Rooted) -> None:
    found = planted(
        machine,
        mon_L3_00__llc_occupancy="9\n",
        mon_L3_00__mon_sub_L3_00__llc_occupancy="4\n",
        other__llc_occupancy="1\n",
    )
    assert found == {0: Counters(9)}


def test_a_group_that_is_gone_has_no_counters(machine: Rooted) -> None:
    assert ResctrlFS(machine).counters("BE") == {}


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        pytest.param(1000, 3000, 1000.0, id="bytes per second"),
        pytest.param(1000, 1000, 0.0, id="idle"),
        pytest.param(3000, 1000, None, id="a counter that went back"),
        pytest.param(None, 1000, None, id="the first look"),
        pytest.param(1000, None, None, id="no answer now"),
        pytest.param(0, 2**32 * 65536, None, id="an absurd step: unwrapped wrongly"),
    ],
)
def test_rates(before: int | None, now: int | None, rate: float | None) -> None:
    found = monitoring.use({0: Counters(5, before, 0)}, {0: Counters(7, now, 20)}, 2.0)
    assert found == {0: CacheUse(7, rate, 10.0)}


def test_no_time_gives_no_rate() -> None:
    assert monitoring.use({0: Counters(5, 1, 1)}, {0: Counters(7, 2, 2)}, 0.0) == {0: CacheUse(7, None, None)}


def test_a_cache_that_came_meanwhile_has_no_rate_yet() -> None:
    assert monitoring.use({}, {4: Counters(7, 2, 2)}, 2.0) == {4: CacheUse(7, None, None)}
