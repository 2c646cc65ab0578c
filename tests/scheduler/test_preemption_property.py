"""Preemption over random clusters whose reports come late: a scheduler that evicts as kube-scheduler 1.36 does,
kubelets that admit by their NUMA nodes, and no more victims than one node needs."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import msgspec
import pytest
from slices import amount

from koordlite.model.wire.objects import NodeObject
from koordlite.scheduler.nominations import LEAVING, Victims
from tests.scheduler.builders import Scene, as_object, bound, pod
from tests.scheduler.test_preempt import placed

STEP, LONGEST = 0.5, 150.0
HIGH = 100


@dataclasses.dataclass
class Node:
    """What is true there: `free` CPUs and the pods of each NUMA node, whatever the report says."""

    zone_cpus: int
    zones: list[dict[str, int]]
    report_due: float = 0.0

    def free(self, zone: int) -> int:
        return self.zone_cpus - sum(self.zones[zone].values())

    def most(self, zone: int) -> int:
        """What is free there without the pods that may be evicted."""
        return self.zone_cpus - sum(size for name, size in self.zones[zone].items() if name.startswith("high"))

    def least(self, cpus: int, lower: set[str], promised: int) -> int:
        """The fewest of the pods `lower` whose end makes room for so many CPUs on one NUMA node, beside what is
        promised to others on whichever NUMA node."""
        return max(self._least(cpus, lower, (promised, 0)), self._least(cpus, lower, (0, promised)))

    def _least(self, cpus: int, lower: set[str], promised: tuple[int, int]) -> int:
        pods = []
        for zone, holding in enumerate(self.zones):
            free, count = self.free(zone) - promised[zone], 0
            for _, size in sorted(((n, s) for n, s in holding.items() if n in lower), key=lambda pair: -pair[1]):
                if free >= cpus:
                    break
                free, count = free + size, count + 1
            pods += [count] if free >= cpus else []
        return min(pods, default=0)


@dataclasses.dataclass
class High:
    """A pod that preempts."""

    name: str
    cpus: int
    nominated: str = ""
    node: str = ""
    victims: int = 0
    least: int = 0
    emptied: set[str] = dataclasses.field(default_factory=set)


class World:
    """Time goes in steps; every step the scheduler tries the pods that wait."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.scene = Scene()
        self.nodes: dict[str, Node] = {}
        self.low: dict[str, str] = {}
        self.leaving: dict[str, float] = {}
        self.refused: list[str] = []
        self.signed = chance.random() < 0.5
        for number in range(chance.randint(1, 4)):
            cpus = chance.choice((8, 12, 16))
            node = self.nodes[f"n{number}"] = Node(cpus, [{}, {}])
            for zone in range(2):
                while node.free(zone) > chance.choice((0, 0, 1, 3)):
                    name, size = f"low-{len(self.low)}", min(chance.randint(1, 4), node.free(zone))
                    node.zones[zone][name], self.low[name] = size, f"n{number}"
        for name, node in self.nodes.items():
            self._node(name, node)
            for zone in node.zones:
                for each, size in zone.items():
                    self.scene.put(bound(pod(each, str(size)), name))
            self._report(name)
        self.high = [High(f"high-{n}", chance.randint(2, 8)) for n in range(chance.randint(1, 3))]

    def _node(self, name: str, node: Node) -> None:
        raw = {
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": str(2 * node.zone_cpus), "memory": "99Gi"}},
        }
        self.scene.cluster.put_node(msgspec.convert(raw, NodeObject))

    def _report(self, name: str) -> None:
        node = self.nodes[name]
        pods = {each: zone for zone, holding in enumerate(node.zones) for each in holding}
        signed = [pod(each) for each in pods] if self.signed else None
        zones = [{"cpu": str(node.free(zone)), "memory": "49Gi"} for zone in range(2)]
        totals = {"cpu": str(node.zone_cpus), "memory": "49Gi"}
        self.scene.report(name, *zones, signed=signed, totals=totals, annotations=placed(pods))

    def run(self) -> None:
        now = 0.0
        while now < LONGEST and not all(each.node for each in self.high):
            now += STEP
            self.scene.clock.pass_(STEP)
            for name in [name for name, at in self.leaving.items() if at <= now]:
                self._end(name, now)
            for name, node in self.nodes.items():
                if 0 < node.report_due <= now:
                    node.report_due = 0.0
                    self._report(name)
            for each in self.high:
                if not each.node:
                    self._attempt(each, now)

    def _end(self, name: str, now: float) -> None:
        del self.leaving[name]
        node = self.low.pop(name)
        for zone in self.nodes[node].zones:
            zone.pop(name, None)
        self.scene.cluster.remove_pod(f"ns/{name}")
        self._changed(node, now)

    def _changed(self, node: str, now: float) -> None:
        each_node = self.nodes[node]
        each_node.report_due = each_node.report_due or now + self.chance.uniform(0.5, 8.0)

    def _free(self, name: str, but: High) -> int:
        """As the scheduler counts: pods that terminate, and those for which room is kept, use what they have."""
        node = self.nodes[name]
        used = sum(sum(zone.values()) for zone in node.zones)
        return 2 * node.zone_cpus - used - sum(h.cpus for h in self.high if h is not but and h.nominated == name)

    def _object(self, each: High) -> Any:
        obj = pod(each.name, str(each.cpus), priority=HIGH)
        obj["status"]["nominatedNodeName"] = each.nominated
        return obj

    def _attempt(self, each: High, now: float) -> None:
        obj = self._object(each)
        self.scene.put(obj)
        names = [name for name in self.nodes if self._free(name, each) >= each.cpus]
        for candidates in ([each.nominated] if each.nominated in names else [], names):
            passed, refused = self.scene.filter(obj, *candidates) if candidates else ([], {})
            if passed:
                self._bind(each, obj, passed[0], now)
                return
        resolvable = [name for name in self.nodes if refused.get(name, LEAVING) == LEAVING]
        terminating = any(self.low[name] == each.nominated for name in self.leaving)
        if each.nominated in resolvable and terminating:
            return
        dry_run = {
            name: Victims(tuple(f"uid-{v}" for v in result)) for name in resolvable if (result := self._dry(name, each))
        }
        answer = self.scene.extender.preempt(as_object(obj), dry_run) if dry_run else {}
        if not answer:
            each.nominated = each.nominated if terminating or each.nominated in resolvable else ""
            return
        node = min(answer, key=lambda name: (len(answer[name].uids), name))
        lower = {name for name in self.low if name not in self.leaving}
        promised = sum(h.cpus for h in self.high if h is not each and h.nominated == node)
        each.least = each.least or self.nodes[node].least(each.cpus, lower, promised)
        each.emptied.add(node)
        each.victims += len(answer[node].uids)
        each.nominated = node
        self.scene.put(self._object(each))
        for uid in answer[node].uids:
            name = uid.removeprefix("uid-")
            assert name in self.low, "only pods of lower priority that are there"
            if name not in self.leaving:
                self.leaving[name] = now + self.chance.uniform(0.5, 3.0)
                going = bound(pod(name, "1"), node)
                going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                size = next(zone[name] for zone in self.nodes[node].zones if name in zone)
                going["spec"] = bound(pod(name, str(size)), node)["spec"]
                self.scene.put(going)

    def _dry(self, name: str, each: High) -> list[str]:
        """Victims on one node as the scheduler finds them: as many as possible are reprieved."""
        room = self._free(name, each) + sum(
            size for zone in self.nodes[name].zones for low, size in zone.items() if low in self.low
        )
        pods = []
        if room < each.cpus:
            return []
        for zone in self.nodes[name].zones:
            for low, size in zone.items():
                if low in self.low:
                    if room - size >= each.cpus:
                        room -= size
                    else:
                        pods.append(low)
        return pods

    def _bind(self, each: High, obj: Any, node: str, now: float) -> None:
        assert self.scene.bind(obj, node) == ""
        zones = self.nodes[node].zones
        zone = next((z for z in range(2) if self.nodes[node].free(z) >= each.cpus), None)
        each.node, each.nominated = node, ""
        if zone is None:
            self.refused.append(f"{each.name} on {node}")
            return
        zones[zone][each.name] = each.cpus
        self.scene.put(bound(obj, node))
        self._changed(node, now)


@pytest.mark.sliced
def test_no_more_victims_than_one_node_needs() -> None:
    for seed in range(amount(1000, 60)):
        world = World(seed)
        world.run()
        assert world.refused == [], seed
        for each in world.high:
            fits = any(node.most(zone) >= each.cpus for node in world.nodes.values() for zone in range(2))
            # A node that has enough in all is none where the scheduler looks for victims.
            in_sums = any(world._free(name, each) >= each.cpus for name in world.nodes)
            assert each.node or in_sums or not fits, f"seed {seed}: {each} was never placed"
            assert each.victims <= each.least + 1, f"seed {seed}: {each}"
            assert len(each.emptied) <= 1, f"seed {seed}: {each}"
