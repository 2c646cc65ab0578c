"""The NUMA page, the extender and the descheduler, of one emulated node at one moment: what its own agent published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import cyaml
import msgspec
import pytest
from emulated import Emulated
from handles import said

from descheduler.fit.free_capacity import FreeCapacity
from descheduler.framework import Finding, Note
from descheduler.plugins import numa_alignment, reserved_cpus
from descheduler.snapshot import assemble, files
from koordlite.agent import Agent
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.lab.cluster.cluster import SandboxCluster
from koordlite.model import times
from koordlite.model.cpuset import CPUSet
from koordlite.model.wire import objects
from koordlite.scheduler.judgement import koordinator
from koordlite.scheduler.numa_api import overview_page, rest, view
from tests.scheduler.builders import Scene

SECONDS = 70
"""Longer than a placement that has changed waits to be published."""


class Views(NamedTuple):
    """CPUs that nobody has for its own, by view; violations as pod, container, reason and severity."""

    state: str
    free: dict[str, str]
    zones: dict[str, list[int]]
    page_violations: set[tuple[str, ...]]
    descheduler_violations: set[tuple[str, ...]]
    notes: set[str]
    facts: dict[str, dict[str, object]]
    """Of all violations together."""
    text: str
    """The page's words about them."""


class Node(Emulated):
    """An emulated node whose agent publishes into a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__("intel-2s-ht", folder)
        self.published = folder / "published"
        manifests = ManifestCluster(self.folder, clock=self.sandbox.clock, published=self.published)
        self.cluster = SandboxCluster(manifests, self.sandbox)

    def run(self, agent: Agent) -> None:
        """Until what has changed is published."""
        self.ticks(agent, 2)
        self.sandbox.advance(SECONDS)
        assert self.ticks(agent, 2)[-1].problems == ()

    def move(self, pod: str, cpus: str) -> None:
        """Write the cpuset of a pod's containers by hand."""
        for path in self.sandbox.files.paths("/sys/fs"):
            if f"uid_{pod}" in path and path.endswith("cpuset.cpus"):
                self.sandbox.files.write(path, cpus.encode())

    def views(self, *, later: float = 0.0) -> Views:
        """Every view of what is published, so many seconds after the last tick."""
        now, scene, read = self.sandbox.clock.wall() + later, Scene(), files.Objects()
        result: list[Any] = [cyaml.safe_load(path.read_text()) for path in self.folder.glob("pod-*.yaml")]
        result += [json.loads(path.read_text()) for path in self.published.glob("node*.json")]
        for each in result:
            files.take(read, json.dumps(each).encode(), "test")
            match each["kind"]:
                case "Node":
                    scene.cluster.put_node(msgspec.convert(each, objects.NodeObject, strict=False))
                case "Pod":
                    scene.cluster.put_pod(msgspec.convert(each, objects.PodObject, strict=False))
                case "NodeResourceTopology":
                    scene.cluster.put_report(msgspec.convert(each, objects.NRTObject, strict=False))
        scene.cluster.refresh()
        row, picture = scene.cluster.row("node-a"), assemble.view(read, times.show(now))
        assert row is not None
        page, node, judgements = view.of_row(row), picture.nodes["node-a"], koordinator.state_of(row)
        capacity = FreeCapacity.of(node)
        answers = [*said(numa_alignment, picture), *said(reserved_cpus, picture)]
        names = {pod.uid: pod.pod.key for pod in node.pods}
        return Views(
            state=page.state(now),
            free={
                "page": str(page.topology.cpuset - page.reserved - CPUSet(frozenset(page.exclusive))),
                "extender": str(koordinator.free_cpus(judgements)),
                "descheduler": str(capacity.free_cpus),
            },
            zones={
                "page": [zone.cpu_left or 0 for zone in page.zones],
                "extender": [round(1000 * amount) for amount in scene.zones("node-a")],
                "descheduler": [zone["cpu"].milli for _, zone in sorted(capacity.zones.items())],
            },
            page_violations={
                (f"{each['namespace']}/{each['pod']}", each["container"], each["code"], each["severity"])
                for each in rest.violations([page], now)
            },
            descheduler_violations={
                (names[each.pod], each.container, each.reason, each.severity)
                for each in answers
                if isinstance(each, Finding)
            },
            notes={each.reason for each in answers if isinstance(each, Note)},
            facts={
                "page": {name: fact for each in page.findings for name, fact in each.violation.evidence.items()},
                "descheduler": {
                    name: fact for each in answers if isinstance(each, Finding) for name, fact in each.evidence.items()
                },
            },
            text=" ".join(str(part) for each in page.findings for part in overview_page.finding(each.violation)),
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_they_agree_about_cpus_that_kubelet_gives_through_a_move_by_hand_an_end_and_silence(node: Node) -> None:
    node.node(cpu_manager="static")
    node.pod("web", "", "2", request="4", guaranteed=True, static_cpus="4-7")
    node.pod("cache", "", "1", request="2", guaranteed=True, static_cpus="14-15")
    node.pod("batch", "BE", "3")
    with node.at_work() as agent:
        node.run(agent)
        calm = node.views()
        assert set(calm.free.values()) == {"0-3,8-13,16-31"} and calm.state == "ok"
        assert list(calm.zones.values()) == [[12_000, 14_000]] * 3
        assert calm.page_violations == calm.descheduler_violations == set() == calm.notes

        node.move("web", "8-9")
        node.run(agent)
        moved = node.views()
        wrong = {("ns/web", "main", "CPUOutsideAssignment", "hard")}
        assert moved.page_violations == moved.descheduler_violations == wrong
        assert "CPUOutsideAssignment" in moved.text and "cpus 8-9, promised 4-7" in moved.text
        assert moved.facts["page"] == moved.facts["descheduler"] == {"cpus": "8-9", "promised": "4-7"}
        assert moved.free == calm.free and moved.zones == calm.zones

        silent = node.views(later=view.STALE_SECONDS + 60)
        assert silent.state == "stale" and silent.notes == {"StalePlacement"}
        assert silent.page_violations == silent.descheduler_violations == set()

        node.remove("web")
        node.run(agent)
        ended = node.views()
        assert set(ended.free.values()) == {"0-13,16-31"}
        assert list(ended.zones.values()) == [[16_000, 14_000]] * 3
        assert ended.page_violations == ended.descheduler_violations == set()


def test_they_agree_about_cpus_that_koordinators_scheduler_gives_beside_reserved_ones(node: Node) -> None:
    node.node(reservation='{"reservedCPUs":"0-1"}')
    node.pod("web", "", "2", request="4", guaranteed=True)
    node.pod("own", "LSR", "2", request="4", guaranteed=True, status='{"cpuset":"14-17"}')
    node.pod("batch", "BE", "3")
    with node.journal() as journal:
        node.run(node.agent(journal))
    result = node.views()
    assert set(result.free.values()) == {"2-13,18-31"} and result.state == "ok"
    assert result.page_violations == result.descheduler_violations == set()
    assert list(result.zones.values()) == [[12_000, 14_000]] * 3, "a pod without CPUs of its own takes none"


def test_they_name_a_cpu_that_is_reserved_and_used_by_the_same_word_and_facts(node: Node) -> None:
    node.node(cpu_manager="static", reservation='{"reservedCPUs":"0-1"}')
    node.pod("web", "", "2", request="4", guaranteed=True, static_cpus="0-3")
    with node.journal() as journal:
        node.run(node.agent(journal))
    result = node.views()
    assert result.page_violations == result.descheduler_violations == {("ns/web", "main", "UsesReservedCPU", "hard")}
    assert set(result.free.values()) == {"4-31"}
    assert list(result.zones.values()) == [[12_000, 16_000]] * 3
    page, descheduler = result.facts["page"], result.facts["descheduler"]
    assert page == {"owner": "koordinator", "cpus": "0-1", "reserved": "0-1"}
    assert page.items() <= descheduler.items(), "the descheduler says the whole set besides"


def test_they_leave_out_cpus_that_are_reserved_by_annotation_alone(node: Node) -> None:
    """Kubelet has 12 of 16 CPUs left on NUMA node 0: it does not know the annotation."""
    node.node(cpu_manager="static", reservation='{"reservedCPUs":"0-1"}')
    node.pod("web", "", "2", request="4", guaranteed=True, static_cpus="4-7")
    with node.at_work() as agent:
        node.run(agent)
        result = node.views()
        assert set(result.free.values()) == {"2-3,8-31"}
        assert list(result.zones.values()) == [[10_000, 16_000]] * 3
        node.remove("web")
        node.run(agent)
    assert list(node.views().zones.values()) == [[14_000, 16_000]] * 3
