"""A runtime that asks the agent of an emulated node how to create containers, and makes them as it is answered."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from emulated import Emulated

from koordlite.creation import Creation
from koordlite.host import system_files
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.lab.pods import pod_spec
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Cgroup, Process
from koordlite.model.pod import pod_reader
from koordlite.nri import (
    Answer,
    Container,
    LinuxContainer,
    LinuxContainerAdjustment,
    LinuxCPU,
    LinuxMemory,
    LinuxPodSandbox,
    LinuxResources,
    PodSandbox,
)

FIELDS = ("cpu.shares", "cpu.quota", "memory.limit", "cpuset.cpus")


class Asking:
    """A node with an agent that has looked twice, and a pod that begins."""

    def __init__(
        self, shape: str, folder: Path, *, nri: str = "auto", mode: Any = "enforce", static: bool = False, **slo: Any
    ) -> None:
        self.node = Emulated(shape, folder)
        if static:
            self.node.node(cpu_manager="static")
        if slo:
            self.node.slo(**slo)
        self.node.pod("web", "LS", "500m")
        self.journal = self.node.journal()
        self.agent = self.node.agent(self.journal, mode, nri=nri)
        self.node.ticks(self.agent, 2)
        self.pod = ""
        self.containers: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.annotations: dict[str, str] = {}

    @property
    def creation(self) -> Creation:
        assert self.agent.creation is not None
        return self.agent.creation

    @property
    def cgroups(self) -> Cgroups:
        return self.node.host().cgroups

    @property
    def container(self) -> str:
        """The group of the container `main`."""
        return self.containers["main"]

    def begin(self, qos: str, **options: Any) -> None:
        """kubelet makes the groups of the pod `late`; what stands in its containers is what the runtime would write."""
        self.node.pod("late", qos, "0.2", **options)
        self.node.sandbox.advance(1.0)
        view = self.node.cluster.view()
        (late,) = (pod for pod in view.pods if pod.metadata.name == "late")
        self.labels = dict(late.metadata.labels or {})
        self.annotations = dict(late.metadata.annotations or {})
        layout = self.cgroups.layout
        parents = (layout.besteffort, layout.burstable, layout.kubepods)
        self.pod = next(
            f"{parent}/{name}"
            for parent in parents
            for name in self.cgroups.children(parent)
            if name.replace("_", "-").removesuffix(".slice").endswith("poduid-late")
        )
        self.containers = {
            status.name: self.cgroups.container_group(self.pod, status.container_id or "") or ""
            for status in late.status.container_statuses or ()
        }
        assert all(self.cgroups.exists(group) for group in self.containers.values())

    def hide(self, name: str = "main") -> None:
        """The agent's picture is that of a moment before the container."""
        shown, hidden = self.agent.snapshot, self.containers[name]
        assert shown is not None
        places = {
            uid: place
            if place.group != self.pod
            else type(place)(
                place.group,
                {each: group for each, group in place.containers.items() if group != hidden},
                tuple(group for group in place.sandboxes if group != hidden),
            )
            for uid, place in shown.places.items()
        }
        cgroups = {group: state for group, state in shown.cgroups.items() if group != hidden}
        shown = dataclasses.replace(shown, places=places, cgroups=cgroups)
        self.creation.publish(shown, self.agent.modes, self.agent._settings.strategies)

    def state(self, name: str = "main") -> Cgroup:
        return self.cgroups.state(self.containers[name], ("cpu.shares", "memory.limit"))

    def processes(self, name: str = "main") -> tuple[Process, ...]:
        return tuple(system_files.oom_scores(self.node.sandbox.files, self.cgroups, self.containers[name]))

    def rdt(self, name: str = "main") -> str | None:
        """The resctrl group of the container's threads; None where they are in several, or resctrl is not there."""
        groups = {self.node.host().resctrl.group_of(tid) for tid in self.cgroups.threads(self.containers[name])}
        return groups.pop() if len(groups) == 1 else None

    @property
    def values(self) -> dict[str, object]:
        """What stands in the container `main`."""
        return self.values_of("main")

    def values_of(self, name: str) -> dict[str, object]:
        """What stands in a container: its group's files, its processes, its class of RDT."""
        state = self.state(name)
        files = {"cpu.quota": state.quota_us, "cpuset.cpus": state.effective, **state.values}
        scores = sorted({each.oom_score_adj for each in self.processes(name)})
        return {**{field: files.get(field) for field in FIELDS}, "oom": scores, "rdt": self.rdt(name)}

    def messages(self, name: str = "main") -> tuple[PodSandbox, Container]:
        """The pod and its container as the runtime shows them."""
        group = self.containers[name]
        layout, folder = self.cgroups.layout, group.rpartition("/")[2]
        identity = self.cgroups.container_id(group)
        path = f"/{group}"
        if layout.driver == "systemd":
            prefix = folder.removesuffix(".scope").removesuffix(f"-{identity}")
            path = f"{self.pod.rpartition('/')[2]}:{prefix}:{identity}"
        pod = PodSandbox(
            id="p",
            name="late",
            uid="uid-late",
            namespace="ns",
            labels=self.labels,
            annotations=self.annotations,
            linux=LinuxPodSandbox(cgroup_parent=f"/{self.pod}"),
        )
        (score,) = {each.oom_score_adj for each in self.processes(name)} or {None}
        linux = LinuxContainer(resources=self.resources(name), cgroups_path=path, oom_score_adj=score)
        return pod, Container(id=identity, pod_sandbox_id="p", name=name, linux=linux)

    def resources(self, name: str = "main") -> LinuxResources:
        """The resources of a container as kubelet asks for them: by its spec, and CPUs where its manager gives some."""
        view = self.node.cluster.view()
        (late,) = (pod for pod in view.pods if pod.metadata.name == "late")
        (values,) = (pod_spec.values(each) for each in pod_reader.from_wire(late).containers if each.name == name)
        own = [each.containers[name] for each in view.kubelet.pod_cpus if name in each.containers]
        return LinuxResources(
            cpu=LinuxCPU(shares=values.shares, quota=values.quota_us, period=100_000, cpus=str(own[0]) if own else ""),
            memory=LinuxMemory(limit=values.limit_bytes if values.limit_bytes != -1 else None),
        )

    def ask(self, name: str = "main") -> Answer:
        """The answer, and the container as the runtime makes it then."""
        answer = self.creation.create(*self.messages(name))
        linux = (answer.adjust and answer.adjust.linux) or LinuxContainerAdjustment()
        self.make(linux.resources, name)
        files = self.node.sandbox.files
        if linux.oom_score_adj is not None:
            for each in self.processes(name):
                files.write(f"/proc/{each.pid}/oom_score_adj", b"%d" % linux.oom_score_adj)
        if linux.rdt and linux.rdt.clos_id:
            for tid in self.cgroups.threads(self.containers[name]):
                files.write(f"/sys/fs/resctrl/{linux.rdt.clos_id}/tasks", b"%d" % tid)
        return answer

    def make(self, resources: LinuxResources | None, name: str = "main") -> None:
        """Write what was answered, as the runtime does."""
        group = self.containers[name]
        cpu, memory = (resources and resources.cpu) or LinuxCPU(), (resources and resources.memory) or LinuxMemory()
        for field, value in (("cpu.shares", cpu.shares), ("cpu.quota", cpu.quota), ("memory.limit", memory.limit)):
            if value is not None:
                self.cgroups.write(group, field, value)  # type: ignore[arg-type]
        if cpu.cpus:
            self.cgroups.write(group, "cpuset.cpus", CPUSet.parse(cpu.cpus))

    def close(self) -> None:
        self.journal.close()
