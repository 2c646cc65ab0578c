"""The policy `guided`: the kernel arbitrates, and the limit acts as far as services wait."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from koordlite.formulas.cpu.contention import Guidance
from koordlite.model import keys
from koordlite.model.decision import CPULimit, Decision
from koordlite.model.picture.usage import CPUWait, Objective
from koordlite.model.slo.settings import Threshold
from koordlite.model.snapshot import Snapshot, has_node
from koordlite.model.topology import CPU, Topology
from koordlite.report.sentence import sentence
from koordlite.strategies import cpu_suppress, discover
from koordlite.strategies.cpu_suppress import SuppressMemory

RULE = next(rule for rule in discover() if rule.module == "cpu_suppress")
BE = "kubepods/besteffort"
QUOTA = f"{BE}/cpu.quota"


@pytest.fixture
def picture(build: Any) -> Any:
    """8 CPUs, 65 %: `web` uses 1 CPU, so the formula gives best effort 8 × 65 % − 1 = 4.2; it uses all it may have."""

    def make(**given: Any) -> Snapshot:
        pods = (build.pod("web", "LS"), build.pod("b", "BE", "BestEffort"))
        places = {"web": build.place("kubepods/burstable/podweb"), "b": build.place(f"{BE}/podb")}
        usage = msgspec.structs.replace(build.used(8000, web=1000, b=7000), best_effort_cpu=7000)
        facts = {
            "pods": pods,
            "places": places,
            "usage": usage,
            "slo": build.suppression(cpu_suppress_policy="guided"),
            "cgroups": build.best_effort(quota=given.pop("quota", 784_000)),
        }
        seen: Snapshot = build.snapshot(**{**facts, **given})
        return seen

    return make


def wait(share: float, *, since: float = 995.0, until: float = 1000.0, wanted_us: int = 1_000_000) -> CPUWait:
    waited = round(share * wanted_us)
    return CPUWait(since, until, wanted_us - waited, waited)


def decide(seen: Snapshot, **config: Any) -> Decision:
    """The decision about the limit; the other one leaves best effort all CPUs."""
    limit, cpus = RULE.answer(seen, cpu_suppress.Config(**config))
    assert (cpus.reason, cpus.verdict) == ("PolicyIsQuota", "hold")
    return limit


def test_while_no_service_waits_best_effort_may_have_all_but_two_percent_of_the_node(build: Any, picture: Any) -> None:
    decision = decide(picture(quota=-1, cpu_waits={"web": wait(0.003)}))
    assert (decision.reason, build.changes([decision])) == ("ServicesDoNotWait", {QUOTA: "784000"})
    assert decision.outcome == CPULimit(budget_milli=4200, present_milli=8000, limit_milli=7840, by_quota=True)
    assert sentence(decision) == (
        "the limit is 7.8 cores, since no service waits too long for BE: "
        "ns/web waited 0.3 % of the time it wanted a CPU; BE may make services 10 % slower; "
        "by the formula it would be 4.2; shrinks quota unlimited → 784 ms per 100 ms"
    )


def test_the_limit_grows_by_ten_percent_of_the_node_a_tick(build: Any, picture: Any) -> None:
    decision = decide(picture(quota=420_000, cpu_waits={"web": wait(0.003)}))
    assert build.changes([decision]) == {QUOTA: "500000"}


def test_a_service_that_waits_is_first_watched_at_the_formulas_limit(build: Any, picture: Any) -> None:
    asked = decide(picture(cpu_waits={"web": wait(0.3)}))
    assert (asked.verdict, asked.reason) == ("shrink", "WaitCauseUnknown")
    assert build.changes([asked]) == {QUOTA: "420000"}
    later = {"time": 1007.0, "quota": 420_000, "remembered": {"cpuSuppress": asked.remember}}
    by_itself = decide(picture(cpu_waits={"web": wait(0.29, since=1001, until=1007)}, **later))
    assert (by_itself.verdict, by_itself.reason) == ("grow", "ServicesDoNotWait")
    assert (by_itself.evidence["own_percent"], by_itself.evidence["slower_percent"]) == (29, 0)


def test_a_service_that_waits_more_than_by_itself_takes_half_of_what_is_above_the_formula(
    build: Any, picture: Any
) -> None:
    learned = SuppressMemory(guidance=Guidance(own={"web": 0.1}, learned_at=900.0, known_at=999.0))
    decision = decide(picture(cpu_waits={"web": wait(0.3)}, remembered={"cpuSuppress": learned}))
    assert (decision.verdict, decision.reason) == ("shrink", "ServicesWait")
    assert build.changes([decision]) == {QUOTA: str((784_000 + 420_000) // 2)}
    assert decision.evidence["slower_percent"] == pytest.approx(100 * (0.9 / 0.7 - 1), abs=0.05)
    assert "because BE makes ns/web 28.6 % slower" in sentence(decision)
    unmoved = decide(picture(cpu_waits={"web": wait(0.3)}, remembered={"cpuSuppress": learned}), wait_percent=30)
    assert unmoved.reason == "ServicesDoNotWait"


def test_best_effort_is_not_to_blame_where_others_keep_the_node_busy(build: Any, picture: Any) -> None:
    busy = msgspec.structs.replace(build.used(8000, web=20, b=300), best_effort_cpu=300)
    learned = SuppressMemory(guidance=Guidance(own={"web": 0.8}, learned_at=900.0, known_at=999.0))
    facts = {"usage": busy, "cpu_waits": {"web": wait(0.87)}, "remembered": {"cpuSuppress": learned}}
    decision = decide(picture(**facts, quota=100_000))
    # 0.2 / 0.13 − 1 = 54 % slower, of which best effort, with 300 of the others' 7,980 millicores, has 3.8 %.
    assert (decision.reason, decision.evidence["slower_percent"]) == ("ServicesDoNotWait", 2.0)
    assert "80 % by itself; of everybody else's CPU time BE had 3.8 %; BE may make" in sentence(decision)
    alone = msgspec.structs.replace(build.used(4020, web=20, b=4000), best_effort_cpu=4000)
    assert decide(picture(**{**facts, "usage": alone}, quota=400_000)).reason == "ServicesWait"


def test_without_a_signal_the_limit_stays_for_five_seconds_and_then_is_the_formulas(build: Any, picture: Any) -> None:
    first = decide(picture(quota=-1))
    assert (first.verdict, first.reason, first.changes) == ("hold", "WaitsNotKnownYet", ())
    stale = {"cpu_waits": {"web": wait(0.0, since=985, until=990)}, "quota": -1}
    last = decide(picture(**stale, time=1006.0, remembered={"cpuSuppress": first.remember}))
    assert (last.verdict, last.reason) == ("shrink", "NoWaitSignal")
    assert build.changes([last]) == {QUOTA: "420000"}
    assert sentence(last).startswith(
        "how long services wait for a CPU has not been known for 6 s, so the formula holds"
    )


def test_a_service_that_hardly_wants_a_cpu_does_not_decide(picture: Any) -> None:
    decision = decide(picture(cpu_waits={"web": wait(0.9, wanted_us=5_000)}))
    assert decision.reason == "ServicesDoNotWait"
    assert "service" not in decision.evidence


def test_what_a_service_waits_in_its_first_seconds_does_not_decide(picture: Any) -> None:
    start = wait(0.9, since=998)
    assert decide(picture(cpu_waits={"web": start})).reason == "ServicesDoNotWait"
    assert decide(picture(cpu_waits={"web": msgspec.structs.replace(start, since=997)})).reason == "WaitCauseUnknown"


def test_with_no_service_on_the_node_nobody_waits(build: Any, picture: Any) -> None:
    alone = decide(picture(pods=(build.pod("b", "BE", "BestEffort"),), usage=build.used(7000, b=7000)))
    assert alone.reason == "ServicesDoNotWait"


def test_a_best_effort_pod_is_not_waited_for_whatever_its_label_says(build: Any, picture: Any) -> None:
    pods = (build.pod("web", "LS"), build.pod("b", "LS", "BestEffort"))
    decision = decide(picture(pods=pods, cpu_waits={"web": wait(0.0), "b": wait(0.9)}))
    assert decision.reason == "ServicesDoNotWait"


def test_waits_are_asked_for_only_under_this_policy(build: Any) -> None:
    pods = (build.pod("web", "LS"), build.pod("b", "BE", "BestEffort"))

    def asked(policy: str, **more: Any) -> tuple[str, ...]:
        assert RULE.cpu_waits
        slo = build.suppression(more.pop("on", True), cpu_suppress_policy=policy)
        return tuple(RULE.cpu_waits(build.snapshot(slo=slo, pods=pods, **more)))

    two = Topology((CPU(0, 0, 0, 0), CPU(1, 1, 0, 0)), ())
    assert (asked("cpuset"), asked("cpuset", topology=two)) == ((), ("web",)), "a set of two CPUs is the least"
    assert (asked("cfsQuota"), asked("cfsQuota", topology=two)) == ((), ())
    assert (asked("guided"), asked("guided", on=False)) == (("web",), ())


@pytest.mark.parametrize(
    ("text", "reason", "shown"),
    [
        pytest.param("20", "ServicesDoNotWait", "BE may make services 20 % slower;", id="it bears more"),
        pytest.param("10.5", "WaitCauseUnknown", "BE may make services 10.5 % slower;", id="it bears a little less"),
        pytest.param("1", "WaitCauseUnknown", "BE may make services 5 % slower, not 1 % as it asks;", id="but no less"),
        pytest.param("", "ServicesDoNotWait", "BE may make services 16 % slower;", id="the node's"),
    ],
)
def test_a_pod_says_itself_what_it_tolerates(build: Any, picture: Any, text: str, reason: str, shown: str) -> None:
    web = build.pod("web", "LS", annotations={keys.WAIT_PERCENT: text} if text else {})
    seen = picture(pods=(web, build.pod("b", "BE", "BestEffort")), cpu_waits={"web": wait(0.13)})
    decision = decide(seen, wait_percent=16)
    assert decision.reason == reason
    assert shown in sentence(decision)


@pytest.mark.parametrize("text", ["x", "-1", "1001", "5 %"])
def test_what_cannot_be_read_is_reported_and_the_nodes_percentage_holds(build: Any, picture: Any, text: str) -> None:
    web = build.pod("web", "LS", annotations={keys.WAIT_PERCENT: text})
    seen = picture(pods=(web, build.pod("b", "BE", "BestEffort")), cpu_waits={"web": wait(0.05)})
    limit, _, bad = RULE.answer(seen, cpu_suppress.Config())
    assert (limit.reason, limit.evidence["wait_percent"]) == ("ServicesDoNotWait", 10)
    assert (bad.subject, bad.verdict, bad.reason) == ("pod/ns/web", "refuse", "BadWaitPercent")
    assert "no decimal number from 0 to 1000" in sentence(bad)


def goal(value: float | None, *, since: float = 970.0, until: float = 1000.0, **more: Any) -> Objective:
    asked = more.pop("asked", 50.0)
    return Objective(
        query="p99",
        most=50.0,
        asked=asked,
        unit="ms",
        value=value,
        since=since,
        until=until,
        expires=until + 30,
        **more,
    )


def judged(seen: Snapshot) -> tuple[Decision, Decision]:
    """The decision about the limit, and that about the pod."""
    limit, _, of_pod = RULE.answer(seen, cpu_suppress.Config())
    assert of_pod.subject == "pod/ns/web"
    return limit, of_pod


def test_a_service_that_misses_its_objective_takes_half_of_what_is_above_the_formula(build: Any, picture: Any) -> None:
    limit, of_pod = judged(picture(objectives={"web": goal(52.04)}, cpu_waits={"web": wait(0.001)}))
    assert build.changes([limit]) == {QUOTA: str((784_000 + 420_000) // 2)}
    assert sentence(limit) == (
        "the limit is 6.0 cores, because p99 of ns/web was 52.04 ms, and its objective is 50 ms; by the formula it "
        "would be 4.2; shrinks quota 784 ms → 602 ms per 100 ms"
    )
    assert (of_pod.reason, sentence(of_pod)) == (
        "ObjectiveMissed",
        "its p99 is 52.04 ms, above its objective of 50 ms",
    )


def test_a_service_that_meets_its_objective_may_wait(picture: Any) -> None:
    limit, of_pod = judged(picture(objectives={"web": goal(20.0, asked=10.0)}, cpu_waits={"web": wait(0.9)}))
    assert (limit.reason, of_pod.reason) == ("ServicesDoNotWait", "ObjectiveMet")
    assert sentence(of_pod) == "its p99 is 20 ms, within its objective of 50 ms, not 10 ms as it asks"
    near, _ = judged(picture(quota=500_000, objectives={"web": goal(47.0)}))
    assert (near.verdict, near.reason) == ("hold", "ServiceObjective"), "it is known without waits, too"


@pytest.mark.parametrize(
    ("objective", "shown"),
    [
        pytest.param(
            goal(52.0, since=900.0, until=930.0, why="Prometheus cannot be asked: refused"),
            "its p99 is unknown: Prometheus cannot be asked: refused; it was 52 ms 70 s ago, so",
            id="stale",
        ),
        pytest.param(
            goal(None, why="no query of this name"), "its p99 is unknown: no query of this name, so", id="none"
        ),
    ],
)
def test_without_a_current_measurement_a_service_is_judged_by_what_it_waits(
    picture: Any, objective: Objective, shown: str
) -> None:
    limit, of_pod = judged(picture(objectives={"web": objective}, cpu_waits={"web": wait(0.3)}))
    assert (limit.reason, of_pod.reason, of_pod.verdict) == ("WaitCauseUnknown", "ObjectiveUnknown", "skip")
    assert shown in sentence(of_pod)
    blind, _ = judged(picture(objectives={"web": objective}))
    assert blind.reason == "WaitsNotKnownYet"


def test_what_less_for_best_effort_does_not_help_is_not_its_fault(build: Any, picture: Any) -> None:
    first, _ = judged(picture(quota=420_000, objectives={"web": goal(70.0)}, cpu_waits={"web": wait(0.0)}))
    assert (first.verdict, first.reason) == ("hold", "ServiceObjective")
    later = {"time": 1030.0, "quota": 420_000, "remembered": {"cpuSuppress": first.remember}}
    whole = goal(70.0, since=1000.0, until=1030.0)
    waits = {"web": wait(0.0, since=1025, until=1030)}
    limit, of_pod = judged(picture(objectives={"web": whole}, cpu_waits=waits, **later))
    assert (limit.verdict, limit.reason, of_pod.reason) == ("grow", "ServicesDoNotWait", "NotCausedByBestEffort")
    assert sentence(of_pod) == (
        "its p99 is 70 ms, and its objective 50 ms; less for BE did not help, so for 0 s it is judged by what it waits"
    )


def test_an_objective_that_cannot_be_read_is_reported(build: Any, picture: Any) -> None:
    web = build.pod("web", "LS", annotations={keys.OBJECTIVE: 'rate(x{a="b"}) < 5'})
    seen = picture(pods=(web, build.pod("b", "BE", "BestEffort")), cpu_waits={"web": wait(0.05)})
    _, _, bad = RULE.answer(seen, cpu_suppress.Config())
    assert (bad.subject, bad.verdict, bad.reason) == ("pod/ns/web", "refuse", "BadObjective")
    assert "no name of a query" in sentence(bad)


def test_a_surge_wakes_nobody_while_the_kernel_arbitrates(picture: Any) -> None:
    assert RULE.surge_edge_milli
    seen = picture(cpu_waits={"web": wait(0.0)})
    assert has_node(seen)
    high = CPULimit(budget_milli=4200, present_milli=7840, limit_milli=7840, by_quota=True)
    assert RULE.surge_edge_milli(seen, high, band_percent=1) is None
    formula = msgspec.structs.replace(high, present_milli=4200, limit_milli=4200)
    assert RULE.surge_edge_milli(seen, formula, band_percent=1) is None


@pytest.mark.parametrize("waits", [{}, {"web": wait(0.0, since=980.0, until=985.0)}])
def test_a_surge_wakes_the_formula_where_nobody_knows_what_services_wait(picture: Any, waits: Any) -> None:
    seen = picture(cpu_waits=waits)
    assert RULE.surge_edge_milli
    assert has_node(seen)
    formula = CPULimit(budget_milli=4200, present_milli=4200, limit_milli=4200, by_quota=True)
    assert RULE.surge_edge_milli(seen, formula, band_percent=1) is not None


def test_nothing_is_owed_for_what_services_took(picture: Any) -> None:
    decision = decide(picture(cpu_waits={"web": wait(0.0)}))
    assert isinstance(decision.remember, SuppressMemory)
    assert decision.remember.owed_milli_seconds == 0


def test_a_change_of_policy_leaves_nothing_of_it_behind(picture: Any) -> None:
    guided = decide(picture(cpu_waits={"web": wait(0.3)}))
    quota = dataclasses.replace(
        picture(remembered={"cpuSuppress": guided.remember}), slo=_threshold(picture, "cfsQuota")
    )
    decision, _ = RULE.answer(quota, cpu_suppress.Config())
    assert decision.reason == "BECPUBudget"
    assert isinstance(decision.remember, SuppressMemory)
    assert decision.remember.guidance == Guidance()


def _threshold(picture: Any, policy: str) -> Any:
    return msgspec.structs.replace(picture().slo, threshold=Threshold(enable=True, cpu_suppress_policy=policy))
