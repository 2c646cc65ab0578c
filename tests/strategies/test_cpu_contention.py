"""Contention of services: who waits because of others, since when, and because of whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from koordlite.changes.published import NodeConditionChange
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import CPUWait
from koordlite.model.pod.values import ContainerInfo
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.report.sentence import sentence
from koordlite.strategies import cpu_contention
from koordlite.strategies.cpu_contention import Config, ContentionMemory

WEB = "kubepods/burstable/podweb"


@pytest.fixture
def picture(build: Any) -> Any:
    """`web` requests 2 CPUs and uses 1.5; `batch` requests nothing and uses 5; `db` requests 4 and uses 0.5."""

    def make(*, share: float | None, web_milli: int = 1500, throttled: float = 0.0, **facts: Any) -> Snapshot:
        pods = (
            build.pod("web", "LS", requests={"cpu": Quantity.of(2)}),
            build.pod("db", "LS", requests={"cpu": Quantity.of(4)}),
            build.pod("batch", "BE", "BestEffort"),
        )
        places = {
            "web": build.place(WEB),
            "db": build.place("kubepods/burstable/poddb"),
            "batch": build.place("kubepods/besteffort/podbatch"),
        }
        usage = build.used(7000, web=web_milli, batch=5000, db=500)
        waits = {} if share is None else {"web": wait(share), "db": wait(0.01)}
        snapshot: Snapshot = build.snapshot(
            pods=pods,
            places=places,
            usage=msgspec.structs.replace(usage, throttled={f"{WEB}/main": throttled}),
            cpu_waits=waits,
            **facts,
        )
        return snapshot

    return make


def wait(share: float, *, seconds: float = 5.0, wanted_us: int = 1_000_000) -> CPUWait:
    waited = round(share * wanted_us)
    return CPUWait(1000.0 - seconds, 1000.0, wanted_us - waited, waited)


def decide(snapshot: Snapshot, **config: Any) -> dict[str, Decision]:
    return {each.subject: each for each in cpu_contention.decide(snapshot, Config(**config))}


def test_a_service_that_waits_within_its_request_names_who_uses_more_than_he_requested(picture: Any) -> None:
    answers = decide(picture(share=0.4), sustained_seconds=5)
    assert answers["pod/ns/web"].reason == "PodContended"
    assert answers["pod/ns/web"].evidence["culprits"] == "ns/batch +5.0"
    assert "waits" not in sentence(answers["node"]) or answers["node"].evidence["contended"] == 1
    assert sentence(answers["node"]) == (
        "1 of 2 services wait for CPUs that others use above their requests; Node condition CPUContention True"
    )


def test_one_that_uses_more_than_it_requested_blames_nobody(picture: Any) -> None:
    answer = decide(picture(share=0.4, web_milli=2001), sustained_seconds=5)["pod/ns/web"]
    assert (answer.reason, "culprits" in answer.evidence) == ("WaitsAboveRequest", False)


def test_contention_has_to_last_before_anyone_is_named(picture: Any) -> None:
    first = decide(picture(share=0.4), sustained_seconds=30)
    assert first["pod/ns/web"].reason == "ContentionBegins"
    memory = first["node"].remember
    assert memory == ContentionMemory(since={"web": 995.0})
    later = decide(picture(share=0.4, time=1025.0, remembered={"cpuContention": memory}), sustained_seconds=30)
    assert (later["pod/ns/web"].reason, later["pod/ns/web"].evidence["for_seconds"]) == ("PodContended", 30)


def test_calm_in_between_begins_anew(picture: Any) -> None:
    memory = ContentionMemory(since={"web": 100.0})
    calm = decide(picture(share=0.05, remembered={"cpuContention": memory}))
    assert calm["pod/ns/web"].reason == "PodNotContended"
    assert calm["node"].remember == ContentionMemory()


def test_a_pod_stopped_by_its_own_limit_is_not_contended(picture: Any) -> None:
    answer = decide(picture(share=0.02, throttled=0.6))["pod/ns/web"]
    assert sentence(answer) == (
        "its own limit stops it in 60 % of its periods; beside that its threads wait 2 % of the time they want a CPU"
    )


@pytest.mark.parametrize(
    ("short", "said"),
    [
        pytest.param(wait(0.9, seconds=2.0), "450 ms", id="two seconds"),
        pytest.param(wait(0.5, wanted_us=80_000), "8 ms", id="a nearly idle pod"),
    ],
)
def test_short_waits_decide_nothing(picture: Any, short: CPUWait, said: str) -> None:
    import dataclasses

    snapshot = dataclasses.replace(picture(share=0.4), cpu_waits={"web": short})
    answer = decide(snapshot, sustained_seconds=0)["pod/ns/web"]
    assert answer.reason == "WaitsAreShort"
    assert sentence(answer).endswith(f"of the time they want a CPU, but only {said} each second")


def test_a_kernel_that_does_not_count_is_said_for_each_pod(picture: Any) -> None:
    answers = decide(picture(share=None))
    assert {name: a.reason for name, a in answers.items()} == {
        "pod/ns/web": "WaitsUnknown",
        "pod/ns/db": "WaitsUnknown",
        "node": "NoPodContended",
    }


def test_who_has_other_cpus_is_no_culprit(build: Any, picture: Any) -> None:
    groups = {f"{WEB}/main": build.cgroup("0-3"), "kubepods/besteffort/podbatch/main": build.cgroup("4-7")}
    answer = decide(picture(share=0.4, cgroups=groups), sustained_seconds=0)["pod/ns/web"]
    assert answer.evidence["culprits"] == "none above its request"


def test_best_effort_is_not_asked_how_long_it_waits_and_only_limited_pods_are_asked_for_throttling(build: Any) -> None:
    limited = ContainerInfo("main", "", True, {}, {"cpu": Quantity.of(1)})
    pods: Sequence[Any] = (
        build.pod("a", "LS", containers=(limited,)),
        build.pod("b", "LS"),
        build.pod("c", "BE", "BestEffort"),
    )
    slo = build.suppression()
    assert list(cpu_contention.cpu_waits(build.snapshot(pods=tuple(pods)))) == ["a", "b"]
    assert list(cpu_contention.throttling(slo, pods)) == ["a"]


def _node(build: Any, status: str | None) -> Any:
    conditions = {} if status is None else {keys.CPU_CONTENTION: status}
    return msgspec.structs.replace(build.snapshot().node, conditions=conditions)


@pytest.mark.parametrize(
    ("share", "before", "wanted"),
    [
        pytest.param(0.5, (None, None), ("True", "PodsContended", ": ns/web"), id="the first pod"),
        pytest.param(0.5, ("True", 1.0), None, id="stands already"),
        pytest.param(0.5, ("False", 900.0), ("True", "PodsContended", ": ns/web"), id="again"),
        pytest.param(0.0, (None, None), None, id="not written before there is any"),
        pytest.param(0.0, ("True", 59.0), None, id="not cleared at once"),
        pytest.param(0.0, ("True", 60.0), ("False", "NoPodContended", "no service waits"), id="cleared"),
        pytest.param(0.0, ("True", None), None, id="waits anew after a restart"),
        pytest.param(0.0, ("False", 900.0), None, id="stays clear"),
    ],
)
def test_the_condition_of_the_node_comes_with_the_first_pod_and_clears_after_the_last(
    picture: Any, build: Any, share: float, before: tuple[str | None, float | None], wanted: Any
) -> None:
    status, last_seconds = before
    at = None if last_seconds is None else 1000.0 - last_seconds
    memory = {cpu_contention.NAME: ContentionMemory(since={"web": 900.0}, contended_at=at)}
    snapshot = picture(share=share, node=_node(build, status), remembered=memory)
    (decision,) = [each for each in cpu_contention.decide(snapshot, Config()) if each.subject == "node"]
    if wanted is None:
        assert not decision.changes
        return
    (change,) = decision.changes
    assert isinstance(change, NodeConditionChange)
    assert (change.type, change.value, change.reason, change.since) == (
        "CPUContention",
        *wanted[:2],
        snapshot.taken_at,
    )
    assert wanted[2] in change.message
    assert f"CPUContention {change.value}" in sentence(decision)
