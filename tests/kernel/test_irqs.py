"""Interrupts of this machine: one is moved off a CPU, and comes back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from realnode.pods import Pod
from realnode.waiting import until

from koordlite.host import irqs
from koordlite.host.files import RealFiles
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.irqs import IRQ
from tests.kernel.conftest import Rig


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


PINNED = Pod("pinned", "Guaranteed", "LSR")


def affinities() -> dict[str, str]:
    """CPUs of every interrupt, and the default, as they stand."""
    files = RealFiles()
    found = ((number, irqs.read(files, number)) for number in irqs.numbers(files))
    return {number: str(irq.cpus) for number, irq in found if irq is not None}


@pytest.fixture
def exclusive(rig: Rig) -> int:
    """The last CPU, which kubelet has given to one pod alone."""
    *others, last = sorted(os.sched_getaffinity(0))
    rig.manifests.node()
    rig.manifests.cpu_manager(",".join(map(str, others)), **{PINNED.uid: {"main": str(last)}})
    rig.manifests.pod(PINNED)
    rig.tree.add(PINNED)
    return last


@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_the_agent_keeps_interrupts_off_and_restore_gives_every_one_back(rig: Rig, ends: str, exclusive: int) -> None:
    before = affinities()
    agent = rig.enforce("--strategy", "irqAffinity=enforce")

    def moved() -> bool:
        now = {number: CPUSet.parse(text) for number, text in affinities().items() if before[number] != text}
        return any(exclusive not in cpus for cpus in now.values())

    try:
        until(moved, "an interrupt left the exclusive CPU")
        if ends == "stopped":
            assert agent.stop() == 0
        else:
            agent.kill()
    finally:
        done = rig.start("restore", *rig.options)
        assert done.wait() == 0, done.said()
    assert affinities() == before
