"""Short pressure triggers on real kernels: an emulated machine may have them where this one may not.

Times mean nothing there; how fast the agent reacts is measured by `tests/perf/agent/reaction.py`.
"""

from __future__ import annotations

import kernelrig
import pytest
import slices

BOOT_SECONDS = 420

pytestmark = kernelrig.marks(BOOT_SECONDS)


@pytest.mark.parametrize(("kernel", "cgroup"), [("6.12", "2"), slices.long("6.1", "2"), slices.long("6.12", "1")])
def test_pressure_of_waiting_threads_leads_to_a_round_before_its_time(kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS)}
    kernelrig.check_claims("intel", f"{kernelrig.PYTHON} -m tests.vm.guest_reaction", environment)
