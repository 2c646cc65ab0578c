"""Interrupts of the emulated machine: a few that move, and queues of a disk that the kernel manages itself."""

from __future__ import annotations

import errno

from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.tree import File, Tree, constant, refusal
from koordlite.model.cpuset import CPUSet

MOVABLE = {"24": ("IO-APIC", "ACPI:Ged"), "30": ("PCI-MSIX-0000:00:03.0", "eth0-rx"), "31": ("PCI-MSIX", "eth0-tx")}
MANAGED = {"40": ("PCI-MSIX-0000:00:04.0", "nvme0q1")}
"""By number, chip and action."""


def plant(tree: Tree, machine: Machine) -> None:
    """Put them into the tree; each has all CPUs, and the kernel takes the last of those it may."""
    online = CPUSet(cpu.id for cpu in machine.cpus)
    affinity = dict.fromkeys(("default", *MOVABLE, *MANAGED), online)

    def default(data: bytes) -> None:
        bits = int(data.decode().strip().replace(",", ""), 16)
        affinity["default"] = CPUSet(cpu for cpu in online if bits >> cpu & 1)

    def mask() -> str:
        return f"{sum(1 << cpu for cpu in affinity['default']):x}\n"

    tree.place("/proc/irq/default_smp_affinity", File(mask, default))
    for number, (chip, action) in {**MOVABLE, **MANAGED}.items():
        folder, about = f"/proc/irq/{number}", f"/sys/kernel/irq/{number}"

        def move(data: bytes, number: str = number) -> None:
            cpus = CPUSet.parse(data.decode().strip()) & online
            if number in MANAGED:
                raise refusal(errno.EIO)
            if not cpus:
                raise refusal(errno.EINVAL)
            affinity[number] = cpus

        tree.place(f"{folder}/smp_affinity_list", File(lambda n=number: f"{affinity[n]}\n", move))  # type: ignore[misc]
        tree.place(f"{folder}/effective_affinity_list", File(lambda n=number: f"{max(affinity[n])}\n"))  # type: ignore[misc]
        tree.place(f"{about}/chip_name", constant(f"{chip}\n"))
        tree.place(f"{about}/actions", constant(f"{action}\n"))
    head = "".join(f"{f'CPU{cpu}':>11}" for cpu in online)
    rows = [
        f"{number:>4}:{'          0' * len(online)}  {chip}  {action}" for number, (chip, action) in MOVABLE.items()
    ]
    tree.place("/proc/interrupts", constant("\n".join((f"     {head}", *rows)) + "\n"))
