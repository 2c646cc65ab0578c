"""Ten minutes (in a quick run forty seconds) of a load that varies by 1 % of the node, on machines of three sizes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import slices
from emulated import Emulated

from koordlite.lab.machine import shapes
from koordlite.report.tick import Tick


@pytest.fixture(params=slices.first([64, 8, 256]))
def sized(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulated:
    """A machine with so many CPUs, hyperthreads i and i + n/2, two NUMA nodes."""
    cpus: int = request.param
    base = shapes.machine("intel-2s-ht")
    rows = (
        msgspec.structs.replace(
            base.cpus[0], id=i, package=i % (cpus // 2) * 4 // cpus, core=i % (cpus // 2) % (cpus // 4)
        )
        for i in range(cpus)
    )
    placed = tuple(msgspec.structs.replace(row, node=row.package, l3=row.package) for row in rows)
    monkeypatch.setitem(shapes._SHAPES, "sized", msgspec.structs.replace(base, name="sized", cpus=placed))
    return Emulated("sized", tmp_path)


def suppressed(ticks: list[Tick]) -> list[str]:
    """Places of the besteffort group that were written."""
    return [
        s.place
        for tick in ticks
        for s in tick.applied
        if "besteffort" in str(s.place) and str(s.place).endswith((".cpus", ".quota"))
    ]


@pytest.mark.sliced
@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
def test_nothing_is_written(sized: Emulated, policy: str) -> None:
    """The mean leaves a whole number of CPUs: every sample below it rounds to one CPU more."""
    mean = sized.cpus * 650 - sized.cpus // 4 * 1000
    low, high = mean - sized.cpus * 10, mean + sized.cpus * 10
    sized.slo(policy=policy, resctrl=False)
    sized.pod("web", "LS", f"wave(low={low}m,high={high}m,period=7)")
    sized.pod("crunch", "BE", "greedy")
    with sized.at_work() as agent:
        settling = sized.ticks(agent, 30)
        assert suppressed(settling), "it is limited at all"
        assert suppressed(sized.ticks(agent, slices.amount(600, 40))) == []
