"""Swap by class on a real kernel booted in QEMU, with a swap device. The boot runs `guest_swap.py` inside."""

from __future__ import annotations

import kernelrig

BOOT_SECONDS = 420

pytestmark = kernelrig.marks(BOOT_SECONDS)


def test_swap_is_shared_by_class_and_put_back() -> None:
    environment = {"KVER": "6.12", "CGROUP": "2", "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_swap.py", environment)
