"""The agent on real kernels with cgroup v2, two NUMA nodes with hyperthreads, and resctrl, booted in QEMU.

Each boot runs `guest_agent.py` inside; what the guest claims is judged here. CPU time means nothing in an emulated
machine, so how well quotas are followed is measured in tests/kernel.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
BOOT_SECONDS = 420
RIG = os.environ.get("KERNEL_RIG", "")


def missing() -> str:
    """Why no kernel can be booted here; empty when one can."""
    if not RIG:
        return "KERNEL_RIG names no rig: a folder with run.sh and kernels"
    if not (pathlib.Path(RIG) / "run.sh").is_file():
        return f"KERNEL_RIG is {RIG}, which holds no run.sh"
    return "" if shutil.which("qemu-system-x86_64") else "qemu-system-x86_64 is not on PATH (Debian: qemu-system-x86)"


pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(BOOT_SECONDS + 30),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


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
    "intel-6.1-v2": Boot("intel", "6.1"),
    "intel-6.12-v2-systemd-names": Boot("intel", "6.12", driver="systemd"),
    "amd-6.1-v2-systemd-names": Boot("amd", "6.1", driver="systemd"),
    "amd-6.12-v2": Boot("amd", "6.12"),
    "intel-6.1-v1-with-eight-CPUs-and-no-resctrl": Boot("intel", "6.1", cgroup="1", resctrl=False),
    "amd-6.12-hybrid-works-on-v1": Boot("amd", "6.12", cgroup="hybrid"),
}


@pytest.mark.parametrize("boot", [pytest.param(boot, id=name) for name, boot in BOOTS.items()])
def test_what_the_agent_programs_is_what_the_kernel_does(boot: Boot) -> None:
    python = pathlib.Path(sys.executable).absolute()
    words = [str(python), "tests/vm/guest_agent.py", boot.driver, *(["resctrl"] if boot.resctrl else [])]
    ended = subprocess.run(
        [str(pathlib.Path(RIG) / "run.sh"), boot.flavour, str(REPOSITORY), " ".join(words)],
        env={**os.environ, **boot.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    claims = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    print("\n".join(f"{one['claim']}: {one['ok']}" for one in claims))
    broken = [f"{one['claim']}: {one['detail']}" for one in claims if not one["ok"]]
    assert not broken, "\n".join([*broken, ended.stderr])
    assert claims[-1]["claim"] == "all was looked at"
