"""A tenant writes CPUs into the annotation of his pod: nobody else loses any, and the node keeps its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import slices
from emulated import Emulated
from hypothesis import given, settings
from hypothesis import strategies as some

from koordlite.host import kept_file, sysfs
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.numa.koordinator import assignments
from koordlite.observe.inputs import Inputs
from koordlite.report.tick import Tick

KEY = "scheduling.koordinator.sh/resource-status"


def pod(name: str, cpus: str | CPUSet, qos: str = "LSR", kube: str = "Guaranteed", cpu: float = 2, **more: Any) -> Pod:
    """A pod that says it was assigned `cpus`, and requests `cpu`."""
    status = ResourceStatus(CPUSet.parse(cpus) if isinstance(cpus, str) else cpus)
    requests = {"cpu": Quantity.parse(f"{int(cpu * 1000)}m")} if cpu else {}
    names = {"namespace": "ns", "name": name, "uid": name, "raw_qos": QoSClass(qos), "kube_qos": KubeQoS(kube)}
    return Pod(**names, requests=requests, resource_status=status, **more)  # type: ignore[arg-type]


def judged(*pods: Pod, before: dict[str, str] | None = None, **created: str) -> dict[str, ResourceStatus]:
    """The status of each pod by name."""
    held = {uid: CPUSet.parse(text) for uid, text in (before or {}).items()}
    return {each.name: each.resource_status for each in assignments.judged(pods, before=held, created=created)}


@pytest.mark.parametrize(
    ("qos", "kube", "cpu", "holds"),
    [
        pytest.param("LSR", "Guaranteed", 2, True, id="LSR"),
        pytest.param("LSE", "Guaranteed", 2, True, id="LSE"),
        pytest.param("LSR", "Burstable", 2.5, True, id="as many as the request, rounded down"),
        pytest.param("LSR", "Burstable", 0.999, False, id="a part of a CPU is none"),
        pytest.param("", "Guaranteed", 0.001, False, id="a millicore is none"),
        pytest.param("", "Guaranteed", 2, True, id="no class, Guaranteed"),
        pytest.param("", "Burstable", 2, False, id="no class, Burstable"),
        pytest.param("", "BestEffort", 0, False, id="it requests nothing"),
        pytest.param("LSE", "BestEffort", 0, False, id="LSE that requests nothing"),
        pytest.param("LSR", "Burstable", -1, False, id="LSR that requests less than nothing"),
        pytest.param("LS", "Guaranteed", 2, False, id="LS"),
        pytest.param("BE", "Burstable", 2, False, id="BE"),
        pytest.param("SYSTEM", "Guaranteed", 2, False, id="SYSTEM"),
    ],
)
def test_an_assignment_holds_for_its_class_and_up_to_the_request(qos: str, kube: str, cpu: float, holds: bool) -> None:
    status = judged(pod("p", "2-3", qos, kube, cpu))["p"]
    assert (str(status.cpuset), str(status.refused)) == (("2-3", "") if holds else ("", "2-3"))
    assert bool(status.why) is not holds


@pytest.mark.parametrize(
    ("qos", "cpu", "holds"),
    [
        pytest.param("LS", 2, True, id="every class"),
        pytest.param("", 2, True, id="no class"),
        pytest.param("LS", 0.5, False, id="not more than it requests"),
    ],
)
def test_a_node_that_binds_every_pod_gives_cpus_to_every_class(qos: str, cpu: float, holds: bool) -> None:
    listed = [pod("p", "2-3", qos, "Burstable", cpu)]
    (found,) = assignments.judged(listed, before={}, created={}, binds_every_pod=True)
    assert str(found.resource_status.cpuset) == ("2-3" if holds else "")


def test_of_more_than_a_pod_requests_it_has_as_many_and_is_told() -> None:
    status = judged(pod("p", "2-5", cpu=2.5))["p"]
    assert (str(status.cpuset), str(status.refused)) == ("2-3", "4-5")
    assert status.why == "they are 4, and the pod requests 2.5: only whole CPUs count; it keeps 2-3"
    taken = judged(pod("first", "4-5"), pod("greedy", "2-30", cpu=2), first="2025", greedy="2026")
    assert {name: str(each.cpuset) for name, each in taken.items()} == {"first": "4-5", "greedy": "2-3"}


def test_the_older_assignment_holds_and_both_pods_say_so() -> None:
    found = judged(pod("a", "3-4"), pod("db", "2-3"), db="2026-01-01T00:00:00Z", a="2026-01-02T00:00:00Z")
    assert (str(found["db"].cpuset), found["db"].rivals) == ("2-3", ("ns/a",))
    assert (str(found["a"].cpuset), str(found["a"].refused)) == ("4", "3"), "only what overlaps is refused"
    assert "ns/db" in found["a"].why


def test_an_older_pod_that_names_cpus_later_takes_none() -> None:
    found = judged(
        pod("old", "2-3"), pod("db", "2-3"), before={"db": "2-3"}, old="2026-01-01T00:00:00Z", db="2026-06-01"
    )
    assert (str(found["db"].cpuset), str(found["old"].cpuset)) == ("2-3", "")
    moved = judged(pod("old", "2-3"), pod("db", "4-5"), before={"db": "4-5", "old": "0-1"})
    assert (str(moved["db"].cpuset), str(moved["old"].cpuset)) == ("4-5", "2-3")


def test_a_pod_that_has_finished_keeps_nobody_off_its_cpus() -> None:
    found = judged(pod("done", "2-3", phase="Succeeded"), pod("p", "2-3"), done="2025")
    assert str(found["p"].cpuset) == "2-3"


HOLDS = {keys.RESERVATION_UID: "r"}
"""What a placeholder of a reservation says of itself."""


def test_the_owner_of_a_reservation_has_its_cpus_while_the_placeholder_leaves_and_nobody_has_them_before() -> None:
    before = {"hold": "2-3"}
    owner = pod("owner", "2-3")
    staying = judged(pod("hold", "2-3", labels=HOLDS), owner, before=before)
    assert (str(staying["hold"].cpuset), str(staying["owner"].cpuset)) == ("2-3", "")
    leaving = judged(pod("hold", "2-3", labels=HOLDS, deleting=True), owner, before=before)
    assert (str(leaving["hold"].cpuset), str(leaving["owner"].cpuset)) == ("", "2-3")
    assert not leaving["owner"].rivals + leaving["hold"].rivals
    assert not leaving["hold"].refused
    alone = judged(pod("hold", "2-3", labels=HOLDS, deleting=True), before=before)
    assert str(alone["hold"].cpuset) == "2-3", "until the owner is there they are kept"


def test_a_pod_that_calls_itself_a_placeholder_gains_nothing() -> None:
    found = judged(pod("evil", "2-3", labels=HOLDS, deleting=True), pod("db", "2-3"), evil="2025", db="2026")
    assert (str(found["db"].cpuset), str(found["evil"].cpuset)) == ("2-3", "")


PODS = some.lists(
    some.tuples(
        some.frozensets(some.integers(0, 7), max_size=8),
        some.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", ""]),
        some.sampled_from(["Guaranteed", "Burstable", "BestEffort"]),
        some.sampled_from([0, 1, 1.5, 4, 8]),
    ),
    max_size=8,
)


@settings(max_examples=slices.amount(150, 40), deadline=None)
@given(PODS)
def test_whatever_is_written_no_cpu_has_two_owners_and_nobody_gets_more_than_he_requests(
    drawn: list[tuple[frozenset[int], str, str, float]],
) -> None:
    pods = [pod(f"p{n}", CPUSet(ids), qos, kube, cpu) for n, (ids, qos, kube, cpu) in enumerate(drawn)]
    found = assignments.judged(pods, before={}, created={})
    held = [cpu for each in found for cpu in each.resource_status.cpuset]
    assert len(held) == len(set(held))
    assert all(len(each.resource_status.cpuset) * 1000 <= each.request_milli("cpu") for each in found)


def pool(cpus: str = "0-7", percent: float = 50, shared_milli: int = 0, **more: Any) -> assignments.SharedPool:
    """What latency-sensitive pods share before any promise."""
    return assignments.SharedPool(cpus=CPUSet.parse(cpus), percent=percent, shared_milli=shared_milli, **more)


@pytest.mark.parametrize(
    ("shared", "promises"),
    [
        pytest.param(pool(), 4, id="half of 8 CPUs stays"),
        pytest.param(pool(percent=25), 6, id="a quarter"),
        pytest.param(pool(percent=0), 8, id="no floor"),
        pytest.param(pool(shared_milli=5001), 2, id="what latency-sensitive pods request, in whole CPUs"),
        pytest.param(pool(percent=0, shared_milli=5001), 8, id="no floor, whatever they request"),
        pytest.param(pool(reserved=3), 2, id="8 less 3 reserved by number leave 5, of which 3 stay"),
        pytest.param(pool("0-3"), 6, id="CPUs that are reserved by name are in no pool, and refused elsewhere"),
        pytest.param(pool(exclusive=CPUSet([0, 1])), 4, id="CPUs that kubelet gave away count as gone"),
    ],
)
def test_the_last_promises_to_break_the_floor_of_the_shared_pool_are_refused(
    shared: assignments.SharedPool, promises: int
) -> None:
    pods = [pod(f"p{cpu}", str(cpu), cpu=1) for cpu in range(8)]
    created = {each.uid: f"2026-01-0{9 - n}T00:00:00Z" for n, each in enumerate(pods, 1)}
    found = assignments.judged(pods, before={}, created=created, pool=shared)
    assert sum(bool(each.resource_status.cpuset) for each in found) == promises
    refused = [each for each in found if not each.resource_status.cpuset]
    assert all("latency-sensitive pods would share" in each.resource_status.why for each in refused)


def test_the_older_promises_hold_and_the_younger_ones_are_refused() -> None:
    pods = [pod(f"p{cpu}", str(cpu), cpu=1) for cpu in range(8)]
    created = {f"p{cpu}": f"2026-01-0{9 - cpu}T00:00:00Z" for cpu in range(8)}
    found = assignments.judged(pods, before={}, created=created, pool=pool())
    assert [each.name for each in found if each.resource_status.cpuset] == ["p4", "p5", "p6", "p7"]


def test_a_promise_that_held_before_is_not_taken_back_for_the_floor() -> None:
    before = {f"p{cpu}": CPUSet([cpu]) for cpu in range(6)}
    pods = [pod(f"p{cpu}", str(cpu), cpu=1) for cpu in range(8)]
    found = assignments.judged(pods, before=before, created={}, pool=pool())
    assert [str(each.resource_status.cpuset) for each in found] == ["0", "1", "2", "3", "4", "5", "", ""]


@settings(max_examples=slices.amount(100, 30), deadline=None)
@given(PODS, some.sampled_from([25, 50, 75]), some.integers(0, 6000))
def test_whatever_is_written_the_shared_pool_keeps_its_floor(
    drawn: list[tuple[frozenset[int], str, str, float]], percent: float, shared_milli: int
) -> None:
    pods = [pod(f"p{n}", CPUSet(ids), qos, kube, cpu) for n, (ids, qos, kube, cpu) in enumerate(drawn)]
    shared = pool(percent=percent, shared_milli=shared_milli)
    first = assignments.judged(pods, before={}, created={}, binds_every_pod=True, pool=shared)
    held = {each.uid: each.resource_status.cpuset for each in first}
    left = 8 - sum(map(len, held.values()))
    assert left >= 8 * percent / 100
    assert left * 1000 >= min(shared_milli, 8000)
    again = assignments.judged(pods, before=held, created={}, binds_every_pod=True, pool=shared)
    assert [each.resource_status.cpuset for each in again] == list(held.values()), "who has CPUs keeps them"


# ── on the emulated node ──


def test_the_cpus_of_a_reservation_are_in_no_pool_and_the_owner_gets_just_them(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("hold", "LSR", "0", request="2", status='{"cpuset":"2-3"}')
    node.pod("web", "LS", "8", request="2")
    node.pod("batch", "BE", "64")
    with node.at_work() as agent:
        for name in ("hold", "owner"):
            tick = node.ticks(agent, 5)[-1]
            found = {d.subject: d for d in tick.decisions if d.subject.startswith("pod/") and "cpuset" in d.evidence}
            assert found[f"pod/ns/{name}"].evidence["cpuset"] == "2-3"
            for shared in (found["pod/ns/web"].evidence["cpuset"], node.best_effort_cpus()):
                assert not CPUSet.parse(str(shared)) & CPUSet.parse("2-3")
            if name == "hold":
                node.remove("hold")
                node.pod("owner", "LSR", "2", request="2", status='{"cpuset":"2-3"}')


def pools(decisions: Iterable[Decision]) -> dict[str, object]:
    """What the strategy of pools says about the shared ones."""
    return dict(next(d for d in decisions if d.reason == "SharedPools").evidence)


def test_a_pod_that_requests_nothing_takes_no_cpu_out_of_the_pools(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "500m")
    with node.at_work() as agent:
        quiet = pools(node.ticks(agent, 2)[-1].decisions)
        everything = json.dumps({"cpuset": f"0-{node.cpus - 2}"})
        node.pod("evil", "LSE", "0", status=everything)
        node.pod("evil-ls", "LS", "0", status=everything)
        tick = node.ticks(agent, 3)[-1]
        assert pools(tick.decisions) == quiet
        evil = next(d for d in tick.decisions if d.subject == "pod/ns/evil" and "why" in d.evidence)
        assert "requests 0.5" in str(evil.evidence["why"])
        assert {p.object for p in tick.snapshot.problems if p.field == KEY} == {"pod/ns/evil", "pod/ns/evil-ls"}


def test_suppression_does_not_switch_off_and_best_effort_stays_off_reserved_cpus(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.node(reservation='{"reservedCPUs":"0"}')
    node.pod("batch", "BE", "64")
    node.pod("web", "LS", "4", request="8")
    with node.at_work() as agent:
        node.ticks(agent, 10)
        limit = len(CPUSet.parse(node.best_effort_cpus()))
        node.pod("evil", "LSE", "0", status=json.dumps({"cpuset": f"0-{node.cpus - 1}"}))
        tick = node.ticks(agent, 5)[-1]
        assert not [d for d in tick.decisions if d.reason == "NoCPULeftForBestEffort"]
        cpus = CPUSet.parse(node.best_effort_cpus())
        assert 0 not in cpus
        assert abs(len(cpus) - limit) <= 2


def test_the_cpus_of_an_lse_pod_are_not_taken_by_a_later_one(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("zdb", "LSE", "2", request="4", status='{"cpuset":"2-5"}')
    with node.at_work() as agent:
        node.ticks(agent, 2)
        node.pod("evil", "LSE", "2", request="4", status='{"cpuset":"4-7"}')
        tick = node.ticks(agent, 3)[-1]
        found = {d.subject: d for d in tick.decisions if d.subject.startswith("pod/") and "cpuset" in d.evidence}
        assert found["pod/ns/zdb"].evidence["cpuset"] == "2-5"
        assert found["pod/ns/zdb"].evidence["also_named_by"] == "ns/evil"
        assert found["pod/ns/evil"].evidence["refused"] == "4-5"
        assert found["pod/ns/evil"].evidence["cpuset"] == "6-7"


def test_reserved_cpus_are_no_pods(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.node(reservation='{"reservedCPUs":"0-1"}')
    node.pod("some", "LSR", "2", request="2", status='{"cpuset":"1-2"}')
    node.pod("all", "LSR", "2", request="2", status='{"cpuset":"0"}')
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 2)[-1]
    found = {d.subject: d for d in tick.decisions if "cpuset" in d.evidence}
    assert found["pod/ns/some"].evidence["cpuset"] == "2"
    assert found["pod/ns/all"].reason == "SharedPool"
    assert not CPUSet.parse(str(found["pod/ns/all"].evidence["cpuset"])) & CPUSet.parse("0-1")


@pytest.mark.parametrize(("policy", "cpus"), [("FullPCPUsOnly", "2-5"), ("None", "")])
def test_an_ls_pod_gets_the_cpus_it_was_assigned_where_the_node_binds_every_pod(
    tmp_path: Path, policy: str, cpus: str
) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.node(labels={"node.koordinator.sh/cpu-bind-policy": policy})
    node.pod("web", "LS", "2", request="4", status='{"cpuset":"2-5"}')
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 2)[-1]
    (seen,) = (p for p in tick.snapshot.pods if p.name == "web")
    assert str(seen.resource_status.cpuset) == cpus
    found = next(d for d in tick.decisions if d.subject == "pod/ns/web" and "cpuset" in d.evidence)
    assert (found.evidence["cpuset"] == "2-5") == bool(cpus)


def claims(tick: Tick) -> dict[str, str]:
    """The CPUs each pod has of its own."""
    return {pod.name: str(pod.resource_status.cpuset) for pod in tick.snapshot.pods if pod.resource_status.cpuset}


def test_pods_of_a_millicore_each_take_no_cpu_from_the_shared_pool(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("web", "LS", "4", request="8")
    node.pod("batch", "BE", "64")
    for cpu in range(1, node.cpus):
        node.pod(f"evil{cpu}", "", "1m", request="1m", guaranteed=True, status=json.dumps({"cpuset": str(cpu)}))
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 3)[-1]
        assert claims(tick) == {}
        assert pools(tick.decisions)["ls_pool"] == f"0-{node.cpus - 1}"
        refused = [d for d in tick.decisions if d.subject.startswith("pod/ns/evil") and "why" in d.evidence]
        assert len(refused) == node.cpus - 1
        assert all("only whole CPUs count" in str(d.evidence["why"]) for d in refused)


def test_pods_that_request_whole_cpus_leave_the_shared_pool_its_floor(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("web", "LS", "4", request="2")
    for cpu in range(1, node.cpus):
        node.pod(f"evil{cpu}", "LSR", "1m", request="1", status=json.dumps({"cpuset": str(cpu)}))
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 3)[-1]
        left = CPUSet.parse(str(pools(tick.decisions)["ls_pool"]))
        assert len(left) >= node.cpus // 2
        web = next(d for d in tick.decisions if d.subject == "pod/ns/web" and "cpuset" in d.evidence)
        assert CPUSet.parse(str(web.evidence["cpuset"])) == left
        told = {p.object for p in tick.snapshot.problems if p.field == KEY and "keep at least" in p.why}
        assert len(told) == node.cpus - 1 - len(claims(tick))


@pytest.mark.parametrize("kept", [pytest.param(True, id="kept"), pytest.param(False, id="the file is damaged")])
def test_who_had_a_cpu_first_has_it_after_a_restart_too(tmp_path: Path, kept: bool) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("db", "LSE", "2", request="4", status='{"cpuset":"2-5"}', created="2026-06-01T00:00:00Z")
    with node.journal() as journal:
        node.ticks(node.agent(journal), 2)
        node.pod("old", "LSR", "2", request="4", status='{"cpuset":"5-8"}', created="2026-01-01T00:00:00Z")
        before = claims(node.ticks(node.agent(journal), 2)[-1])
    assert before == {"db": "2-5", "old": "6-8"}
    if not kept:
        (node.state / "cpu-promises.json").write_bytes(b'{"pods": {"uid-db": "\xff"}}')
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 2)[-1]
        assert claims(tick) == (before if kept else {"db": "2-4", "old": "5-8"})
        assert any("cpu-promises.json" in p.object for p in tick.snapshot.problems) is False


def test_promises_are_remembered_while_not_all_pods_are_known(tmp_path: Path) -> None:
    """As long as the Node is not known, the list of pods may lack some."""
    node = Emulated("small", tmp_path)
    node.pod("a", "LSR", "1", request="1", guaranteed=True, status='{"cpuset":"1"}')
    view, topology = node.cluster.view(), sysfs.topology(node.sandbox.files)
    kept_file.cpu_promises(tmp_path).keep({"uid-a": CPUSet([1]), "uid-b": CPUSet([2])})
    for known, there in ((None, {"uid-a": CPUSet([1]), "uid-b": CPUSet([2])}), (view.node, {"uid-a": CPUSet([1])})):
        inputs = Inputs(promises=kept_file.cpu_promises(tmp_path))
        inputs.read(msgspec.structs.replace(view, node=known), topology)
        assert kept_file.cpu_promises(tmp_path).value == there


def test_a_pod_that_shrinks_in_place_keeps_its_promise_and_gives_back_the_rest(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("db", "LSR", "4", request="4", status='{"cpuset":"2-3,18-19"}')
    with node.at_work() as agent:
        assert claims(node.ticks(agent, 2)[-1]) == {"db": "2-3,18-19"}
        node.pod("db", "LSR", "2", request="2", status='{"cpuset":"2-3,18-19"}')
        tick = node.ticks(agent, 2)[-1]
        assert claims(tick) == {"db": "2,18"}, "a whole core"
        assert CPUSet.parse(pools(tick.decisions)["ls_pool"]) >= CPUSet.parse("3,19")
        node.pod("db", "LSR", "4", request="4", status='{"cpuset":"2-3,18-19"}')
        assert claims(node.ticks(agent, 2)[-1]) == {"db": "2-3,18-19"}
        node.pod("db", "LSR", "6", request="6", status='{"cpuset":"2-4,18-20"}')
        tick = node.ticks(agent, 2)[-1]
        assert claims(tick) == {"db": "2-4,18-20"}, "what the extender adds to it"
        assert not CPUSet.parse(pools(tick.decisions)["ls_pool"]) & CPUSet.parse("2-4,18-20")
