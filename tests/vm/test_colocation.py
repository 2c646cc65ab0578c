"""The co-location benchmark on real kernels booted in QEMU: each boot runs `guest_colocation.py` inside."""

from __future__ import annotations

import kernelrig
import pytest
import slices

BOOT_SECONDS = 600
FOUR_CPUS = {"SMP": "4,sockets=2,cores=1,threads=2", "NUMA": "0-1 2-3"}

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize(
    ("kernel", "cgroup"),
    [
        pytest.param("6.12", "1", id="6.12-hybrid"),
        slices.long("6.12", "2", id="6.12-v2"),
        slices.long("6.1", "1", id="6.1-hybrid"),
    ],
)
def test_the_benchmark_runs_where_the_unified_hierarchy_has_the_cpu_controller(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS), **FOUR_CPUS}
    command = f"PYTHONPATH=. {kernelrig.PYTHON} tests/vm/guest_colocation.py /tmp/koordlite-colocation"
    kernelrig.check_claims("intel", command, environment)
