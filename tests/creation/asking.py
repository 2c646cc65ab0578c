"""A runtime that asks the agent of an emulated node how to create containers, and makes them as it is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emulated import Emulated

from koordlite.creation import Creation
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Cgroup
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

    def __init__(self, shape: str, folder: Path, *, nri: str = "auto", mode: Any = "enforce", **slo: Any) -> None:
        self.node = Emulated(shape, folder)
        if slo:
            self.node.slo(**slo)
        self.node.pod("web", "LS", "500m")
        self.journal = self.node.journal()
        self.agent = self.node.agent(self.journal, mode, nri=nri)
        self.node.ticks(self.agent, 2)
        self.pod = self.container = ""
        self.labels: dict[str, str] = {}

    @property
    def creation(self) -> Creation:
        assert self.agent.creation is not None
        return self.agent.creation

    @property
    def cgroups(self) -> Cgroups:
        return self.node.host().cgroups

    def begin(self, qos: str, **options: Any) -> None:
        """kubelet makes the groups of the pod `late`; what stands in its container is what the runtime would write."""
        labels = {"koordinator.sh/qosClass": qos} if qos else {}
        self.node.pod("late", qos, "0.2", **options)
        self.labels = labels
        self.node.sandbox.advance(1.0)
        view = self.node.cluster.view()
        (late,) = (pod for pod in view.pods if pod.metadata.name == "late")
        layout = self.cgroups.layout
        parents = (layout.besteffort, layout.burstable, layout.kubepods)
        self.pod = next(
            f"{parent}/{name}"
            for parent in parents
            for name in self.cgroups.children(parent)
            if name.replace("_", "-").removesuffix(".slice").endswith("poduid-late")
        )
        (status,) = late.status.container_statuses or ()
        self.container = self.cgroups.container_group(self.pod, status.container_id or "") or ""
        assert self.cgroups.exists(self.container)

    def hide(self) -> None:
        """The agent's picture is that of a moment before the container."""
        import dataclasses

        seen = self.agent.snapshot
        assert seen is not None
        places = {
            uid: place
            if place.group != self.pod
            else type(place)(place.group, {}, tuple(g for g in place.all[1:] if g != self.container))
            for uid, place in seen.places.items()
        }
        cgroups = {group: state for group, state in seen.cgroups.items() if group != self.container}
        shown = dataclasses.replace(seen, places=places, cgroups=cgroups)
        self.creation.publish(shown, self.agent.modes, self.agent._settings.strategies)

    @property
    def state(self) -> Cgroup:
        return self.cgroups.state(self.container, ("cpu.shares", "memory.limit"))

    @property
    def values(self) -> dict[str, CPUSet | int | None]:
        """What stands in the container's group."""
        state = self.state
        own = {"cpu.quota": state.quota_us, "cpuset.cpus": state.effective}
        return {field: own.get(field, state.values.get(field)) for field in FIELDS}

    def messages(self) -> tuple[PodSandbox, Container]:
        """The pod and its container as the runtime shows them."""
        layout, name = self.cgroups.layout, self.container.rpartition("/")[2]
        identity = self.cgroups.container_id(self.container)
        path = f"/{self.container}"
        if layout.driver == "systemd":
            prefix = name.removesuffix(".scope").removesuffix(f"-{identity}")
            path = f"{self.pod.rpartition('/')[2]}:{prefix}:{identity}"
        state = self.state
        resources = LinuxResources(
            cpu=LinuxCPU(shares=state.values["cpu.shares"], quota=state.quota_us, period=state.period_us),
            memory=LinuxMemory(),
        )
        pod = PodSandbox(
            id="p",
            name="late",
            uid="uid-late",
            namespace="ns",
            labels=self.labels,
            linux=LinuxPodSandbox(cgroup_parent=f"/{self.pod}"),
        )
        linux = LinuxContainer(resources=resources, cgroups_path=path, oom_score_adj=1000)
        return pod, Container(id=identity, pod_sandbox_id="p", name="main", linux=linux)

    def ask(self) -> Answer:
        """The answer, and the group as the runtime makes it then."""
        answer = self.creation.create(*self.messages())
        linux = answer.adjust.linux if answer.adjust else None
        self.make((linux or LinuxContainerAdjustment()).resources)
        return answer

    def make(self, resources: LinuxResources | None) -> None:
        """Write what was answered, as the runtime does."""
        cpu, memory = (resources and resources.cpu) or LinuxCPU(), (resources and resources.memory) or LinuxMemory()
        for field, value in (("cpu.shares", cpu.shares), ("cpu.quota", cpu.quota), ("memory.limit", memory.limit)):
            if value is not None:
                self.cgroups.write(self.container, field, value)  # type: ignore[arg-type]
        if cpu.cpus:
            self.cgroups.write(self.container, "cpuset.cpus", CPUSet.parse(cpu.cpus))

    def close(self) -> None:
        self.journal.close()
