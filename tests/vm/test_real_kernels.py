"""The agent on real kernels with cgroup v2, two NUMA nodes with hyperthreads, and resctrl, booted in QEMU.

Each boot runs `guest_agent.py` inside; what the guest claims is judged here. CPU time means nothing in an emulated
machine, so how well quotas are followed is measured in tests/kernel.
"""

from __future__ import annotations

import dataclasses

import kernelrig
import pytest
import slices

BOOT_SECONDS = 420

pytestmark = kernelrig.marks(BOOT_SECONDS)


@dataclasses.dataclass(frozen=True)
class Boot:
    """One machine to boot."""

    flavour: str
    kernel: str
    cgroup: str = "2"
    resctrl: bool = True
    driver: str = "cgroupfs"

    @property
    def environment(self) -> dict[str, str]:
        """What the rig's run.sh wants to know."""
        resctrl = {"RESCTRL": "rw"} if self.resctrl else {"RDT": "none"}
        return {"KVER": self.kernel, "CGROUP": self.cgroup, "TIMEOUT": str(BOOT_SECONDS), **resctrl}


BOOTS = {
    "amd-6.12-v2": Boot("amd", "6.12"),
    "intel-6.1-v1-with-eight-CPUs-and-no-resctrl": Boot("intel", "6.1", cgroup="1", resctrl=False),
    "intel-6.1-v2": Boot("intel", "6.1"),
    "intel-6.12-v2-systemd-names": Boot("intel", "6.12", driver="systemd"),
    "amd-6.1-v2-systemd-names": Boot("amd", "6.1", driver="systemd"),
    "amd-6.12-hybrid-works-on-v1": Boot("amd", "6.12", cgroup="hybrid"),
}


@pytest.mark.parametrize("boot", slices.named(BOOTS, 2))
def test_what_the_agent_programs_is_what_the_kernel_does(boot: Boot) -> None:
    words = [kernelrig.PYTHON, "tests/vm/guest_agent.py", boot.driver, *(["resctrl"] if boot.resctrl else [])]
    kernelrig.check_claims(boot.flavour, " ".join(words), boot.environment)
