"""Interrupts stay off the CPUs that pods have alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.changes.system import INTERRUPT
from koordlite.formulas.cpu import irq as formula
from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Original
from koordlite.model.picture.irqs import DEFAULT, IRQ
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.snapshot import Snapshot
from koordlite.report.sentence import sentence
from koordlite.strategies import irq_affinity
from koordlite.strategies.irq_affinity import NAME, IRQMemory

ALL = CPUSet.parse("0-7")
NIC = IRQ(ALL, CPUSet([2]), "PCI-MSI eth0", {2: 100.0, 5: 3.0})
DISK = IRQ(ALL, CPUSet([5]), "PCI-MSI nvme0q1", {5: 20.0})


def picture(build: Any, *, exclusive: str = "2-3", irqs: dict[str, IRQ] | None = None, **part: Any) -> Snapshot:
    """Eight CPUs, of which kubelet has given `exclusive` to one pod."""
    held = (PodCPUs("db", CPUSet.parse(exclusive)),) if exclusive else ()
    pods = (build.pod("db", "LS", annotations=part.pop("annotations", {})),)
    shown = {DEFAULT: IRQ(ALL, ALL, DEFAULT), "40": NIC, "41": DISK} if irqs is None else irqs
    seen: Snapshot = build.snapshot(pods=pods, kubelet=Kubelet(pod_cpus=held), irqs=shown, **part)
    return seen


def decide(seen: Snapshot, **config: Any) -> dict[str, Decision]:
    return {d.subject: d for d in irq_affinity.decide(seen, irq_affinity.Config(**config))}


def ours(number: str, cpus: CPUSet = ALL) -> dict[str, Any]:
    place = INTERRUPT.place(number)
    return {"found": {place: Original(cpus, NAME)}, "ours": frozenset({place})}


def test_an_interrupt_on_an_exclusive_cpu_moves_and_the_others_are_left_alone(build: Any) -> None:
    decisions = decide(picture(build))
    assert decisions.keys() == {"node", "irq/default", "irq/40"}, "the kernel has placed 41 elsewhere anyhow"
    assert build.changes([decisions["irq/40"]]) == {"irq/40": "0-1,4-7"}
    assert sentence(decisions["irq/40"]) == (
        "PCI-MSI eth0 may interrupt 0-1,4-7, of the 0-7 that were found; 100 a second came before"
    )
    assert (decisions["node"].evidence["per_second"], decisions["node"].evidence["cpuset"]) == (100.0, "2-3")
    assert build.changes([decisions["irq/default"]]) == {"irq/default": "0-1,4-7"}


def test_what_was_moved_goes_by_what_was_found_and_comes_back(build: Any) -> None:
    moved = {"40": IRQ(CPUSet.parse("0-1,4-7"), CPUSet([0]), NIC.device)}
    still = decide(picture(build, irqs=moved, **ours("40")))["irq/40"]
    assert (still.verdict, still.changes) == ("hold", ())
    more = decide(picture(build, irqs=moved, exclusive="0-3", **ours("40")))["irq/40"]
    assert build.changes([more]) == {"irq/40": "4-7"}
    fewer = decide(picture(build, irqs=moved, exclusive="3", **ours("40")))["irq/40"]
    assert build.changes([fewer]) == {"irq/40": "0-2,4-7"}
    back = decide(picture(build, irqs=moved, exclusive="", **ours("40")))["irq/40"]
    assert (back.verdict, build.changes([back]), back.changes[0].gives_back) == ("release", {"irq/40": "0-7"}, True)


def test_what_the_kernel_refuses_to_move_is_named_and_tried_again_after_ten_minutes(build: Any) -> None:
    refused = {"refused_writes": {INTERRUPT.place("40"): "EIO: Input/output error"}}
    first = decide(picture(build, time=1000.0, **refused))
    assert (first["irq/40"].reason, first["irq/40"].changes) == ("IRQNotMovable", ())
    assert "cannot be moved: EIO" in sentence(first["irq/40"])
    memory = first["node"].remember
    assert isinstance(memory, IRQMemory)
    later = decide(picture(build, time=1599.0, remembered={NAME: memory}))
    assert later["irq/40"].reason == "IRQNotMovable"
    again = decide(picture(build, time=1601.0, remembered={NAME: memory}))
    assert again["irq/40"].reason == "IRQMoved"
    other = {"40": IRQ(ALL, CPUSet([2]), "PCI-MSI eth1")}
    assert decide(picture(build, time=1100.0, irqs=other, remembered={NAME: memory}))["irq/40"].reason == "IRQMoved"


@pytest.mark.parametrize(
    ("part", "config"),
    [
        pytest.param({"exclusive": ""}, {}, id="no pod has CPUs alone"),
        pytest.param({}, {"keep": "*nvme* *eth0*", "default_mask": False}, id="its device is to be kept"),
        pytest.param({"annotations": {keys.KEEP_IRQS: "true"}}, {}, id="the pod wants its interrupts"),
    ],
)
def test_nothing_moves(build: Any, part: dict[str, Any], config: dict[str, Any]) -> None:
    assert decide(picture(build, **part), **config).keys() == {"node"}


@pytest.mark.parametrize(
    ("qos", "phase", "moves"),
    [
        pytest.param("LSE", "Running", True, id="LSE"),
        pytest.param("LSR", "Running", True, id="LSR"),
        pytest.param("LS", "Running", False, id="LS shares its CPUs"),
        pytest.param("LSE", "Succeeded", False, id="it has ended"),
    ],
)
def test_whose_cpus_are_exclusive(build: Any, qos: str, phase: str, moves: bool) -> None:
    pod = build.pod("db", qos, cpus="2-3", phase=phase)
    decisions = decide(build.snapshot(pods=(pod,), irqs={"40": NIC}))
    assert decisions["node"].reason == ("IRQsKeptOff" if moves else "NoExclusiveCPUs")
    assert ("irq/40" in decisions) is moves


def test_a_machine_that_shows_no_interrupts_is_told(build: Any) -> None:
    assert decide(picture(build, irqs={}))["node"].reason == "NoIRQFiles"


SETS = st.frozensets(st.integers(0, 7)).map(CPUSet)


@given(found=SETS.filter(bool), exclusive=SETS, near=SETS)
def test_an_interrupt_always_has_a_cpu_and_an_exclusive_one_only_when_there_is_no_other(
    found: CPUSet, exclusive: CPUSet, near: CPUSet
) -> None:
    target = formula.target(found, exclusive=exclusive, near=near, online=ALL)
    assert target
    assert target & exclusive == EMPTY or exclusive == ALL
    if found - exclusive:
        assert target == found - exclusive
    elif near - exclusive:
        assert target == near - exclusive
