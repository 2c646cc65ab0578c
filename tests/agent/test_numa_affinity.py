"""Pods that talk to each other on an emulated node with two NUMA nodes: brought together, kept together, released."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import cranepods
import cyaml
import msgspec
import pytest
from emulated import Emulated

from koordlite import config
from koordlite.agent import Agent
from koordlite.host.journal.journal import Journal
from koordlite.model.decision import Decision
from koordlite.record import store
from koordlite.record.reader import Record
from koordlite.record.segment import Head
from koordlite.replay import verify
from koordlite.report import sentence
from koordlite.report.explain.subject import explain
from koordlite.report.tick import Tick
from koordlite.strategies.numa_affinity import Config

LAYOUTS = [pytest.param(1, id="cgroup v1"), pytest.param(2, id="cgroup v2")]
ALONE = frozenset({"numaAffinity"})
WITH_POOLS = frozenset({"numaAffinity", "cpusetPools", "cpuSuppress"})
NODES = ("0-3,8-11", "4-7,12-15")
CONNECTIONS = "sandbox.koordlite.io/connections"
STEPS = 12
"""Ticks in which two counts of every 4 seconds, and what follows them, have passed."""


class Shop:
    """A shop front that talks to its cache, and pods that talk to nobody."""

    def __init__(self, tmp_path: Path, version: int = 2, *, enforced: frozenset[str] = WITH_POOLS) -> None:
        self.node = Emulated(cranepods.machine(16, version), tmp_path)
        self.enforced = enforced
        cranepods.kubelet(self.node)
        self.pod("cache-0")
        self.pod("front", talks="ns/cache-0: 40, elsewhere: 8")
        self.pod("other", talks="elsewhere: 20")
        self.node.host()
        self.found = self.node.programmed()

    def pod(self, name: str, *, talks: str = "", cpu: str = "500m", uses: str = "300m", **more: object) -> None:
        """A burstable pod of class LS with limits, so that its memory may follow."""
        notes = {"sandbox.koordlite.io/cpu": uses, "sandbox.koordlite.io/memory": "64Mi"}
        notes |= {CONNECTIONS: talks} if talks else {}
        notes |= {str(key): str(text) for key, text in more.items() if "/" in key}
        amounts = {"requests": {"cpu": cpu}, "limits": {"cpu": "2", "memory": "256Mi"}}
        namespace, labels = more.get("namespace", "ns"), {"koordinator.sh/qosClass": more.get("qos", "LS")}
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": notes, "labels": labels}
        spec = {"nodeName": "node-a", "containers": [{"name": "main", "resources": amounts}]}
        content = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}
        (self.node.folder / f"pod-{name}.yaml").write_text(cyaml.safe_dump(content))

    def agent(self, journal: Journal | None, **settings: object) -> Agent:
        """An agent that counts every four seconds and wants two counts in a row."""
        modes = config.with_modes(self.node.settings("observe"), "enforce", self.enforced)
        section = modes.strategies["numaAffinity"]
        assert isinstance(section, Config)
        quick = {"sample_seconds": 4.0, "rounds": 2, "rest_rounds": 2, **settings}
        own = dataclasses.replace(section, **quick)  # type: ignore[arg-type]
        both = {**modes.strategies, "numaAffinity": own}
        return Agent(self.node.host(), self.node.cluster, msgspec.structs.replace(modes, strategies=both), journal)

    @contextlib.contextmanager
    def at_work(self, **settings: object) -> Iterator[Agent]:
        """Such an agent, whose journal is held while the block runs."""
        with self.node.journal() as journal:
            yield self.agent(journal, **settings)

    def cpus(self, agent: Agent, name: str) -> str:
        return cranepods.cpus(self.node, agent, name)

    def mems(self, agent: Agent, name: str) -> str:
        return cranepods.mems(self.node, agent, name)


def about(tick: Tick, subject: str, strategy: str = "numaAffinity") -> Decision:
    (found,) = [d for d in tick.decisions if d.strategy == strategy and d.subject == subject]
    return found


def no_conflicts(ticks: list[Tick]) -> None:
    assert [str(problem) for tick in ticks for problem in tick.problems] == []
    assert not any(tick.foreign for tick in ticks)
    assert all(step.ok for tick in ticks for step in tick.applied)


@pytest.mark.parametrize("version", LAYOUTS)
@pytest.mark.parametrize("enforced", [WITH_POOLS, ALONE], ids=["beside cpusetPools", "alone"])
def test_pods_that_talk_come_onto_one_node_and_all_comes_back(
    tmp_path: Path, version: int, enforced: frozenset[str]
) -> None:
    shop = Shop(tmp_path, version, enforced=enforced)
    with shop.at_work() as agent:
        ticks = list(shop.node.ticks(agent, STEPS))
        no_conflicts(ticks)
        where = shop.cpus(agent, "front")
        assert where in NODES
        assert shop.cpus(agent, "cache-0") == where
        assert shop.mems(agent, "front") == shop.mems(agent, "cache-0") == str(NODES.index(where))
        assert shop.cpus(agent, "other") == "0-15"
        last = about(ticks[-1], "pod/ns/front")
        assert (last.verdict, last.reason) == ("hold", "NUMAAffinity")
        text = sentence.sentence(last)
        assert "because 83 % of its connections (40 of 48) are with ns/cache-0 there" in text
        assert f"together    {text}" in explain("numa ns/front", ticks[-1])
        agent.put_back()
        assert shop.node.changed(shop.found) == []
        assert shop.mems(agent, "front") == "0-1"


def test_observing_writes_nothing_and_says_the_same(tmp_path: Path) -> None:
    shop = Shop(tmp_path, enforced=frozenset())
    section = {"mode": "observe"}
    with shop.node.journal() as journal:
        ticks = list(shop.node.ticks(shop.agent(journal, **section), STEPS))
        said = about(ticks[-1], "pod/ns/front")
        assert (said.verdict, said.reason) == ("set", "NUMAAffinity")
        assert said.changes
        assert shop.node.programmed() == shop.found


def test_a_pod_that_stops_talking_is_released_after_as_many_counts(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with shop.at_work() as agent:
        shop.node.ticks(agent, STEPS)
        assert shop.cpus(agent, "front") in NODES
        shop.pod("front", talks="elsewhere: 48")
        ticks = list(shop.node.ticks(agent, 5))
        assert about(ticks[-1], "pod/ns/front").reason == "NUMAAffinityFading"
        ticks += shop.node.ticks(agent, 8)
        reasons = [d.reason for tick in ticks for d in tick.decisions if d.subject == "pod/ns/front"]
        assert "AffinityReleased" in reasons
        no_conflicts(ticks)
        assert shop.cpus(agent, "front") == shop.cpus(agent, "cache-0") == "0-15"
        assert shop.mems(agent, "front") == "0-1"


def test_a_closed_policy_releases_every_pod_and_an_open_one_places_them_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with shop.at_work() as agent:
        ticks = list(shop.node.ticks(agent, STEPS))
        assert shop.cpus(agent, "front") in NODES
        shop.node.raw_slo({"numa-policy-config": {"podAffinity": False}})
        ticks += shop.node.ticks(agent, 3)
        last = about(ticks[-1], "affinity")
        assert (last.verdict, last.reason) == ("hold", "AffinityClosed")
        assert {shop.cpus(agent, name) for name in ("front", "cache-0", "other")} == {"0-15"}
        assert shop.mems(agent, "front") == "0-1"
        shop.node.raw_slo({"numa-policy-config": {"podAffinity": True}})
        ticks += shop.node.ticks(agent, 2 * STEPS)
        assert shop.cpus(agent, "front") == shop.cpus(agent, "cache-0") != "0-15"
        no_conflicts(ticks)


def test_a_restart_keeps_what_it_finds(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with shop.at_work() as agent:
        shop.node.ticks(agent, STEPS)
        before = shop.node.programmed()
    with shop.at_work() as agent:
        agent.take_over()
        ticks = list(shop.node.ticks(agent, STEPS))
        assert shop.node.programmed() == before
        assert not any(step.ok for tick in ticks for step in tick.applied if "cpuset" in str(step.place))


def test_exclusive_cpus_are_left_out_at_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with shop.at_work() as agent:
        shop.node.ticks(agent, STEPS)
        node = NODES.index(shop.cpus(agent, "front"))
        own = ("0-1,8-9", "4-5,12-13")[node]
        shop.node.pod("pinned", "LSR", "1", request="4", status=f'{{"cpuset": "{own}"}}')
        ticks = list(shop.node.ticks(agent, 2))
        no_conflicts(ticks)
        left = ("2-3,10-11", "6-7,14-15")[node]
        assert shop.cpus(agent, "front") == shop.cpus(agent, "cache-0") == left
        assert shop.cpus(agent, "other") == ("2-7,10-15", "0-3,6-11,14-15")[node]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"qos": "LSR"}, "PartnerNotOnOneNUMANode", id="a partner of class LSR is not moved"),
        pytest.param({"cpu": "7", "uses": "6"}, "NoRoomOnNUMANode", id="7 CPUs + 0.5 are over 80 % of 8"),
        pytest.param({"namespace": "else"}, "AffinityAcrossNamespaces", id="another namespace"),
    ],
)
def test_a_pod_stays_where_it_is_and_says_why(tmp_path: Path, more: dict[str, str], reason: str) -> None:
    shop = Shop(tmp_path)
    shop.pod("cache-0", **more)  # type: ignore[arg-type]
    shop.pod("front", talks=f"{more.get('namespace', 'ns')}/cache-0: 40, elsewhere: 8")
    with shop.at_work() as agent:
        ticks = list(shop.node.ticks(agent, STEPS))
        assert about(ticks[-1], "pod/ns/front").reason == reason, about(ticks[-1], "pod/ns/front")
        assert shop.cpus(agent, "front") == "0-15"


def test_declared_groups_need_no_count(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    group = {"affinity.koordlite.io/numa-group": "checkout"}
    for name in ("a", "b", "c"):
        shop.pod(name, **group)  # type: ignore[arg-type]
    shop.pod("wrong", **{"affinity.koordlite.io/numa-group": "no word!"})  # type: ignore[arg-type]
    with shop.at_work(sample_seconds=0.0) as agent:
        ticks = list(shop.node.ticks(agent, 3))
        no_conflicts(ticks)
        (where,) = {shop.cpus(agent, name) for name in ("a", "b", "c")}
        assert where in NODES
        assert "declares the group checkout" in sentence.sentence(about(ticks[-1], "pod/ns/b"))
        refused = about(ticks[-1], "pod/ns/wrong")
        assert (refused.verdict, refused.reason) == ("refuse", "AffinityGroupRefused")
        shop.pod("a")
        shop.pod("b")
        shop.node.ticks(agent, 3)
        assert {shop.cpus(agent, name) for name in ("a", "b", "c")} == {"0-15"}


def resource(shop: Shop, kind: str, name: str, spec: object) -> None:
    meta = {"name": name, "namespace": "tcs"}
    body = {"apiVersion": "resource.sop.huawei.com/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
    (shop.node.folder / f"{kind}.yaml").write_text(cyaml.safe_dump(body))


def test_oenuma_says_where_and_the_whitelist_says_who(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    pods = [{"podName": name, "namespace": "ns", "numaNum": 1} for name in ("front", "other")]
    elsewhere = {"name": "node-b", "podAffinity": [{"podName": "cache-0", "namespace": "ns", "numaNum": 0}]}
    resource(shop, "Oenuma", "podafi", {"node": [{"name": "node-a", "podAffinity": pods}, elsewhere]})
    resource(
        shop, "Whitelist", "whitelist", {"effectiveflag": True, "targetPods": [{"namespace": "ns", "names": ["front"]}]}
    )
    with shop.at_work(sample_seconds=0.0) as agent:
        ticks = list(shop.node.ticks(agent, 4))
        no_conflicts(ticks)
        assert {name: shop.cpus(agent, name) for name in ("front", "other", "cache-0")} == {
            "front": NODES[1],
            "other": "0-15",
            "cache-0": "0-15",
        }
        assert about(ticks[-1], "pod/ns/front").reason == "NUMAAffinityNamed"
        resource(shop, "Oenuma", "podafi", {"node": []})
        shop.node.ticks(agent, 4)
        assert shop.cpus(agent, "front") == "0-15"


def test_a_record_gives_the_same_decisions(tmp_path: Path) -> None:
    """What was decided on, the counts and what was remembered, is in the picture; masked, it still is."""
    shop = Shop(tmp_path)
    resource(
        shop,
        "Whitelist",
        "whitelist",
        {"effectiveflag": True, "targetPods": [{"namespace": "ns", "names": ["front cache-0"]}]},
    )
    moments = []
    with shop.at_work() as agent:
        for _ in range(STEPS):
            shop.node.ticks(agent, 1)
            assert agent.last_round is not None
            moments.append(agent.last_round)
    assert moments[-1].snapshot.affinity.connections
    store.write(tmp_path / "plain", Head(koordlite="1"), moments)
    store.masked(tmp_path / "masked", Head(koordlite="1"), lambda: moments, verify.decided_again())
    for name in ("plain", "masked"):
        read = list(Record(tmp_path / name).rounds())
        assert read[-1].snapshot.affinity.connections == moments[-1].snapshot.affinity.connections
        found = verify.check(read)
        assert found.same, found.mismatches


def test_while_nothing_changes_nothing_is_judged_again(tmp_path: Path) -> None:
    """Use changes every tick, and matters only while a pod waits for a place; memory is looked at every five
    seconds."""
    shop = Shop(tmp_path)
    shop.node.slo(enable=False)
    shop.pod("other", talks="elsewhere: 20", uses="wave(low=0.1,high=2,period=7)")
    with shop.at_work(sample_seconds=12.0) as agent:
        ticks = list(shop.node.ticks(agent, 40))[30:]
        judged = [about(tick, "pod/ns/front") for tick in ticks]
        assert judged[0].reason == "NUMAAffinity"
        again = sum(one is not two for one, two in itertools.pairwise(judged))
        assert again <= 4
