"""CPUs of interrupts: noted before the write, put back afterwards, and never those of another interrupt."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from emulated import Emulated

from koordlite import config, plan
from koordlite.agent import Agent
from koordlite.apply import Applier, restore
from koordlite.changes.system import IRQChange
from koordlite.host import irqs
from koordlite.lab.machine.tree import constant, refusal
from koordlite.model.change import Standing
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import RunState
from koordlite.model.status import ForeignWrite
from koordlite.observe import Observer
from koordlite.observe.wants import Wants
from koordlite.plan import Plan

Make = Callable[..., Emulated]
NIC = "PCI-MSIX-0000:00:03.0 eth0-rx"
DISK = "PCI-MSIX-0000:00:04.0 nvme0q1"


def observe(node: Emulated, applier: Applier) -> Any:
    observer = Observer(
        node.host(), node.cluster, tasks_seconds=1.0, needs_of=lambda *_: Wants(reads=frozenset({"irqs"}))
    )
    return observer.observe(lambda *_: RunState(ours=applier.ours, found=applier.originals))


def take(node: Emulated, journal: Any, *changes: IRQChange) -> tuple[Any, Applier]:
    applier = Applier(node.host(), node.cluster, journal)
    seen = observe(node, applier)
    owners = {change.place: "irqAffinity" for change in changes}
    return applier.apply(Plan(plan.order(changes, seen.cgroups), owners=owners), seen), applier


def cpus(node: Emulated, number: str) -> str:
    found = irqs.read(node.host().files, number)
    assert found
    return str(found.cpus)


def test_cpus_are_written_known_as_found_and_put_back(emulate: Make) -> None:
    node = emulate("intel-2s-ht")
    whole = cpus(node, "30")
    with node.journal() as journal:
        steps, applier = take(
            node, journal, IRQChange("30", NIC, CPUSet.parse("0-3")), IRQChange("default", "default", CPUSet([1]))
        )
        assert [step.ok for step in steps] == [True, True]
        assert (cpus(node, "30"), cpus(node, "default")) == ("0-3", "1")
        assert {str(p): str(f.value) for p, f in applier.originals.items()} == {"irq/30": whole, "irq/default": whole}
        assert all(step.ok for step in restore(node.host(), journal))
        assert (cpus(node, "30"), cpus(node, "default")) == (whole, whole)
        assert journal.entries == ()


def test_what_the_kernel_manages_itself_is_refused_in_its_words_and_undone_without_a_write(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        (step,), _ = take(node, journal, IRQChange("40", DISK, CPUSet([0])))
        assert not step.ok
        assert step.error.startswith("EIO: Input/output error")
        assert all(step.ok for step in restore(node.host(), journal))
        assert journal.entries == ()


@pytest.mark.parametrize("killed", [False, True])
def test_an_interrupt_with_the_number_of_another_is_left_alone(emulate: Make, killed: bool) -> None:
    node = emulate("small")
    with node.journal() as journal:
        if killed:
            take(node, journal, IRQChange("30", NIC, CPUSet([0])))
        node.sandbox.files.place("/sys/kernel/irq/30/actions", constant("eth1-rx\n"))
        (step,), _ = take(node, journal, IRQChange("30", NIC, CPUSet([1])))
        assert (step.ok, step.value) == (True, "gone meanwhile")
        before = cpus(node, "30")
        assert all(step.ok for step in restore(node.host(), journal))
        assert cpus(node, "30") == before
        assert journal.entries == ()


def test_what_another_program_writes_is_told_apart(emulate: Make) -> None:
    node = emulate("small")
    change = IRQChange("30", NIC, CPUSet([0]))
    with node.journal() as journal:
        _, applier = take(node, journal, change)
        assert change.compare(observe(node, applier)) is Standing.OURS
        node.host().files.write("/proc/irq/30/smp_affinity_list", b"1")
        assert change.compare(observe(node, applier)) == ForeignWrite(change.place, "0", "1")
        node.sandbox.files.place("/sys/kernel/irq/30/actions", constant("eth1-rx\n"))
        assert change.compare(observe(node, applier)) is Standing.GONE


def test_the_agent_keeps_interrupts_off_and_gives_them_back(emulate: Make) -> None:
    node = emulate("small")
    whole = cpus(node, "30")
    node.pod("db", "LSE", "1", request="1", status='{"cpuset":"3"}')
    with node.journal() as journal:
        settings = config.with_modes(node.settings(), "enforce", frozenset({"irqAffinity"}))
        agent = Agent(node.host(), node.cluster, settings, journal)
        ticks = node.ticks(agent, 4)
    reasons = {d.subject: d.reason for d in ticks[-1].decisions if d.strategy == "irqAffinity"}
    assert reasons["irq/30"] == "IRQMoved"
    assert reasons["irq/40"] == "IRQNotMovable"
    assert cpus(node, "30") == "0-2"
    with node.journal() as journal:
        assert all(step.ok for step in restore(node.host(), journal))
    assert cpus(node, "30") == whole


@pytest.mark.parametrize(
    ("text", "cpus"), [("3", "0-1"), ("ff,ffffffff", "0-39"), ("80000000,00000000", "63"), ("0", "")]
)
def test_masks_of_many_cpus(text: str, cpus: str) -> None:
    assert str(irqs._of_mask(text)) == cpus
    assert irqs._of_mask(irqs._mask(CPUSet.parse(cpus))) == CPUSet.parse(cpus)


def test_counts_are_read_by_interrupt_and_cpu(emulate: Make) -> None:
    node = emulate("small")
    lines = ["           CPU0       CPU2", " 30:   7   9  PCI-MSIX  eth0-rx", "LOC:   1   2  timer", " 31:   1"]
    node.sandbox.files.place("/proc/interrupts", constant("\n".join(lines) + "\n"))
    assert irqs.counts(node.host().files) == {"30": {0: 7, 2: 9}}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/proc/irq/30/smp_affinity_list", "all of them\n"),
        ("/proc/irq/30/effective_affinity_list", "0-\n"),
        ("/proc/irq/default_smp_affinity", "xyz\n"),
    ],
)
def test_what_makes_no_sense_costs_one_interrupt(emulate: Make, path: str, text: str) -> None:
    node = emulate("small")
    node.sandbox.files.place(path, constant(text))
    with node.journal() as journal:
        seen = observe(node, Applier(node.host(), node.cluster, journal)).irqs
    lost = "default" if "default" in path else "30"
    assert seen.keys() == {"default", "24", "30", "31", "40"} - {lost}


def test_a_machine_without_counts_has_no_rates(emulate: Make) -> None:
    class Files:
        def read(self, path: str) -> bytes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    assert irqs.counts(Files()) == {}  # type: ignore[arg-type]


def test_an_interrupt_that_cannot_be_read_is_left_out(emulate: Make) -> None:
    node = emulate("small")

    class Files:
        def read(self, path: str) -> bytes:
            raise refusal(errno.EIO)

    assert irqs.read(Files(), "30") is None  # type: ignore[arg-type]
    assert irqs.read(node.host().files, "99") is None
