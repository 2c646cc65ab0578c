"""`some` is the longest wait of any, `full` the shortest of those who had something to do."""

from __future__ import annotations

import pytest

from koordlite.host import procfs
from koordlite.lab.machine.pressure import PressureFile, Waits

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("parts", "some", "full"),
    [
        pytest.param([(0.5, False)], 500_000, 500_000, id="alone, some is all"),
        pytest.param([(0.5, False), (0.2, False)], 500_000, 200_000, id="two who wait overlap for the shorter time"),
        pytest.param([(0.5, False), (0.0, False)], 500_000, 0, id="one who runs is enough for no full"),
        pytest.param([(0.5, False), (0.0, True)], 500_000, 500_000, id="who has nothing to do does not count"),
        pytest.param([(0.0, True)], 0, 0, id="nobody has anything to do"),
    ],
)
def test_a_step_counts(parts: list[tuple[float, bool]], some: int, full: int) -> None:
    pressure, waits = PressureFile(), Waits()
    for part, idle in parts:
        waits.note(pressure, part, idle=idle)
    waits.close(SECOND)
    assert (pressure.some.total_us, pressure.full.total_us) == (some, full)


def test_averages_rise_towards_the_part_and_fall_when_it_is_over() -> None:
    pressure = PressureFile()
    for _ in range(60):
        pressure.add(SECOND, SECOND // 2, SECOND // 4)
    raised = procfs.pressure(pressure.text().encode())
    assert raised.full is not None
    assert raised.some.avg10 == pytest.approx(50, abs=1)
    assert raised.full.avg10 == pytest.approx(25, abs=1)
    for _ in range(60):
        pressure.add(SECOND, 0)
    later = procfs.pressure(pressure.text().encode())
    assert later.some.avg10 < 1
    assert later.some.total_us == raised.some.total_us
