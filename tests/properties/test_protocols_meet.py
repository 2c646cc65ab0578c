"""Pods of Crane, Koordinator and kubelet on one node: a CPU given to one of them alone is in no other set."""

from __future__ import annotations

import random
from pathlib import Path

import cranepods
import pytest
import slices
from cranepods import WITH_POOLS
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.host.journal.journal import Journal
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet, union
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import affinity

THREADS = 16


class Meeting:
    """Random pods come and go on one node; the agent restarts now and then."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.static = self.random.random() < 0.25
        together = WITH_POOLS | {"numaAffinity"}
        self.strategies = self.random.choice([WITH_POOLS, together, together, frozenset({"craneCPUManager"})])
        self.node = Emulated(cranepods.machine(THREADS, self.random.choice([1, 2])), folder)
        reserved = self.random.choice(["", "0", "0,8"])
        cranepods.kubelet(self.node, "static" if self.static else "none", reserved or "0")
        notes = {"cpu_manager": "static"} if self.static else {}
        self.node.node(**notes, **({"reservation": f'{{"reservedCPUs":"{reserved}"}}'} if reserved else {}))
        self.names: list[str] = []
        self.count = self.placed = 0

    def play(self, steps: int) -> None:
        while steps > 0:
            with self.node.journal() as journal:
                agent = self._started(journal)
                for _ in range(min(steps, self.random.randint(3, 6))):
                    steps -= 1
                    self._change()
                    self.node.ticks(agent, 3)
                    self._check(agent)

    def _started(self, journal: Journal) -> Agent:
        agent = cranepods.agent(self.node, journal, self.strategies)
        agent.take_over()
        return agent

    def _change(self) -> None:
        if self.names and self.random.random() < 0.35:
            self.node.remove(self.names.pop(self.random.randrange(len(self.names))))
            return
        self.count += 1
        name = f"p{self.count}"
        self.names.append(name)
        makers = [self._crane, self._crane, self._koordinator, self._plain]
        makers += [self._together] * 4 if "numaAffinity" in self.strategies else []
        self.random.choice(makers)(name)

    def _crane(self, name: str) -> None:
        nodes = self.random.choice([(0,), (1,), (0, 1)])
        zones = {node: self.random.randint(1, 3) for node in nodes}
        policy = self.random.choice(["exclusive", "exclusive", "numa", "immovable", "none", ""])
        excludes = self.random.random() < 0.2
        cranepods.pod(self.node, name, sum(zones.values()), zones, policy=policy, excludes=excludes)

    def _koordinator(self, name: str) -> None:
        first = self.random.randrange(THREADS - 1)
        qos = self.random.choice(["LSR", "LSE", "LS"])
        self.node.pod(name, qos, "200m", request="2", status=f'{{"cpuset":"{first}-{first + 1}"}}')

    def _plain(self, name: str) -> None:
        """Under the static policy kubelet gives a pod with whole CPUs some of its own."""
        if self.random.random() < 0.3:
            cranepods.pod(self.node, name, self.random.randint(1, 2))
        else:
            self.node.pod(name, self.random.choice(["BE", "LS", ""]), "500m")

    def _together(self, name: str) -> None:
        cranepods.pod(self.node, name, **{keys.NUMA_GROUP: self.random.choice("ab")})

    def _check(self, agent: Agent) -> None:
        seen = agent.snapshot
        assert seen is not None
        sets = cranepods.sets(self.node, agent)
        for owner, cpus, may_share in _alone(seen):
            others = {name: sets[name] for name in sets if name.split("/")[0] != owner and name not in may_share}
            wrong = {name: str(found) for name, found in others.items() if found & cpus}
            assert not wrong, f"{owner} alone has {cpus}"
        self._check_promises(seen, sets)
        for uid, node in affinity.placed(seen).items() if seen.affinity.enforced else ():
            name = next(pod.name for pod in seen.pods if pod.uid == uid)
            self.placed += 1
            assert seen.topology.numa_of(sets[f"{name}/main"]) == {node}, f"{name} was brought onto one NUMA node"

    def _check_promises(self, seen: Snapshot, sets: dict[str, CPUSet]) -> None:
        """A pod that was promised CPUs by Crane's annotations runs on them, and one that excludes reserved ones off
        them."""
        if not seen.crane.enforced:
            assert seen.kubelet.cpu_manager_policy == "static"
            return
        for pod in seen.pods:
            promise = seen.crane.promises.get(pod.uid)
            for name, cpus in (promise.containers if promise else {}).items():
                assert sets[f"{pod.name}/{name}"] == cpus
            if pod.uid in seen.crane.excluding and not pod.resource_status.cpuset:
                assert not sets[f"{pod.name}/main"] & seen.crane.reserved


def _alone(seen: Snapshot) -> list[tuple[str, CPUSet, set[str]]]:
    """Pods with CPUs of their own, and the containers that may run on them all the same."""
    names = {pod.uid: pod.name for pod in seen.pods}
    best_effort = {f"{pod.name}/main" for pod in seen.pods if pod.kube_qos is KubeQoS.BEST_EFFORT}
    found: list[tuple[str, CPUSet, set[str]]] = []
    kept = union([seen.reserved.cpus, seen.crane.owned, *(held.cpus for held in seen.kubelet.pod_cpus)])
    for pod in seen.pods:
        assigned = pod.resource_status.cpuset - kept
        # Under the static policy kubelet's shared pool knows nothing of Koordinator's assignments.
        written = "cpusetPools" in seen.crane.placed_by_others and seen.kubelet.cpu_manager_policy != "static"
        if assigned and written and pod.raw_qos in (QoSClass.LSE, QoSClass.LSR):
            found.append((pod.name, assigned, best_effort if pod.raw_qos is QoSClass.LSR else set()))
    if union(held.cpus for held in seen.kubelet.pod_cpus) != seen.topology.cpuset:
        # With nothing reserved the emulated kubelet gives away its last CPU, and leaves the others where they were.
        found += [(names[held.uid], held.cpus, set()) for held in seen.kubelet.pod_cpus if held.uid in names]
    for uid, promise in seen.crane.promises.items():
        if promise.policy == "exclusive" and seen.crane.enforced:
            found.append((names[uid], promise.cpus, set()))
    return found


@pytest.mark.timeout(900)  # The long run takes some minutes on a busy machine.
@pytest.mark.sliced
def test_random_mixes_of_protocols(tmp_path: Path) -> None:
    for seed in range(slices.amount(200, 6)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            Meeting(seed, folder).play(12)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
