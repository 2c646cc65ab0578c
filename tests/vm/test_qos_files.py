"""Every cgroup value the product can write, written and put back on real kernels booted in QEMU.

Each boot runs `guest_qos.py` inside. Files that only other kernels have are told as claims, and not looked at.
"""

from __future__ import annotations

import kernelrig
import pytest

BOOT_SECONDS = 420

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize(
    ("kernel", "cgroup"),
    [
        pytest.param("6.1", "2", id="6.1-v2"),
        pytest.param("6.12", "2", id="6.12-v2"),
        pytest.param("6.1", "1", id="6.1-v1"),
    ],
)
def test_every_value_is_written_and_put_back(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_qos.py", environment)
