"""Burst, memory QoS and evictions as `koordlite run` carries them out on real kernels booted in QEMU.

Each boot runs `guest_loops.py` inside.
"""

from __future__ import annotations

import kernelrig
import pytest
import slices

BOOT_SECONDS = 420

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize(
    ("kernel", "cgroup"), [pytest.param("6.12", "2", id="6.12-v2"), slices.long("6.1", "1", id="6.1-v1")]
)
def test_each_loop_closes_and_everything_goes_back(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_loops.py", environment)
