"""A CPU set widened by hand over two NUMA nodes of a real kernel: repaired on the node, or moved by the descheduler.

Each boot runs `guest_numa.py` inside.
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
def test_what_cannot_be_repaired_has_to_move(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_numa.py", environment)
