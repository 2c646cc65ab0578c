"""Batch resources and containers that begin, on kernels with cgroup v2 booted in QEMU; `guest_batch.py` runs inside."""

from __future__ import annotations

import kernelrig
import pytest
import slices

BOOT_SECONDS = 420

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize("kernel", slices.first(["6.12", "6.1"]))
def test_batch_pods_have_what_they_asked_for_at_once(kernel: str) -> None:
    environment = {"KVER": kernel, "CGROUP": "2", "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_batch.py", environment)
