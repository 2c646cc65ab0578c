"""An emulated node whose resctrl is looked at: one best-effort pod, and machines that are not among the shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cyaml
import msgspec
from emulated import RESCTRL, Emulated

from koordlite.agent import Agent
from koordlite.host import bundle
from koordlite.host.journal.journal import Journal
from koordlite.lab.machine import shapes
from koordlite.model.pod.qos import KubeQoS

ROOT = "/sys/fs/resctrl"
WISH = "node.koordinator.sh/resctrl"


class EmulatedMounts:
    """mount(2) and umount(2) of the emulated machine."""

    def __init__(self, node: Emulated) -> None:
        self._node = node

    def mount(self, point: str, options: str = "") -> None:
        self._resctrl.mount(options)

    def umount(self, point: str) -> None:
        self._resctrl.umount()

    @property
    def _resctrl(self) -> Any:
        assert self._node.sandbox.resctrl
        return self._node.sandbox.resctrl


class Node:
    """An emulated node with one best-effort pod, and the agent on it."""

    def __init__(self, folder: Path, shape: str = "intel-2s-ht", **machine: Any) -> None:
        self.emulated = Emulated(msgspec.structs.replace(shapes.machine(shape), **machine), folder)
        self.emulated.pod("crunch", "BE", "100m")
        self.files = self.emulated.sandbox.files
        self.host = self.emulated.host()
        self.tids = self.threads("crunch")

    def agent(self, journal: Journal, files: Any = None, **section: Any) -> Agent:
        """An agent that enforces; `section` are fields of section `resctrl`."""
        settings = self.emulated.settings(tasks_seconds=3.0)
        chosen = dataclasses.replace(settings.strategies["resctrl"], **section)
        settings = msgspec.structs.replace(settings, strategies={**settings.strategies, "resctrl": chosen})
        host = bundle.bind(files or self.files, self.emulated.sandbox.clock, mounts=EmulatedMounts(self.emulated))
        return Agent(host, self.emulated.cluster, settings, journal)

    def run(self, count: int, journal: Journal, agent: Agent | None = None) -> Agent:
        agent = agent or self.agent(journal)
        self.emulated.ticks(agent, count)
        return agent

    def threads(self, pod: str) -> list[int]:
        """Threads of a pod's containers, its sandbox included."""
        group = self.host.cgroups.pod_group(f"uid-{pod}", KubeQoS.BEST_EFFORT)
        return sorted(self.host.cgroups.threads(group))

    def clone(self, maker: int) -> int:
        """One more thread of the maker's process, in its cgroups."""
        sandbox = self.emulated.sandbox
        tid = sandbox.processes.clone(maker)
        line = self.files.read(f"/proc/{maker}/cgroup").decode().splitlines()[0]
        sandbox.cgroups.attach(line.rpartition(":")[2].lstrip("/"), (tid,))
        return tid

    def wish(self, text: str | None) -> None:
        """The pod's annotation."""
        file = self.emulated.folder / "pod-crunch.yaml"
        content = cyaml.safe_load(file.read_text())
        notes = content["metadata"]["annotations"]
        notes.pop(WISH, None)
        notes.update({} if text is None else {WISH: text})
        file.write_text(cyaml.safe_dump(content) + f"# {text}\n")

    def groups(self) -> set[str]:
        return {name[:-1] for name in self.files.list(ROOT) if name.endswith("/")} - {"info", "mon_data", "mon_groups"}

    def tasks(self, group: str) -> set[int]:
        return set(map(int, self.files.read(f"{ROOT}/{group}/tasks").split()))

    def schemata(self, group: str) -> Mapping[str, Mapping[int, int]]:
        return self.host.resctrl.schemata(group).values

    def classes(self, *names: str) -> None:
        """Only these classes are enabled."""
        self.emulated.raw_slo(
            {
                "colocation-config": {"enable": True},
                "resource-qos-config": {"clusterStrategy": {name: RESCTRL[name] for name in names}},
            }
        )
