"""Interrupts of devices: which CPUs take them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet

DEFAULT = "default"
"""Stand-in for a number: the CPUs of interrupts that will be set up later."""


class IRQ(msgspec.Struct, frozen=True):
    """One interrupt by its number, or the default of new ones."""

    cpus: CPUSet
    """CPUs that may take it (`smp_affinity_list`)."""
    effective: CPUSet
    """CPUs that the kernel has chosen among them."""
    device: str
    """Chip and actions: what tells it from a later interrupt with the same number."""
    rates: Mapping[int, float] = msgspec.field(default_factory=dict)
    """Interrupts a second since the last look, by CPU; CPUs without any are left out."""

    def rate(self, cpus: CPUSet = EMPTY) -> float:
        """Interrupts a second on these CPUs."""
        return sum(rate for cpu, rate in self.rates.items() if cpu in cpus)
