"""What a script of this folder claims of the product on real kernels booted in QEMU, with cgroup v2 and v1.

Times mean nothing on an emulated machine: how fast the agent reacts is measured by `tests/perf/agent/reaction.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import kernelrig
import pytest

KERNELS = (("6.12", "2"), ("6.1", "1"))
HALVES = {"SMP": "4,sockets=2,cores=1,threads=2", "NUMA": "0-1 2-3"}


@dataclasses.dataclass(frozen=True)
class Guest:
    """A script to run inside, kernels and cgroup versions to boot, of which a quick run takes the first."""

    command: str
    seconds: int = 420
    boots: tuple[tuple[str, str], ...] = KERNELS
    machine: Mapping[str, str] = dataclasses.field(default_factory=dict)
    quick: int = 1


GUESTS = {
    "batch pods have what they asked for at once": Guest("guest_batch.py", boots=(("6.12", "2"), ("6.1", "2"))),
    "burst, memory QoS and evictions: each loop closes and everything goes back": Guest("guest_loops.py"),
    "every cgroup value is written and put back": Guest(
        # Files that only other kernels have are told as claims, and not looked at.
        "guest_qos.py",
        boots=(("6.1", "2"), ("6.12", "2"), ("6.1", "1")),
        quick=3,
    ),
    "pods share cores as their labels say": Guest("guest_core_sched.py"),
    "pressure of waiting threads leads to a round before its time": Guest(
        "-m tests.vm.guest_reaction", boots=(("6.12", "2"), ("6.1", "2"), ("6.12", "1"))
    ),
    "swap is shared by class and put back": Guest("guest_swap.py", boots=(("6.12", "2"),)),
    "the benchmark runs where the unified hierarchy has the CPU controller": Guest(
        "guest_colocation.py /tmp/koordlite-colocation", 600, (("6.12", "1"), ("6.12", "2"), ("6.1", "1")), HALVES
    ),
    "threads of pods that talk come onto one node and go back": Guest("guest_affinity.py", 600),
    "two exclusive CPUs of node 0, as in Crane's tutorial": Guest("guest_crane.py", 600),
    "what cannot be repaired has to move": Guest("guest_numa.py", 600),
    "what disturbs containers is seen": Guest(
        "guest_interference.py", 300, (("6.12", "2"), ("6.1", "2"), ("6.12", "1"))
    ),
}
BOOTS = [
    pytest.param(
        guest,
        kernel,
        cgroup,
        id=f"{claim}: {kernel}-v{cgroup}",
        marks=[*kernelrig.marks(guest.seconds), *([] if number < guest.quick else [pytest.mark.long])],
    )
    for claim, guest in GUESTS.items()
    for number, (kernel, cgroup) in enumerate(guest.boots)
]


@pytest.mark.parametrize(("guest", "kernel", "cgroup"), BOOTS)
def test_each_claim_holds(guest: Guest, kernel: str, cgroup: str) -> None:
    environment = {"KVER": kernel, "CGROUP": cgroup, "RDT": "none", "TIMEOUT": str(guest.seconds), **guest.machine}
    script = guest.command if guest.command.startswith("-m") else f"tests/vm/{guest.command}"
    kernelrig.check_claims("intel", f"{kernelrig.PYTHON} {script}", environment)
