"""Core scheduling from labels to cookies, on an emulated kernel: who shares a core, and what is put back."""

from __future__ import annotations

import dataclasses
import errno
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from emulated import Emulated

from koordlite import config
from koordlite.agent import Agent
from koordlite.apply import restore
from koordlite.changes import core_cookie
from koordlite.model.decision import Decision
from koordlite.model.settings import Mode
from koordlite.report.tick import Tick

Make = Callable[..., Emulated]
POLICY, GROUP = "koordinator.sh/core-sched-policy", "koordinator.sh/core-sched-group-id"
SHAPE = "intel-2s-ht"


def qos(policy: str = "coreSched", **classes: Mapping[str, object]) -> dict[str, object]:
    """The document with `cpuQOS` of these classes; each is on."""
    held = {name: {"cpuQOS": {"enable": True, **settings}} for name, settings in classes.items()}
    return {"resource-qos-config": {"clusterStrategy": {"policies": {"cpuPolicy": policy}, **held}}}


BOTH = qos(lsClass={"coreExpeller": True}, beClass={"coreExpeller": False})


@pytest.fixture
def node(emulate: Make) -> Emulated:
    made = emulate(SHAPE)
    for pod in ("web", "crunch"):
        made.remove(pod)
    made.raw_slo(BOTH)
    return made


def agent(node: Emulated, journal: Any, mode: Mode = "enforce", **chosen: Any) -> Agent:
    """An agent whose one strategy that is on is the one."""
    settings = config.with_modes(config.with_modes(config.default(), "off"), mode, frozenset({"coreSched"}))
    section = dataclasses.replace(settings.strategies["coreSched"], **chosen)
    settings = msgspec.structs.replace(settings, strategies={**settings.strategies, "coreSched": section})
    return Agent(node.host(), node.cluster, settings, journal)


def cookies(node: Emulated) -> dict[str, set[int]]:
    """The cookies of all processes of each pod, by its name; those outside are `system`."""
    found: dict[str, set[int]] = {}
    running = node.sandbox.kubelet.running.values()
    for pod in running:
        processes = [each.process for each in pod.workloads] + ([pod.pause] if pod.pause else [])
        tids = itertools.chain.from_iterable(process.tids for process in processes)
        found[pod.described.name] = {node.sandbox.cores.cookie(tid) for tid in tids}
    return found


def decisions(tick: Tick) -> dict[str, Decision]:
    return {each.subject: each for each in tick.decisions if each.strategy == "coreSched"}


def alone(cookie: set[int]) -> int:
    """The one cookie of a pod, which is one."""
    (one,) = cookie
    assert one
    return one


def test_classes_are_kept_apart_and_groups_are_of_a_namespace(node: Emulated) -> None:
    for name, qos_class, labels in (
        ("web", "LS", {}),
        ("api", "LS", {}),
        ("crunch", "BE", {}),
        ("db", "LS", {GROUP: "db"}),
        ("db-log", "LS", {GROUP: "db"}),
        ("batch-db", "BE", {GROUP: "db"}),
        ("secret", "LS", {POLICY: "exclusive", GROUP: "db"}),
        ("open", "LS", {POLICY: "none", GROUP: "db"}),
        ("daemon", "SYSTEM", {}),
    ):
        node.pod(name, qos_class, "500m", labels=labels)
    with node.journal() as journal:
        first, second = node.ticks(agent(node, journal), 2)
        held = cookies(node)
        assert held["open"] == held["daemon"] == {0}
        assert alone(held["web"]) == alone(held["api"]) != alone(held["crunch"])
        assert alone(held["db"]) == alone(held["db-log"])
        names = ("web", "crunch", "db", "batch-db", "secret")
        assert len({alone(held[name]) for name in names}) == len(names)
        assert {step.ok for step in first.applied} == {True} and not second.applied
        said = decisions(second)
        assert said["node"].evidence == {"groups": 5, "pods": 7}
        assert said["pod/ns/db"].evidence["group"] == "ns/db:expeller"
        assert said["pod/ns/batch-db"].evidence["group"] == "ns/db"
        assert said["pod/ns/secret"].evidence["group"] == "uid:uid-secret:expeller"
        assert said["pod/ns/open"].reason == "CoreSchedNone"
        assert "pod/ns/daemon" not in said
        assert all(step.ok for step in restore(node.host(), journal))
        assert set().union(*cookies(node).values()) == {0} and journal.entries == ()


def test_every_cookie_is_in_the_journal_before_a_process_has_it(node: Emulated, monkeypatch: Any) -> None:
    node.pod("web", "LS", "500m")
    node.pod("crunch", "BE", "500m")
    with node.journal() as journal:
        handed: list[bool] = []
        put = node.sandbox.cores.put

        def watched(tid: int, cookie: int, **scope: bool) -> None:
            noted = {core_cookie.cookie_of(place) for place in journal.places if place.kind is core_cookie.COOKIE}
            handed.append(cookie in noted)
            put(tid, cookie, **scope)

        monkeypatch.setattr(node.sandbox.cores, "put", watched)
        node.ticks(agent(node, journal), 1)
        assert handed and all(handed)


def test_the_next_agent_goes_on_with_the_cookies_there_are(node: Emulated) -> None:
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        node.ticks(agent(node, journal), 1)
        before = cookies(node)
    node.pod("api", "LS", "500m")
    with node.journal() as journal:
        later = agent(node, journal)
        later.take_over()
        node.ticks(later, 2)
        assert cookies(node)["api"] == cookies(node)["web"] == before["web"]
        assert len(journal.entries) == 1


def test_what_enters_a_container_from_outside_joins_and_children_are_born_in(node: Emulated) -> None:
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        running = agent(node, journal)
        node.ticks(running, 2)
        processes, (pod,) = node.sandbox.processes, node.sandbox.kubelet.running.values()
        child = processes.fork(pod.workloads[0].process.pid, now=1.0)
        stranger = processes.spawn("probe", threads=2, now=1.0)
        procs = node.host().cgroups.path(pod.workloads[0].group, "procs")
        node.sandbox.files.write(procs, b"%d" % stranger.pid)
        cookie = alone(cookies(node)["web"])
        assert node.sandbox.cores.cookie(child.pid) == cookie
        assert node.sandbox.cores.cookie(stranger.pid) == 0
        tick = node.ticks(running, 2)[-1]
        assert {node.sandbox.cores.cookie(tid) for tid in stranger.tids} == {cookie}
        assert len(journal.entries) == 1 and not tick.applied


def test_a_cookie_that_a_process_made_for_itself_is_left_alone(node: Emulated) -> None:
    node.pod("web", "LS", "500m")
    node.host()
    (pod,) = node.sandbox.kubelet.running.values()
    pid = pod.workloads[0].process.pid
    with node.sandbox.cores.helper() as helper:
        own = helper.create()
        helper.give(pid, whole_process=True)
    with node.journal() as journal:
        ticks = node.ticks(agent(node, journal), 3)
        assert node.sandbox.cores.cookie(pid) == own
        assert decisions(ticks[-1])["pod/ns/web"].evidence["foreign"] == 1
        assert not ticks[-1].applied
        restore(node.host(), journal)
        assert node.sandbox.cores.cookie(pid) == own


@pytest.mark.parametrize(
    "later", [qos("groupIdentity", lsClass={}, beClass={}), qos(beClass={}), {}], ids=["policy", "class", "no config"]
)
def test_what_is_no_longer_asked_for_is_given_back(node: Emulated, later: Mapping[str, object]) -> None:
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        running = agent(node, journal)
        node.ticks(running, 1)
        alone(cookies(node)["web"])
        node.raw_slo(later)
        ticks = node.ticks(running, 3)
        assert cookies(node)["web"] == {0} and journal.entries == ()
        assert "CoreSchedReleased" in {each.reason for tick in ticks for each in tick.decisions}
        assert not ticks[-1].applied


def test_a_pod_changes_its_group_with_its_label(node: Emulated) -> None:
    node.pod("one", "LS", "500m", labels={GROUP: "a"})
    node.pod("two", "LS", "500m", labels={GROUP: "a"})
    with node.journal() as journal:
        running = agent(node, journal)
        node.ticks(running, 1)
        before = alone(cookies(node)["one"])
        node.pod("one", "LS", "500m", labels={GROUP: "b"})
        node.ticks(running, 2)
        after = cookies(node)
        assert alone(after["two"]) == before != alone(after["one"])
        node.pod("one", "LS", "500m", labels={POLICY: "none"})
        node.ticks(running, 2)
        assert cookies(node)["one"] == {0}
        assert [str(place) for place in journal.places] == [f"core_sched_cookie/ns/a:expeller/{before:016x}"]


def test_ids_that_the_operator_shares_are_one_group_everywhere(node: Emulated) -> None:
    node.pod("web", "LS", "500m", labels={GROUP: "suite"})
    with node.journal() as journal:
        (tick,) = node.ticks(agent(node, journal, shared_group_ids=("suite",)), 1)
    assert decisions(tick)["pod/ns/web"].evidence["group"] == "*/suite:expeller"


@pytest.mark.parametrize(
    ("labels", "label", "group"),
    [
        ({POLICY: "Exclusive", GROUP: "a"}, POLICY, "ns/a:expeller"),
        ({GROUP: "a:expeller"}, GROUP, "uid:uid-web:expeller"),
        ({GROUP: "other/a"}, GROUP, "uid:uid-web:expeller"),
    ],
)
def test_a_label_that_cannot_be_used_is_refused(node: Emulated, labels: dict[str, str], label: str, group: str) -> None:
    node.pod("web", "LS", "500m", labels=labels)
    with node.journal() as journal:
        (tick,) = node.ticks(agent(node, journal), 1)
    said = decisions(tick)["pod/ns/web"]
    assert (said.verdict, said.reason, said.evidence["label"]) == ("refuse", "BadCoreSchedLabel", label)
    assert said.evidence["group"] == group


def test_idle_groups_by_sched_idle_and_back(node: Emulated) -> None:
    node.raw_slo(qos(lsClass={}, beClass={"schedIdle": 1}))
    node.pod("crunch", "BE", "500m")
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        running = agent(node, journal)
        (tick,) = node.ticks(running, 1)
        assert decisions(tick)["pod/ns/crunch"].evidence["idle"] == 1
        seen = node.ticks(running, 1)[0].snapshot
        idle = {pod.name: seen.cgroups[seen.places[pod.uid].group].values["cpu.idle"] for pod in seen.pods}
        assert idle == {"crunch": 1, "web": 0}
        found = [place for place in journal.places if place.kind is not core_cookie.COOKIE]
        assert {place.part("field") for place in found} == {"cpu.idle", "cpu.shares"}
        node.raw_slo(qos(lsClass={}, beClass={"schedIdle": 0}))
        seen = node.ticks(running, 3)[-1].snapshot
        assert all(seen.cgroups[seen.places[pod.uid].group].values["cpu.idle"] == 0 for pod in seen.pods)


def test_without_hyperthreads_the_kernel_says_so(emulate: Make) -> None:
    node = emulate("arm")
    node.raw_slo(BOTH)
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        (tick,) = node.ticks(agent(node, journal), 1)
        said = decisions(tick)
        assert (said["node"].verdict, said["node"].reason) == ("skip", "NoCoreScheduling")
        assert str(said["node"].evidence["why"]).startswith("ENODEV: no core of this machine")
        assert said["pod/ns/web"].reason == "CoreSchedOnlyIdle" and not tick.applied
        assert journal.entries == ()


def test_observing_says_what_would_be_and_writes_nothing(node: Emulated) -> None:
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        tick = node.ticks(agent(node, journal, "observe"), 2)[-1]
        said = decisions(tick)["pod/ns/web"]
        assert (said.verdict, said.evidence["cookie"]) == ("set", "to be made")
        assert cookies(node)["web"] == {0} and journal.entries == ()


@pytest.fixture
def denied(node: Emulated, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulated]:
    """A kernel that lets us look at nobody but ourselves."""
    whole = node.sandbox.cores.cookie

    def refused(tid: int) -> int:
        if tid:
            raise OSError(errno.EPERM, "Operation not permitted", f"/proc/{tid}")
        return whole(tid)

    monkeypatch.setattr(node.sandbox.cores, "cookie", refused)
    return node


def test_without_the_capability_the_reason_names_it(denied: Emulated) -> None:
    denied.pod("web", "LS", "500m")
    with denied.journal() as journal:
        (tick,) = denied.ticks(agent(denied, journal), 1)
        said = decisions(tick)["pod/ns/web"]
        assert (said.verdict, said.reason) == ("skip", "CoreSchedDenied")
        assert not tick.applied and journal.entries == ()


def test_a_refusal_is_told_in_the_kernel_s_words_and_others_go_on(
    node: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pod("web", "LS", "500m")
    node.pod("api", "LS", "500m")
    node.host()
    pid = next(p for p in node.sandbox.kubelet.running.values() if p.described.name == "web").workloads[0].process.pid
    put = node.sandbox.cores.put

    def refuse(tid: int, cookie: int, **scope: bool) -> None:
        if tid == pid:
            raise OSError(errno.EPERM, "Operation not permitted", f"/proc/{tid}")
        put(tid, cookie, **scope)

    monkeypatch.setattr(node.sandbox.cores, "put", refuse)
    with node.journal() as journal:
        (tick,) = node.ticks(agent(node, journal), 1)
        (wrong,) = (step for step in tick.applied if not step.ok)
        assert wrong.error == f"EPERM: Operation not permitted (/proc/{pid})"
        alone(cookies(node)["api"])


def test_a_stranger_who_gets_the_number_of_an_ended_cookie_joins_nobody(node: Emulated) -> None:
    """The kernel gives numbers again, and any process may have cookies made until it gets the one it wants."""
    node.pod("secret", "LS", "500m", labels={GROUP: "a"})
    node.pod("evil", "LS", "500m", labels={GROUP: "b"})
    with node.journal() as journal:
        running = agent(node, journal)
        node.ticks(running, 1)
        wanted = alone(cookies(node)["secret"])
        node.remove("secret")
        node.ticks(running, 1)
        evil = next(p for p in node.sandbox.kubelet.running.values() if p.described.name == "evil")
        with node.sandbox.cores.helper() as helper:
            assert helper.create() == wanted
            helper.give(evil.workloads[0].process.pid, whole_process=True)
        node.pod("secret", "LS", "500m", uid="uid-later", labels={GROUP: "a"})
        node.ticks(running, 3)
        held = cookies(node)
        assert held["secret"].isdisjoint(held["evil"]), held
        places = [place for place in journal.places if place.kind is core_cookie.COOKIE]
        numbers = [place.part("cookie") for place in places]
        assert len(numbers) == len(set(numbers)), places


def test_groups_that_come_and_go_leave_nothing_in_the_journal(node: Emulated) -> None:
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        running = agent(node, journal)
        for number in range(5):
            node.pod("job", "BE", "500m", uid=f"uid-{number}", labels={POLICY: "exclusive"})
            node.ticks(running, 2)
        assert len(journal.entries) <= 3, journal.places
        assert len(set(map(alone, cookies(node).values()))) == 2


def test_the_two_cpu_policies_take_turns(node: Emulated) -> None:
    """Both strategies enforce; whichever the policy names holds the idle groups, and no place has two writers."""
    idle = {"lsClass": {}, "beClass": {"groupIdentity": -1, "schedIdle": 1}}
    node.pod("crunch", "BE", "500m")
    node.pod("web", "LS", "500m")
    with node.journal() as journal:
        both = config.with_modes(config.default(), "enforce", frozenset({"coreSched", "cpuIdentity"}))
        running = Agent(node.host(), node.cluster, both, journal)
        for policy, owner in (
            ("groupIdentity", "cpuIdentity"),
            ("coreSched", "coreSched"),
            ("groupIdentity", "cpuIdentity"),
        ):
            node.raw_slo(qos(policy, **idle))
            ticks = node.ticks(running, 4)
            assert not [problem for tick in ticks for problem in tick.problems], policy
            seen = ticks[-1].snapshot
            assert not ticks[-1].applied
            group = next(seen.places[pod.uid].group for pod in seen.pods if pod.name == "crunch")
            assert seen.cgroups[group].values["cpu.idle"] == 1
            owners = {found.strategy for place, found in seen.found.items() if place.part("cgroup") == group}
            assert owners == {owner}
            assert (cookies(node)["web"] != {0}) is (policy == "coreSched")
