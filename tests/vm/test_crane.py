"""Crane's tutorial on real kernels with two NUMA nodes, cgroup v2 and v1. Each boot runs `guest_crane.py` inside."""

from __future__ import annotations

import kernelrig
import pytest
import slices

BOOT_SECONDS = 600

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize(
    ("kernel", "cgroup"), [pytest.param("6.12", "2", id="6.12-v2"), slices.long("6.1", "1", id="6.1-v1")]
)
def test_two_exclusive_cpus_of_node_0(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_crane.py", environment)
