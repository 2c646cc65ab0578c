"""The emulated resctrl answers as the kernel's: the same operations, half of them nonsense, give the same in both.

Each boot plays one sequence of `resctrl_operations` on a real kernel by `guest_operations.py`. Compared are errno,
`last_cmd_status`, and all files and folders after each operation.
"""

from __future__ import annotations

import dataclasses

import kernelrig
import pytest
import resctrl_operations
import slices

from tests.conformance.resctrl_twin import Twin

BOOT_SECONDS = 240

pytestmark = kernelrig.marks(BOOT_SECONDS)


@dataclasses.dataclass(frozen=True)
class Boot:
    """A machine, its hardware as the rig wants to know it, and the sequence that is played there."""

    flavour: str
    kernel: str
    hardware: str
    seed: int

    @property
    def sequence(self) -> dict[str, object]:
        """The arguments of `resctrl_operations.sequence`."""
        return {"seed": self.seed, "count": 300, "amd": self.flavour == "amd"}


BOOTS = {
    "intel-6.1-with-bits-shared-with-hardware": Boot("intel", "6.1", "rmids:200,l3share:0x600", 1),
    "intel-6.12-L2-masks-with-holes-few-classes": Boot("intel", "6.12", "rmids:200,l2:8,l3clos:5,noncont:1", 2),
    "amd-6.12-a-larger-maximum": Boot("amd", "6.12", "rmids:200,mbaexp:12", 4),
}


@pytest.mark.parametrize("boot", slices.named(BOOTS))
def test_kernel_and_emulation_answer_alike(boot: Boot) -> None:
    environment = {"KVER": boot.kernel, "RDT": boot.hardware, "TIMEOUT": str(BOOT_SECONDS)}
    lines, _ = kernelrig.told(boot.flavour, "tests/vm/guest_operations.py", boot.sequence, environment)
    operations = list(resctrl_operations.sequence(**boot.sequence))  # type: ignore[arg-type]
    twin = Twin({**lines[0], "flavour": boot.flavour})
    assert len(lines) == len(operations) + 1
    for operation, answer in zip(operations, lines[1:], strict=True):
        assert twin.play(operation) == answer, operation
