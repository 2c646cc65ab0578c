"""Whatever is done to the emulated resctrl, in whatever order, its promises hold."""

from __future__ import annotations

import re

import msgspec
import slices
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kernel_processes import KernelProcesses
from kernel_resctrl import KernelResctrl

from koordlite.lab.machine import shapes
from koordlite.lab.machine.machine import RDT, Bandwidth, Cache, Monitoring, amd
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl.filesystem import POINT
from koordlite.lab.resctrl.schemata import closids

NAMES = st.sampled_from(["a", "b"])
PICK = st.integers(0, 60)
"""Which of what there is, counted round."""
CACHES = st.builds(
    Cache,
    bits=st.integers(2, 6),
    closids=st.integers(2, 5),
    min_bits=st.integers(0, 2),
    shareable=st.integers(0, 3),
    sparse=st.booleans(),
)
MONITORS = st.none() | st.builds(Monitoring, rmids=st.integers(2, 6))
KERNELS = st.sampled_from([(5, 15), (6, 1), (6, 12)])
INTEL = st.builds(
    RDT,
    kernel=KERNELS,
    l3=CACHES,
    l2=st.none() | CACHES,
    mb=st.none() | st.just(Bandwidth(closids=4)),
    monitoring=MONITORS,
)
AMD = st.builds(amd, KERNELS, bits=st.integers(2, 6), monitoring=MONITORS)
HARDWARE = INTEL | AMD
LINE = re.compile(r" *[A-Z0-9]+:\d+= *[0-9a-f]+(;\d+= *[0-9a-f]+)*\Z")


class Anything(RuleBasedStateMachine):
    """mkdir, rmdir, writes and births in any order."""

    @initialize(rdt=HARDWARE, options=st.sampled_from(["", "cdp"]))
    def begin(self, rdt: RDT, options: str) -> None:
        self.now = 0.0
        self.processes = KernelProcesses(100)
        self.processes.spawn("p", threads=3, now=0)
        machine = msgspec.structs.replace(shapes.machine("intel-2s-ht"), resctrl=options)
        self.resctrl = KernelResctrl(machine, rdt, self.processes, lambda: self.now)
        self.tree = Tree()
        self.tree.place(POINT, self.resctrl.folder)

    def attempt(self, verb: str, path: str, *more: bytes) -> None:
        try:
            getattr(self.tree, verb)(f"{POINT}/{path}", *more)
        except OSError as error:
            assert error.errno

    def places(self) -> list[str]:
        """The groups there are, as folders."""
        monitors = [
            f"{name}/mon_groups/{each}/" for name, group in self.resctrl.groups.items() for each in group.monitors
        ]
        return [f"{name}/" for name in self.resctrl.groups] + monitors

    @rule(name=NAMES)
    def make_control(self, name: str) -> None:
        self.attempt("mkdir", name)

    @rule(pick=PICK, name=NAMES)
    def make_monitor(self, pick: int, name: str) -> None:
        controls = list(self.resctrl.groups)
        self.attempt("mkdir", f"{controls[pick % len(controls)]}/mon_groups/{name}")

    @rule(pick=PICK)
    def remove(self, pick: int) -> None:
        places = self.places()
        self.attempt("rmdir", places[pick % len(places)])

    @rule(pick=PICK, mask=st.integers(0, 63), half=st.sampled_from(["", "CODE", "DATA"]))
    def cut(self, pick: int, mask: int, half: str) -> None:
        controls = list(self.resctrl.groups)
        text = f"L3{half}:0={mask:x};1={mask:x}\n"
        self.attempt("write", f"{controls[pick % len(controls)]}/schemata", text.encode())

    @rule(pick=PICK, number=PICK)
    def move(self, pick: int, number: int) -> None:
        tids, places = self.processes.tids(), self.places()
        self.attempt("write", f"{places[pick % len(places)]}tasks", f"{tids[number % len(tids)]}\n".encode())

    @rule(number=PICK)
    def multiply(self, number: int) -> None:
        tids = self.processes.tids()
        if len(tids) < 20:
            self.processes.clone(tids[number % len(tids)])

    @rule(seconds=st.floats(0, 3))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def every_thread_is_in_exactly_one_control_group(self) -> None:
        seen = [tid for name in self.resctrl.groups for tid in self.read(f"{name}/tasks").split()]
        assert sorted(map(int, seen)) == self.processes.tids()

    @invariant()
    def no_closid_is_held_twice_and_there_are_not_more_than_the_hardware_has(self) -> None:
        held = [group.closid for group in self.resctrl.groups.values()]
        assert len(set(held)) == len(held)
        assert max(held) < closids(self.resctrl.schemas.values())

    @invariant()
    def no_rmid_is_held_twice(self) -> None:
        groups = [each for group in self.resctrl.groups.values() for each in (group, *group.monitors.values())]
        rmids = [each.rmid for each in groups]
        assert self.resctrl.rmids is None or len(set(rmids)) == len(rmids)

    @invariant()
    def every_line_can_be_read_and_written_back(self) -> None:
        for name in self.resctrl.groups:
            text = self.read(f"{name}/schemata")
            assert all(LINE.match(line) for line in text.splitlines())
            self.tree.write(f"{POINT}/{name}/schemata", text.encode())
            assert self.read(f"{name}/schemata") == text

    def read(self, path: str) -> str:
        return self.tree.read(f"{POINT}/{path}").decode()


Anything.TestCase.settings = settings(
    max_examples=slices.amount(60, 25), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnything = Anything.TestCase
