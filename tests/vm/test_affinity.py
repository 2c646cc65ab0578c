"""Pods that talk to each other on a real kernel with two NUMA nodes: brought together, and put back.

Each boot runs `guest_affinity.py` inside.
"""

from __future__ import annotations

import kernelrig
import pytest
import slices

BOOT_SECONDS = 600

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize(
    ("kernel", "cgroup"), [pytest.param("6.12", "2", id="6.12-v2"), slices.long("6.1", "1", id="6.1-v1")]
)
def test_threads_of_pods_that_talk_come_onto_one_node_and_go_back(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_affinity.py", environment)
