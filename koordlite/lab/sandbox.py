"""The emulated node in one piece: its files, its clock, its pods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from koordlite.lab import kernel_trees
from koordlite.lab.cgroups import files as cgroup_files
from koordlite.lab.cgroups.trees import Group
from koordlite.lab.load import workloads
from koordlite.lab.load.cache_traffic import Traffic
from koordlite.lab.load.memory import MemoryLoad
from koordlite.lab.load.workloads import Workload, Workloads
from koordlite.lab.machine import kernel_settings, shapes
from koordlite.lab.machine.clock import LONGEST_STEP, SandboxClock
from koordlite.lab.machine.core_scheduling import EmulatedCoreScheduling
from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import File, Tree
from koordlite.lab.pods import kubelet
from koordlite.lab.pods.kubelet import EmulatedKubelet
from koordlite.lab.resctrl.filesystem import EmulatedResctrl
from koordlite.model.errors import Problem
from koordlite.model.picture.kubelet import Kubelet as KubeletState
from koordlite.model.wire import objects
from koordlite.unchanged import Unchanged

START = 1_767_225_600.0
"""2026-01-01 00:00:00 UTC: a fixed date, so that two runs write the same bytes."""

FIRST_PID = 1000


class Sandbox:
    """A machine of one of the known shapes with its kernel files, its kubelet and its workloads.

    `shape` is the name of one, or a machine of one's own; ValueError for an unknown name. `pace`, `stop` and
    `longest_step` are the clock's.
    """

    process_table: ClassVar[type[Processes]] = Processes
    core_scheduling: ClassVar[type[EmulatedCoreScheduling]] = EmulatedCoreScheduling
    resctrl_driver: ClassVar[type[EmulatedResctrl]] = EmulatedResctrl
    """Parts of the kernel, for which a subclass may have fuller ones."""

    def __init__(
        self,
        shape: str | Machine,
        *,
        start: float = START,
        seed: int = 0,
        pace: float = 0.0,
        stop: threading.Event | None = None,
        longest_step: float = LONGEST_STEP,
    ) -> None:
        self.machine = shapes.machine(shape) if isinstance(shape, str) else shape
        self.files = Tree()
        self.clock = SandboxClock(self._step, start=start, pace=pace, stop=stop, longest_step=longest_step)
        self.processes = self.process_table(FIRST_PID + seed % 1000)
        self.cores = self.core_scheduling(self.processes, hyperthreads=self.machine.hyperthreads)
        self.cgroups = cgroup_files.build(self.machine, self.processes)
        self.workloads = Workloads(self.cgroups, self.machine.cpuset)
        rdt = self.machine.rdt
        self.resctrl = self.resctrl_driver(self.machine, rdt, self.processes) if rdt else None
        self._traffic: Traffic | None = None
        if self.resctrl and self.resctrl.rmids:
            counters = self.resctrl.rmids.counters
            self._traffic = Traffic(self.machine, self.cgroups, self.workloads, self.resctrl, counters)
        self.kubelet = EmulatedKubelet(self.machine, self.cgroups, self.processes, self.workloads, seed=seed)
        self.connections = self.kubelet.connections
        self.cgroups.cpu.on_kill = self._kill_group
        settings = kernel_settings.plant(self.files, self.machine)
        kernel_settings.plant_irqs(self.files, self.machine)
        self.memory = MemoryLoad(self.machine, self.cgroups, settings, self._killed)
        self.each_second: Callable[[], None] | None = None
        """Called once a simulated second. `sandbox.chaos` disturbs the node from here."""
        self._unchanged = Unchanged()
        kernel_trees.plant(self, seed)
        self.files.place("/var/lib/kubelet/cpu_manager_state", File(self.kubelet.managers.checkpoint))

    def sync(self, pods: Sequence[objects.PodObject], node: objects.NodeObject | None = None) -> tuple[Problem, ...]:
        """Run these pods and no others; what the sandbox's annotations got wrong comes back, with what holds instead.

        Cheap when nothing changed: the same objects as last time are not read again.
        """
        now = self.clock.monotonic()
        return self._unchanged.of("sync", (node, *pods), lambda: self.kubelet.sync(pods, node, now))

    def reported(self, pods: Sequence[objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods with the status their kubelet reports; unchanged pods keep their identity."""
        return tuple(map(self.kubelet.reported, pods))

    def kubelet_state(self, configured: KubeletState) -> KubeletState:
        """Kubelet's configuration: as configured, and with the CPUs it gave away exclusively."""
        return self.kubelet.managers.state(configured)

    def reported_node(self, node: objects.NodeObject) -> tuple[objects.NodeObject, tuple[Problem, ...]]:
        """The node with this machine's CPUs and memory, and what its manifest got wrong about them.

        An unchanged node keeps its identity.
        """
        return self._unchanged.of("node", (node,), lambda: kubelet.with_machine_amounts(self.machine, node))

    def advance(self, seconds: float) -> None:
        """Let time pass without keeping pace, whatever the stop event says."""
        self.clock.advance(seconds)

    def vanish(self, group: str) -> None:
        """End every process in `group` and remove it, as when a pod dies between two reads."""
        self.kubelet.end_below(group)

    def _step(self, seconds: float) -> None:
        step_us, before = round(seconds * 1e6), self.clock.seconds
        if self.each_second and int(before + seconds) > int(before):
            self.each_second()
        self.kubelet.restart(self.clock.monotonic())
        self.workloads.step(seconds=self.clock.seconds, step_us=step_us)
        if self._traffic:
            self._traffic.step(step_us)
        workloads.read_disks(self.cgroups, list(self.workloads), seconds=self.clock.seconds, step_us=step_us)
        self.memory.step(list(self.workloads), seconds=self.clock.seconds, step_us=step_us)

    def _kill_group(self, group: Group) -> None:
        """A write to cgroup.kill."""
        tids = {tid for each in group.walk() for tid in each.tids}
        self._killed([each for each in self.workloads if each.process.pid in tids])

    def _killed(self, dying: Sequence[Workload]) -> None:
        self.kubelet.killed(dying, self.clock.monotonic())
