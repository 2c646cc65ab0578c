"""An error about one pod or host application costs that one: every other is served as if it were not there."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tenants
from emulated import Emulated
from hypothesis import given
from hypothesis import strategies as some

from koordlite import strategies
from koordlite.model import isolation
from koordlite.model.snapshot import Snapshot
from koordlite.observe import wants
from koordlite.report.tick import Tick

BURST = {"cpu-burst-config": {"clusterStrategy": {"policy": "auto"}}}
ONE_CPU = {"cpu": "1", "memory": "1Gi"}


def burst(tick: Tick, pod: str) -> Any:
    """What cpuBurst said of a pod."""
    (decision,) = tenants.about(tick, "cpuBurst", f"tenant/{pod}")
    return decision


@pytest.mark.parametrize(
    "text", ['{"policy":"x"}', '{"policy":""}', '{"policy":1}', '{"policy":"auto","cpuBurstPercent":1e308}']
)
def test_a_burst_policy_that_nobody_knows_costs_its_pod_alone(tmp_path: Path, text: str) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.raw_slo(BURST)
    tenants.create(node, "web", "LS", requests=ONE_CPU, limits=ONE_CPU, cpu="2")
    with node.at_work() as agent:
        node.ticks(agent, 3)
        notes = {"koordinator.sh/cpuBurst": text}
        tenants.create(node, "evil", "LS", requests=ONE_CPU, limits=ONE_CPU, cpu="2", annotations=notes)
        tick = node.ticks(agent, 3)[-1]
        assert not [d for d in tick.decisions if d.reason in ("StrategyFailed", "SubjectFailed")]
        assert burst(tick, "web").reason in ("ThrottledBurst", "BurstSteady")
        node.raw_slo({"cpu-burst-config": {"clusterStrategy": {"policy": "none"}}})
        assert burst(node.ticks(agent, 3)[0], "web").reason == "BurstReset", "raised quotas come back"


def test_a_burst_policy_of_the_node_that_nobody_knows_means_none(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    node.raw_slo({"cpu-burst-config": {"clusterStrategy": {"policy": "x"}}})
    notes = {"koordinator.sh/cpuBurst": '{"policy":"auto"}'}
    tenants.create(node, "web", "LS", requests=ONE_CPU, limits=ONE_CPU, cpu="2", annotations=notes)
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 2)[-1]
    assert burst(tick, "web").reason == "BurstNotAllowed"


class Cursed(RuntimeError):
    """An error that nobody foresaw."""


def cursed(rule: strategies.Strategy) -> strategies.Strategy:
    """The rule with a fault: it raises when it judges a pod or host application called evil."""

    def decide(seen: Snapshot, *rest: Any) -> Any:
        names = [pod.name for pod in seen.pods] + [app.name for app in seen.slo.host_applications]
        if "evil" in names:
            raise Cursed("nobody foresaw this")
        return rule.decide(seen, *rest)

    return msgspec.structs.replace(rule, decide=decide)


def play(node: Emulated, *, evil: bool) -> list[Tick]:
    """Five ticks with services, batch work, and maybe a pod and a host application called evil."""
    apps = [
        {"name": name, "qos": "LS", "cgroupPath": {"base": "CgroupRoot", "relativePath": name}}
        for name in ("x", "evil")
    ]
    node.raw_slo(
        {
            **BURST,
            "resource-threshold-config": {"clusterStrategy": {"enable": True}},
            "host-application-config": {"applications": apps if evil else apps[:1]},
        }
    )
    tenants.create(node, "web", "LS", requests=ONE_CPU, limits=ONE_CPU, cpu="2")
    node.pod("db", "LSR", "2", request="2", status='{"cpuset":"2-3"}')
    node.pod("batch", "BE", "64", memory="1Gi")
    if evil:
        tenants.create(node, "evil", "LS", cpu="0")
    with node.journal() as journal:
        return node.ticks(node.agent(journal), 5)


def test_whatever_rule_fails_for_one_subject_the_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("calm", "cursed"):
        (tmp_path / name).mkdir()
    calm = play(Emulated("intel-2s-ht", tmp_path / "calm"), evil=False)[-1]
    rules = tuple(cursed(rule) for rule in strategies.discover())
    monkeypatch.setattr(strategies, "discover", lambda: rules)
    with caplog.at_level(logging.ERROR):
        ticks = play(Emulated("intel-2s-ht", tmp_path / "cursed"), evil=True)
    answers = {(d.strategy, d.subject): (d.verdict, d.reason) for d in ticks[-1].decisions}
    expected = {(d.strategy, d.subject): (d.verdict, d.reason) for d in calm.decisions}
    assert {subject: answers.get(subject) for subject in expected} == expected
    for subject in ("pod/tenant/evil", "host/evil"):
        skipped = [d for d in ticks[-1].decisions if d.subject == subject]
        assert {d.strategy for d in skipped} >= {"cpuBurst", "cpusetPools", "cpuSuppress", "cpuEvict", "memoryQos"}
        assert {(d.verdict, d.reason) for d in skipped} == {("skip", "SubjectFailed")}
        assert all("Cursed: nobody foresaw this (" in str(d.evidence["error"]) for d in skipped)
    assert "strategy cpuBurst skips pod/tenant/evil: Cursed" in caplog.text
    assert len([r for r in caplog.records if "cpuBurst skips" in r.getMessage()]) == 1, "said once, not each tick"


def test_a_subject_is_judged_again_when_it_has_been_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {"annotation": True}
    rule = next(r for r in strategies.discover() if r.name == "cpusetPools")

    def decide(seen: Snapshot, config: Any) -> Any:
        if bad["annotation"] and any(pod.name == "web" for pod in seen.pods):
            raise Cursed
        return rule.decide(seen, config)

    rules = tuple(r if r is not rule else msgspec.structs.replace(r, decide=decide) for r in strategies.discover())
    monkeypatch.setattr(strategies, "discover", lambda: rules)
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "1")
    with node.at_work() as agent:
        node.ticks(agent, 3)
        bad["annotation"] = False
        (found,) = [
            d for d in node.ticks(agent, 2)[-1].decisions if d.subject == "pod/ns/web" and d.strategy == rule.name
        ]
    assert found.reason == "SharedPool"


def test_a_fault_about_no_subject_is_one_of_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(_seen: Snapshot, _config: Any) -> Any:
        raise Cursed("about nobody")

    rules = tuple(
        r if r.name != "cpusetPools" else msgspec.structs.replace(r, decide=decide) for r in strategies.discover()
    )
    monkeypatch.setattr(strategies, "discover", lambda: rules)
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "1")
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 2)[-1]
    assert [d.reason for d in tick.decisions if d.strategy == "cpusetPools"] == ["StrategyFailed"]


def test_what_one_pod_makes_unaskable_is_asked_for_the_others(tmp_path: Path) -> None:
    rule = next(r for r in strategies.discover() if r.name == "cpuBurst")

    def windows(slo: Any, pods: Sequence[Any]) -> Any:
        if any(pod.name == "evil" for pod in pods):
            raise Cursed
        return rule.windows(slo, pods)

    node = Emulated("small", tmp_path)
    node.raw_slo(BURST)
    tenants.create(node, "web", "LS", limits=ONE_CPU)
    tenants.create(node, "evil", "LS", limits=ONE_CPU)
    with node.journal() as journal:
        picture = node.ticks(node.agent(journal), 1)[-1].snapshot
    wanted = wants.of([rule])(picture.slo, picture.pods)
    assert wanted.windows
    assert wants.of([msgspec.structs.replace(rule, windows=windows)])(
        picture.slo, picture.pods
    ) == msgspec.structs.replace(wanted, throttling=wanted.throttling - {"uid-tenant-evil"})


@given(some.sets(some.integers(0, 19), max_size=4), some.tuples(some.integers(0, 19), some.integers(0, 19)))
def test_without_the_culprits_a_judgement_succeeds(alone: set[int], together: tuple[int, int]) -> None:
    subjects = [object() for _ in range(20)]
    place = {id(subject): number for number, subject in enumerate(subjects)}

    def error_of(given: Sequence[object]) -> str:
        numbers = {place[id(subject)] for subject in given}
        return "fails" if numbers & alone or (set(together) <= numbers) else ""

    bad = [place[id(subject)] for subject, _ in isolation.culprits(subjects, error_of)]
    assert not error_of([subject for subject in subjects if place[id(subject)] not in bad])
    assert alone <= set(bad)
    assert len(bad) <= len(alone) + 1, "nobody else pays"


def test_each_answers_for_every_subject() -> None:
    answers = isolation.each(["1", "x", "3"], int, lambda text, why: -len(text) if "ValueError" in why else 0)
    assert list(answers) == [1, -1, 3]


def test_an_error_whose_text_cannot_be_printed_is_described() -> None:
    class Worse(Exception):
        def __str__(self) -> str:
            raise ValueError(json)

    assert isolation.described(Worse()) == "Worse: its text cannot be printed"
