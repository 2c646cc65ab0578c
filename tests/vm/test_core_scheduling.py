"""The emulated core scheduling answers as that of real kernels with hyperthreads, booted in QEMU."""

from __future__ import annotations

import kernelrig
import pytest
import slices
from core_operations import Player, sequence
from kernel_processes import KernelCoreScheduling, KernelProcesses

BOOT_SECONDS = 420

pytestmark = kernelrig.marks(BOOT_SECONDS)


class EmulatedProcesses:
    """`core_operations.Processes` of an emulated machine."""

    def __init__(self, table: KernelProcesses) -> None:
        self._table = table
        self._pids: list[int] = []

    def __len__(self) -> int:
        return len(self._pids)

    def spawn(self) -> None:
        self._pids.append(self._table.spawn("actor", threads=1, now=0.0).pid)

    def thread(self, who: int) -> None:
        if self._table.find(self._pids[who]):
            self._table.clone(self._pids[who])

    def fork(self, who: int) -> None:
        pid = self._pids[who]
        self._pids.append(self._table.fork(pid, now=0.0).pid if self._table.find(pid) else pid)

    def end(self, who: int) -> None:
        process = self._table.find(self._pids[who])
        if process:
            self._table.end(process)

    def threads(self, who: int) -> list[int]:
        process = self._table.find(self._pids[who])
        return list(process.tids) if process else [self._pids[who]]


@pytest.mark.parametrize(("kernel", "seed"), [("6.12", 2), slices.long("6.1", 1)])
def test_kernel_and_emulation_answer_alike(kernel: str, seed: int) -> None:
    argument = {"seed": seed, "count": 300}
    environment = {"KVER": kernel, "RDT": "none", "TIMEOUT": str(BOOT_SECONDS), "PYTHONPATH": "."}
    told, _ = kernelrig.told("intel", "tests/vm/guest_core_operations.py", argument, environment)
    table = KernelProcesses(1000)
    player = Player(KernelCoreScheduling(table, hyperthreads=True), EmulatedProcesses(table))
    operations = list(sequence(**argument))
    assert len(told) == len(operations)
    for at, (operation, answer) in enumerate(zip(operations, told, strict=True)):
        expected = player.play(operation)
        differing = [each for each in zip(expected["cookies"], answer["cookies"], strict=True) if each[0] != each[1]]
        assert expected == answer, (at, operation, differing)
