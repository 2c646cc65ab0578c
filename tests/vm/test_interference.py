"""Interference metrics on real kernels booted in QEMU: each boot runs `guest_interference.py` inside."""

from __future__ import annotations

import kernelrig
import pytest
import slices

BOOT_SECONDS = 300

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize(
    ("kernel", "cgroup"),
    [
        pytest.param("6.12", "2", id="6.12-v2"),
        slices.long("6.1", "2", id="6.1-v2"),
        slices.long("6.12", "1", id="6.12-v1"),
    ],
)
def test_what_disturbs_containers_is_seen(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_interference.py", environment)
