"""The last hour by NUMA node: rates out of counters, and nothing but an hour."""

from __future__ import annotations

from koordlite.model.picture.usage import NumaCounters
from koordlite.report.web.numa_history import EVERY_SECONDS, SECONDS, NumaHistory


def counters(zone: int, used: float | None, memory: int | None = 1 << 30) -> NumaCounters:
    return NumaCounters(node=zone, used_seconds=used, memory_used=memory)


def test_cores_are_the_difference_of_two_samples_by_the_time_between():
    history = NumaHistory()
    history.add(100.0, 5000.0, [counters(0, 10.0), counters(1, 0.0, None)])
    assert history.document("n") == {"node": "n", "times": [], "zones": {}}
    history.add(130.0, 5030.0, [counters(0, 55.0, 7), counters(1, 3.0, None)])
    assert history.document("n") == {
        "node": "n",
        "times": [5030.0],
        "zones": {
            "0": {"cpuCores": [1.5], "memoryUsedBytes": [7]},
            "1": {"cpuCores": [0.1], "memoryUsedBytes": [None]},
        },
    }


def test_a_counter_that_goes_back_or_is_missing_is_not_known():
    history = NumaHistory()
    for now, used in enumerate([[counters(0, 9.0)], [counters(0, 2.0)], [counters(0, None)], [counters(1, 1.0)]]):
        history.add(float(now), float(now), used)
    zones = history.document("n")["zones"]
    assert zones["0"]["cpuCores"] == zones["1"]["cpuCores"] == [None, None, None]
    assert zones["0"]["memoryUsedBytes"] == [1 << 30, 1 << 30, None]


def test_moments_ascend_though_the_clock_is_set_back_and_an_hour_is_all():
    history = NumaHistory()
    for number in range(500):
        history.add(EVERY_SECONDS * number, 1e9 - 3600 * number, [counters(0, float(number))])
    times = history.document("n")["times"]
    assert len(times) == SECONDS / EVERY_SECONDS
    assert times == sorted(set(times)) and times[-1] - times[0] == SECONDS - EVERY_SECONDS
