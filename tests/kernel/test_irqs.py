"""Interrupts of this machine: one is moved off a CPU, and comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlite.host import irqs
from koordlite.host.files import RealFiles
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.irqs import IRQ


@pytest.fixture
def movable() -> Iterator[tuple[str, IRQ]]:
    """An interrupt that may come to each of two CPUs, and takes its own set as it is."""
    files = RealFiles()
    for number in irqs.numbers(files):
        irq = irqs.read(files, number)
        if irq is None or not number.isdecimal() or len(irq.cpus) < 2:
            continue
        with contextlib.suppress(OSError):
            irqs.write(files, number, irq.cpus)
            try:
                yield number, irq
            finally:
                irqs.write(files, number, irq.cpus)
            return
    pytest.skip("no interrupt of this machine can be moved")


def test_an_interrupt_leaves_a_cpu_and_comes_back(movable: tuple[str, IRQ]) -> None:
    number, before = movable
    files = RealFiles()
    keep = CPUSet([min(before.cpus)])
    irqs.write(files, number, keep)
    moved = irqs.read(files, number)
    assert moved
    assert (moved.cpus, moved.device) == (keep, before.device)
    # The kernel moves it when it comes the next time; what it has chosen is never outside of what it may.
    irqs.write(files, number, before.cpus)
    assert irqs.read(files, number) == IRQ(before.cpus, irqs.read(files, number).effective, before.device)  # type: ignore[union-attr]


def test_the_default_of_new_interrupts_reads_as_it_was_written() -> None:
    files = RealFiles()
    found = irqs.read(files, "default")
    assert found
    text = Path("/proc/irq/default_smp_affinity").read_text()
    irqs.write(files, "default", found.cpus)
    assert Path("/proc/irq/default_smp_affinity").read_text() == text


def test_counts_of_this_machine_have_each_of_its_cpus() -> None:
    counts = irqs.counts(RealFiles())
    assert counts
    assert all(len(by_cpu) >= 1 for by_cpu in counts.values())
