"""resctrl on real kernels, both vendors, with the shapes that hardware comes in: what is programmed is what runs.

Each boot runs `guest_resctrl.py` inside; what the guest claims is judged here.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

import kernelrig
import pytest
import slices

BOOT_SECONDS = 300

pytestmark = kernelrig.marks(BOOT_SECONDS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A machine to boot, and what the class BE (30 % of the cache, 50 % of the bandwidth) has on it."""

    flavour: str
    kernel: str
    values: dict[str, dict[int, int]]
    rdt: str = ""
    resctrl: str = "rw"
    """Mount options; empty: the agent mounts it."""
    rig: dict[str, str] = dataclasses.field(default_factory=dict)
    offline: tuple[int, ...] = ()
    unit: int = 0
    others: int = 0
    refused: bool = False
    reach_mbps: int = 0
    """What 100 % of the bandwidth is, where the machine counts in MB/s."""

    @property
    def environment(self) -> dict[str, str]:
        """What the rig's run.sh wants to know."""
        given = {"KVER": self.kernel, "TIMEOUT": str(BOOT_SECONDS), **self.rig}
        return given | ({"RDT": self.rdt} if self.rdt else {}) | ({"RESCTRL": self.resctrl} if self.resctrl else {})

    @property
    def argument(self) -> dict[str, Any]:
        """What the guest wants to know."""
        return {
            "values": self.values,
            "mounted": bool(self.resctrl),
            "offline": self.offline,
            "unit": self.unit,
            "others": self.others,
            "refused": self.refused,
            "reach": self.reach_mbps,
        }


def each(caches: tuple[int, ...], value: int) -> dict[int, int]:
    return dict.fromkeys(caches, value)


SIX = (0, 1, 2, 4, 5, 6)
SHAPES = {
    "intel-6.1-mounted-by-us-with-a-cache-that-goes-and-comes": Shape(
        flavour="intel",
        kernel="6.1",
        resctrl="",
        values={"L3": each((0, 1), 0xF), "MB": each((0, 1), 50)},
        offline=(4, 5, 6, 7),
        unit=65536,
    ),
    "amd-6.12-gaps-in-the-ids-and-a-larger-maximum": Shape(
        flavour="amd",
        kernel="6.12",
        rdt="mbaexp:12",
        rig={"SMP": "12,sockets=2,dies=3,cores=1,threads=2", "NUMA": "0-5 6-11"},
        values={"L3": each(SIX, 0x1F), "MB": each(SIX, 160)},
        unit=64,
    ),
    "intel-6.12-code-and-data-apart-on-sub-NUMA-clusters": Shape(
        flavour="intel",
        kernel="6.12",
        resctrl="cdp",
        rig={"NUMA": "0-1 2-3 4-5 6-7"},
        values={"L3CODE": each((0, 1), 0xF), "L3DATA": each((0, 1), 0xF), "MB": each((0, 1), 50)},
    ),
    "intel-6.1-no-bandwidth-and-an-L2": Shape(
        flavour="intel", kernel="6.1", rdt="mba:0,l2:8,mincbm:2", values={"L3": each((0, 1), 0xF)}, unit=65536
    ),
    "intel-6.12-bandwidth-in-MB-per-second": Shape(
        flavour="intel",
        kernel="6.12",
        resctrl="mba_MBps",
        values={"L3": each((0, 1), 0xF), "MB": each((0, 1), 10_000)},
        unit=65536,
        reach_mbps=20_000,
    ),
    "amd-6.1-no-class-left": Shape(
        flavour="amd", kernel="6.1", rdt="l3clos:3,mbaclos:3", values={}, others=2, refused=True
    ),
}


@pytest.mark.parametrize("shape", slices.named(SHAPES, 2))
def test_what_is_programmed_is_what_runs(shape: Shape) -> None:
    command = shlex.join([kernelrig.PYTHON, "tests/vm/guest_resctrl.py", json.dumps(shape.argument)])
    kernelrig.check_claims(shape.flavour, command, shape.environment)
