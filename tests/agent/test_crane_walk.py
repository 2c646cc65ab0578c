"""Crane's tutorial on an emulated node: exclusive CPUs of one NUMA node, others off them, reserved CPUs excluded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import cranepods
import msgspec
import pytest
from cranepods import ONLY_CRANE, WITH_POOLS
from emulated import Emulated
from hooked_files import HookedFiles

from koordlite import config
from koordlite.agent import Agent
from koordlite.host import crane_promises
from koordlite.kube.publish import node_reports
from koordlite.model import keys, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.quantity import Quantity
from koordlite.numa.crane import scheduling
from koordlite.numa.crane.scheduling import CranePod
from koordlite.ports import Files
from koordlite.report.tick import Tick

LAYOUTS = [pytest.param(1, id="cgroup v1"), pytest.param(2, id="cgroup v2")]


def start(tmp_path: Path, threads: int = 16, version: int = 2, *, reserved: str = "", policy: str = "none") -> Emulated:
    node = Emulated(cranepods.machine(threads, version), tmp_path)
    cranepods.kubelet(node, policy, reserved)
    return node


def said(tick: Tick, subject: str) -> Decision:
    (found,) = [d for d in tick.decisions if d.strategy == "craneCPUManager" and d.subject == subject]
    return found


@pytest.mark.parametrize("version", LAYOUTS)
def test_nginx_with_two_exclusive_cpus_gets_them_on_node_0_and_nobody_else_has_them(
    tmp_path: Path, version: int
) -> None:
    node = start(tmp_path, version=version)
    cranepods.pod(node, "web")
    node.pod("batch", "", "1")
    node.host()
    found = node.programmed()
    cranepods.pod(node, "nginx", 2, {0: 2})
    with node.journal() as journal:
        agent = cranepods.agent(node, journal)
        tick = node.ticks(agent, 2)[-1]
        assert said(tick, "pod/ns/nginx").reason == "CranePromise"
        assert cranepods.cpus(node, agent, "nginx") == "0,8"
        others = {name: cpus for name, cpus in cranepods.sets(node, agent).items() if name != "nginx/main"}
        assert others
        assert all(str(cpus) == "1-7,9-15" for cpus in others.values())
        assert not [step for each in node.ticks(agent, 3) for step in each.applied], "quiet afterwards"
        node.remove("nginx")
        node.ticks(agent, 2)
        assert {str(cpus) for cpus in cranepods.sets(node, agent).values()} == {"0-15"}
        assert not [place for place in journal.places if "nginx" not in str(place)], "all is given back"
    assert node.changed(found) == []


def test_from_the_published_object_through_the_scheduler_to_the_cpus(tmp_path: Path) -> None:
    node = start(tmp_path, reserved="0")
    cranepods.pod(node, "first", 4, {1: 4})
    amounts = {"cpu": Quantity.of(2)}
    with cranepods.at_work(node) as agent:
        node.ticks(agent, 2)
        assert agent.snapshot is not None
        topology = node_reports.topology(agent.snapshot)
        given = [{"node1": {"cpu": Quantity.of(4)}}]
        verdict = scheduling.verdict(CranePod(containers=[("nginx", amounts, amounts)]), topology, given)
        assert (verdict.passes, list(verdict.result)) == (True, ["node0"]), verdict.detail
        cranepods.pod(node, "nginx", 2, **{keys.CRANE_TOPOLOGY_RESULT: verdict.annotation})
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "nginx") == "1,9", "a core of node 0 without the reserved CPU"
        assert cranepods.cpus(node, agent, "first") == "4-5,12-13"


def test_the_published_object_names_reserved_cpus_though_the_manager_is_off(tmp_path: Path) -> None:
    node = start(tmp_path, reserved="0-1")
    with node.journal() as journal:
        agent = cranepods.agent(node, journal, off=frozenset({"craneCPUManager"}))
        node.ticks(agent, 2)
        assert agent.snapshot is not None
        topology = node_reports.topology(agent.snapshot)
        assert topology.crane_manager_policy.cpu_manager_policy == "None"
        assert topology.attributes == {keys.CRANE_RESERVED_CPUS: "0-1"}
        assert (topology.reserved or {})["cpu"] == "2"


def test_a_pod_that_excludes_reserved_cpus_loses_cpu_0_of_its_set(tmp_path: Path) -> None:
    node = start(tmp_path, threads=64, reserved="0")
    cranepods.pod(node, "nginx", 8, {1: 8})
    cranepods.pod(node, "shared")
    with cranepods.at_work(node) as agent:
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "nginx") == "16-19,48-51"
        assert cranepods.cpus(node, agent, "shared") == "0-15,20-47,52-63"
        cranepods.pod(node, "shared", excludes=True)
        tick = node.ticks(agent, 2)[-1]
        assert cranepods.cpus(node, agent, "shared") == "1-15,20-47,52-63"
        assert said(tick, "pod/ns/shared").reason == "ReservedCPUsExcluded"
        cranepods.pod(node, "shared")
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "shared") == "0-15,20-47,52-63"


@pytest.mark.parametrize("enforced", [ONLY_CRANE, WITH_POOLS], ids=["alone", "with the pools"])
def test_policies_side_by_side(tmp_path: Path, enforced: frozenset[str]) -> None:
    node = start(tmp_path)
    node.pod("batch", "BE", "1")
    cranepods.pod(node, "web")
    cranepods.pod(node, "numa", 2, {1: 2}, policy="numa")
    cranepods.pod(node, "fixed", 2, {1: 2}, policy="immovable")
    cranepods.pod(node, "own", {"one": 1, "two": 2}, {1: 3}, policy="exclusive")
    cranepods.pod(node, "none", 2, {1: 2}, policy="none")
    with cranepods.at_work(node, enforced) as agent:
        node.ticks(agent, 3)
        seen = {name: str(cpus) for name, cpus in cranepods.sets(node, agent).items()}
        assert seen["fixed/main"] == "4,12"
        assert CPUSet.parse(seen["own/one"]) | CPUSet.parse(seen["own/two"]) == CPUSet.parse("5-6,13")
        assert (len(CPUSet.parse(seen["own/one"])), len(CPUSet.parse(seen["own/two"]))) == (1, 2)
        assert seen["numa/main"] == "4,7,12,14-15"
        assert seen["web/main"] == seen["none/main"] == "0-4,7-12,14-15"
        assert not CPUSet.parse(seen["batch/main"]) & CPUSet.parse("5-6,13")
        node.remove("own")
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "numa") == "4-7,12-15"


def test_a_restart_gives_every_container_the_cpus_it_had(tmp_path: Path) -> None:
    node = start(tmp_path)
    for name in ("a", "b", "c"):
        cranepods.pod(node, name, 2, {0: 2})
    with cranepods.at_work(node) as agent:
        node.ticks(agent, 2)
        node.remove("a")
        node.ticks(agent, 2)
        before = cranepods.sets(node, agent)
        assert (str(before["b/main"]), str(before["c/main"])) == ("1,9", "2,10")
    with cranepods.at_work(node) as agent:
        agent.take_over()
        assert not [step for tick in node.ticks(agent, 3) for step in tick.applied]
        assert cranepods.sets(node, agent) == before


def test_pods_stay_on_the_cpus_that_crane_agent_gave_them(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "here", 2, {0: 2})
    cranepods.pod(node, "other", 2, {0: 2})
    cranepods.pod(node, "wide")
    node.host()
    entries = {"uid-here": {"main": "3,11"}, "uid-other": {"main": "4,12"}, "uid-gone": {"main": "0,8"}}
    left = {"policyName": "static", "defaultCpuSet": "0-2,4-10,12-15", "entries": entries, "checksum": 1}
    files = Beside(node.sandbox.files, {"/var/lib/kubelet/crane_cpu_manager_state": json.dumps(left).encode()})
    with cranepods.at_work(node, files=files) as agent:
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "here") == "3,11"
        assert cranepods.cpus(node, agent, "other") == "0,8", "what is not on the promised NUMA node is chosen again"
        node.remove("here")
        node.remove("other")
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "wide") == "0-15"


@pytest.mark.parametrize("version", LAYOUTS)
def test_a_set_that_crane_agent_left_narrow_is_widened(tmp_path: Path, version: int) -> None:
    node = start(tmp_path, version=version)
    cranepods.pod(node, "web")
    looking = cranepods.agent(node, None)
    looking.tick()
    assert looking.snapshot is not None
    (group,) = looking.snapshot.places["uid-web"].containers.values()
    node.host().cgroups.write(group, "cpuset.cpus", CPUSet.parse("1-7,9-15"))
    found = node.programmed()
    with cranepods.at_work(node) as agent:
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "web") == "0-15"
        assert not [step for tick in node.ticks(agent, 3) for step in tick.applied]
        agent.put_back()
    assert node.changed(found) == []


class Beside(HookedFiles):
    """The files of a node, and some more."""

    def __init__(self, files: Files, more: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self._more = more

    def read(self, path: str) -> bytes:
        return self._more[path] if path in self._more else self._files.read(path)


def test_a_foreign_write_is_counted_and_put_right(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "nginx", 2, {0: 2})
    with cranepods.at_work(node) as agent:
        node.ticks(agent, 3)
        assert agent.snapshot is not None
        (group,) = agent.snapshot.places["uid-nginx"].containers.values()
        node.host().cgroups.write(group, "cpuset.cpus", CPUSet.parse("4-5"))
        ticks = node.ticks(agent, 6)
        assert [(w.ours, w.found) for tick in ticks for w in tick.foreign] == [("0,8", "4-5")]
        assert cranepods.cpus(node, agent, "nginx") == "0,8"


def test_broken_promises_of_an_earlier_run_are_reported_and_the_copy_counts(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "a", 2, {0: 2})
    cranepods.pod(node, "b", 2, {0: 2})
    with node.journal() as journal:
        node.ticks(cranepods.agent(node, journal), 2)
    node.remove("a")
    path = node.state / crane_promises.NAME
    path.write_text('{"pods": 1}')
    with cranepods.at_work(node) as agent:
        tick = node.ticks(agent, 1)[0]
        assert [problem.object for problem in tick.problems if "copy" in problem.do] == [str(path)]
        assert cranepods.cpus(node, agent, "b") == "1,9", "and not the CPUs of the first pod"
    assert '"1,9"' in path.read_text()


def test_with_no_readable_promises_nothing_is_changed_until_they_are_removed(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "a", 2, {0: 2})
    cranepods.pod(node, "web")
    with node.journal() as journal:
        node.ticks(cranepods.agent(node, journal), 2)
    files = [node.state / crane_promises.NAME, node.state / crane_promises.COPY]
    for path in files:
        path.write_text("{")
    held = node.programmed()
    with cranepods.at_work(node) as agent:
        agent.take_over()
        (tick,) = node.ticks(agent, 1)
        assert tick.status == "degraded"
        assert "remove both files" in tick.because
        assert node.programmed() == held
        for path in files:
            path.unlink()
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "a") == "0,8"


def test_promises_that_cannot_be_kept_on_disk_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "a", 2, {0: 2})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with node.journal() as journal, monkeypatch.context() as patch:
        patch.setattr(crane_promises, "write", full)
        agent = cranepods.agent(node, journal)
        tick = node.ticks(agent, 2)[-1]
        assert cranepods.cpus(node, agent, "a") == "0-15"
        assert [p for p in tick.problems if p.object.endswith(crane_promises.NAME)]
        patch.undo()
        tick = node.ticks(agent, 2)[-1]
        assert cranepods.cpus(node, agent, "a") == "0,8"
        assert not [p for p in tick.problems if p.object.endswith(crane_promises.NAME)]


def test_under_the_static_policy_nothing_is_placed_and_what_was_goes_back(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "web")
    node.host()
    found = node.programmed()
    cranepods.pod(node, "nginx", 2, {0: 2})
    with cranepods.at_work(node) as agent:
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "web") == "1-7,9-15"
        cranepods.kubelet(node, "static", "0")
        tick = node.ticks(agent, 2)[-1]
        assert said(tick, "crane").reason == "KubeletPlacesCPUs"
        assert {str(cpus) for cpus in cranepods.sets(node, agent).values()} == {"0-15"}
        node.remove("nginx")
        node.sandbox.advance(1.0)
        node.host()
    assert node.changed(found) == []


def test_an_unknown_policy_of_kubelet_promises_nothing(tmp_path: Path) -> None:
    node = Emulated(cranepods.machine(16), tmp_path)
    cranepods.pod(node, "nginx", 2, {0: 2})
    with cranepods.at_work(node) as agent:
        tick = node.ticks(agent, 2)[-1]
        assert said(tick, "crane").reason == "KubeletPolicyUnknown"
        assert cranepods.cpus(node, agent, "nginx") == "0-15"


def test_a_result_beyond_the_request_gives_nothing(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "greedy", 2, {0: 8})
    with cranepods.at_work(node) as agent:
        tick = node.ticks(agent, 2)[-1]
        refused = said(tick, "pod/ns/greedy")
        assert (refused.reason, refused.evidence["why"]) == (
            "CranePromiseRefused",
            "it names 8 CPUs, and the containers request 2",
        )
        assert cranepods.cpus(node, agent, "greedy") == "0-15"


def test_promises_leave_latency_sensitive_pods_their_floor_and_the_one_that_breaks_it_is_told(tmp_path: Path) -> None:
    node = start(tmp_path)
    node.pod("pinned", "LSR", "1", request="2", status='{"cpuset":"0-1"}')
    with cranepods.at_work(node, WITH_POOLS) as agent:
        for name in ("first", "second", "third"):
            cranepods.pod(node, name, 3, {0: 3} if name == "first" else {1: 3})
            tick = node.ticks(agent, 2)[-1]
        assert [said(tick, f"pod/ns/{name}").reason for name in ("first", "second")] == ["CranePromise"] * 2
        refused = said(tick, "pod/ns/third")
        assert refused.reason == "CranePromiseRefused"
        assert "would share 5 of 16 CPUs, and keep at least 8: 50 % of them" in refused.evidence["why"]
        node.remove("first")
        tick = node.ticks(agent, 2)[-1]
        assert said(tick, "pod/ns/third").reason == "CranePromise", "with room again it gets them"


def test_koordinators_assignment_and_cranes_promise_exclude_each_other_in_either_order(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "crane", 2, {0: 2})
    with cranepods.at_work(node, WITH_POOLS) as agent:
        node.ticks(agent, 2)
        node.pod("late", "LSR", "1", request="2", status='{"cpuset":"0-1"}')
        tick = node.ticks(agent, 3)[-1]
        assert cranepods.cpus(node, agent, "crane") == "0,8"
        assert cranepods.cpus(node, agent, "late") == "1", "what the other has is left out"
        cranepods.pod(node, "next", 4, {0: 4})
        node.ticks(agent, 2)
        assert cranepods.cpus(node, agent, "next") == "2-3,10-11"
        assert tick.status == "enforcing"


def test_memory_follows_where_asked_and_comes_back(tmp_path: Path) -> None:

    node = start(tmp_path)
    cranepods.pod(node, "nginx", 2, {1: 2})
    with node.journal() as journal:
        settings = config.with_modes(node.settings("observe"), "enforce", ONLY_CRANE)
        crane = dataclasses.replace(settings.strategies["craneCPUManager"], memory_nodes=True)
        settings = msgspec.structs.replace(settings, strategies={**settings.strategies, "craneCPUManager": crane})
        agent = Agent(node.host(), node.cluster, settings, journal)
        node.ticks(agent, 3)
        assert cranepods.mems(node, agent, "nginx") == "1"
        node.ticks(agent, 3)
        steps = agent.put_back()
        assert all(step.ok for step in steps)
        assert cranepods.mems(node, agent, "nginx") == "0-1"


def placed(node: Emulated, enforced: frozenset[str]) -> nrt.ContainerPlacement:
    """The one container in the published placement."""
    with cranepods.at_work(node, enforced) as agent:
        node.ticks(agent, 3)
        topology = node.cluster.view().topology
        assert topology is not None
        placement = nrt.decode_placement((topology.metadata.annotations or {})[keys.PLACEMENT], "test")
    (container,) = placement.containers
    return container


def test_what_containers_really_have_is_published(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "nginx", 2, {0: 2})
    bare = placed(node, frozenset({"topologyReport"}))
    assert (bare.source, str(bare.promised_cpus), str(bare.cpuset)) == ("none", "", "0-15"), (
        "a fact, and no promise of ours"
    )
    container = placed(node, ONLY_CRANE | {"topologyReport"})
    assert (container.source, container.exclusive, container.single_numa) == ("crane", True, True)
    assert (str(container.promised_cpus), container.promised_nodes, str(container.cpuset)) == ("0,8", (0,), "0,8")


MIXED = {"app": 2, "sidecar": 0}


@pytest.mark.parametrize("version", LAYOUTS)
@pytest.mark.parametrize("enforced", [ONLY_CRANE, WITH_POOLS], ids=["alone", "with the pools"])
def test_a_named_container_of_a_burstable_pod_has_its_cpus_alone_and_its_sidecar_shares(
    tmp_path: Path, version: int, enforced: frozenset[str]
) -> None:
    node = start(tmp_path, version=version)
    cranepods.pod(node, "web")
    cranepods.pod(node, "mixed", {**MIXED, "worker": 2}, {1: 2}, **{keys.EXCLUSIVE_CONTAINERS: "app"})
    with cranepods.at_work(node, enforced) as agent:
        tick = node.ticks(agent, 3)[-1]
        sets = {name: str(cpus) for name, cpus in cranepods.sets(node, agent).items()}
        assert sets["mixed/app"] == "4,12"
        assert sets["mixed/sidecar"] == sets["mixed/worker"] == sets["web/main"] == "0-3,5-11,13-15"
        about = [d for d in tick.decisions if d.subject == "pod/ns/mixed" and "cpuset" in d.evidence]
        assert [(d.strategy, d.reason) for d in about] == [("craneCPUManager", "CranePromise")]
        node.remove("mixed")
        node.ticks(agent, 2)
        assert {str(cpus) for cpus in cranepods.sets(node, agent).values()} == {"0-15"}


def test_a_pod_with_a_promise_is_explained_once_while_all_observe(tmp_path: Path) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "mixed", MIXED, {1: 2}, **{keys.EXCLUSIVE_CONTAINERS: "app"})
    settings = config.with_modes(node.settings("observe"), "observe", {"craneCPUManager"})
    agent = Agent(node.host(), node.cluster, settings, None)
    reasons = {d.reason for d in node.ticks(agent, 2)[-1].decisions if d.subject == "pod/ns/mixed"}
    assert "CranePromise" in reasons
    assert not reasons & {"SharedPool", "PlacedByCrane"}


@pytest.mark.parametrize(
    ("names", "zones", "why"),
    [
        ("sidecar", {1: 2}, "container sidecar needs whole CPUs as request and limit, and has cpu 100m and 0"),
        ("app,absent", {1: 2}, "it names container 'absent', and has app, sidecar"),
        ("app", {1: 4}, "it names 4 CPUs, and the containers request 2"),
        ("app", None, "no scheduler chose NUMA nodes for it: let the extender bind it, or run koordlite crane assign"),
    ],
)
def test_an_exclusive_claim_beyond_the_containers_own_whole_cpus_gives_nothing(
    tmp_path: Path, names: str, zones: Mapping[int, int] | None, why: str
) -> None:
    node = start(tmp_path)
    cranepods.pod(node, "mixed", MIXED, zones, **{keys.EXCLUSIVE_CONTAINERS: names})
    with cranepods.at_work(node) as agent:
        decision = said(node.ticks(agent, 2)[-1], "pod/ns/mixed")
        assert (decision.reason, decision.evidence["why"]) == ("CranePromiseRefused", why)
        assert cranepods.cpus(node, agent, "mixed", "app") == "0-15"
