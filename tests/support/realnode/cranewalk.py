"""Crane's tutorial on a real kernel, step by step: each yields what has been shown."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator

from realnode.command import Command
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

WEB = Pod("web", "Burstable", "", containers=("main", "side"))
BATCH = Pod("batch")
PROMISES = "crane-promises.json"


class Walk:
    """A private tree with a service and best-effort work; nginx comes with exclusive CPUs of NUMA node 0."""

    def __init__(
        self,
        tree: Tree,
        manifests: Manifests,
        begin: Callable[[], Command],
        state: pathlib.Path,
        seconds: float = 40.0,
    ) -> None:
        """`begin` starts an agent that enforces craneCPUManager; `state` is its folder. Each step has `seconds`."""
        self.tree, self.manifests, self._begin, self.state, self._seconds = tree, manifests, begin, state, seconds

    def steps(self, *, cpus: int, machine: set[int]) -> Iterator[str]:
        """All of them, with `cpus` exclusive CPUs on a machine with the CPUs `machine`."""
        nginx = Pod("nginx", "Guaranteed", "", crane=((0, cpus),))
        self.manifests.node()
        self.manifests.kubelet(cpuManagerPolicy="none")
        for pod in (WEB, BATCH):
            self.manifests.pod(pod)
            self.tree.add(pod)
        found = self.tree.content()
        self.manifests.pod(nginx)
        self.tree.add(nginx)
        agent = self._begin()
        self._until(lambda: len(self.cpus(nginx)) == cpus, "nginx gets its CPUs", agent)
        own = self.cpus(nginx)
        self._until(lambda: self._others() == machine - own, "the others leave them", agent)
        yield f"nginx has {cpus} CPUs of node 0 alone: {sorted(own)}"
        assert json.loads((self.state / PROMISES).read_text())["pods"][nginx.uid]["policy"] == "exclusive"
        self.tree.file(self.tree.container(WEB, "main"), "cpuset").write_text(",".join(map(str, sorted(machine))))
        self._until(lambda: self._others() == machine - own, "a set that was widened by hand is put right", agent)
        yield "a set that another program widened is put right"
        agent.kill()
        late = Pod("late", "Burstable", "")
        self.manifests.pod(late)
        self.tree.add(late)
        agent = self._begin()
        self._until(lambda: self.cpus(late) == machine - own, "a new pod is kept off them too", agent)
        for_a_while(lambda: self.cpus(nginx) == own, "nginx keeps its CPUs", seconds=1.0)
        yield "after kill -9 and a start nginx has the same CPUs"
        self.manifests.remove(nginx)
        self.tree.remove(nginx)
        self._until(lambda: self._others() == machine, "its CPUs are everybody's again", agent)
        self.manifests.remove(late)
        self.tree.remove(late)
        self._until(lambda: not self.tree.changed(found), "every file is as it was found", agent)
        yield "when nginx is gone every file is as it was found"
        assert agent.stop() == 0, agent.said()[-600:]

    def memory(self, begin: Callable[[], Command]) -> str:
        """Two CPUs of node 0 and memory of it, by an agent that `begin` starts with memoryNodes and onStop: restore."""
        nginx = Pod("nginx-memory", "Guaranteed", "", crane=((0, 2),))
        self.manifests.pod(nginx)
        self.tree.add(nginx)
        own = self.tree.file(self.tree.container(nginx, "main"), "cpuset").with_name("cpuset.mems")
        effective = next(p for p in (own.with_name("cpuset.mems.effective"), own) if p.exists())
        before = effective.read_text()
        agent = begin()
        self._until(lambda: effective.read_text().strip() == "0", "its memory comes from node 0", agent)
        assert before.strip() != "0", "there is more than one node to choose from"
        assert agent.stop() == 0, agent.said()[-600:]
        assert effective.read_text() == before
        return "memory of node 0 alone, and back again"

    def cpus(self, pod: Pod) -> set[int]:
        """Where the kernel lets the pod's container run."""
        return self.tree.effective(self.tree.container(pod, "main"))

    def _others(self) -> set[int]:
        """Where every other container and pause container may run, which is the same for all."""
        groups = [self.tree.container(WEB, name) for name in WEB.containers] + [self.tree.container(BATCH, "main")]
        sets = {frozenset(self.tree.effective(group)) for group in groups}
        return set(sets.pop()) if len(sets) == 1 else set()

    def _until(self, holds: Callable[[], object], what: str, agent: Command) -> None:
        try:
            until(holds, what, seconds=self._seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{agent.said()[-800:]}") from None
