"""What a node promises to best-effort pods."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas import allocatable
from koordlite.formulas.allocatable import Sums
from koordlite.model.pod import Pod
from koordlite.model.qos import KubeQoS, PriorityClass, QoSClass
from koordlite.model.quantity import Quantity
from koordlite.model.slo import Colocation, HostApplication
from koordlite.model.snapshot import Use

GI = 1024**3
CAPACITY = Use(64_000, 256 * GI)
SUMS = Sums(hp_request=Use(20_000, 80 * GI), hp_used=Use(10_000, 50 * GI), hp_max_used_request=Use(24_000, 90 * GI))
SYSTEM = Use(2_000, 8 * GI)
RESERVED = Use(3_000, 4 * GI)


def pod(**given: object) -> Pod:
    usual = {
        "namespace": "shop",
        "name": "cart",
        "uid": "u1",
        "kube_qos": KubeQoS.BURSTABLE,
        "requests": {"cpu": Quantity.of(4), "memory": Quantity.of(8 * GI)},
    }
    return Pod(**{**usual, **given})  # type: ignore[arg-type]


def results(**changes: object) -> tuple[int, int]:
    colocation = dataclasses.replace(
        Colocation(cpu_reclaim_threshold_percent=75, memory_reclaim_threshold_percent=75), **changes
    )
    cpu, memory = allocatable.batch(
        capacity=CAPACITY,
        colocation=colocation,
        sums=SUMS,
        system=SYSTEM,
        host_apps=Use(500, GI),
        reserved=RESERVED,
    )
    return cpu.result, memory.result // GI


@pytest.mark.parametrize(
    ("changes", "cpu", "memory"),
    [
        pytest.param(
            {}, 64_000 - 16_000 - 3_000 - 10_000, 256 - 64 - 9 - 50, id="use of the system, or the reservation"
        ),
        pytest.param(
            {"memory_calculate_policy": "request"}, 35_000, 256 - 64 - 4 - 80, id="request trusts what is written"
        ),
        pytest.param(
            {"cpu_calculate_policy": "maxUsageRequest", "memory_calculate_policy": "maxUsageRequest"},
            64_000 - 16_000 - 3_000 - 24_000,
            256 - 64 - 9 - 90,
            id="maxUsageRequest takes the larger of both",
        ),
        pytest.param({"cpu_calculate_policy": "request"}, 35_000, 133, id="CPU knows no request policy"),
        pytest.param({"cpu_calculate_policy": "guess"}, 35_000, 133, id="an unknown policy is usage"),
        pytest.param({"batch_cpu_threshold_percent": 50}, 32_000, 133, id="capped"),
        pytest.param({"batch_cpu_threshold_percent": 60}, 35_000, 133, id="a cap above the result"),
        pytest.param({"batch_memory_threshold_percent": 0}, 35_000, 0, id="a cap of 0 is a cap"),
        pytest.param({"cpu_reclaim_threshold_percent": 10}, 0, 133, id="never negative"),
        pytest.param({"cpu_reclaim_threshold_percent": 150}, 83_000, 133, id="thresholds above 100 overcommit"),
    ],
)
def test_batch(changes: dict[str, object], cpu: int, memory: int) -> None:
    assert results(**changes) == (cpu, memory)


def test_the_margin_is_truncated_as_doubles_are() -> None:
    found = allocatable.safety_margin(capacity=Use(3000, 0), colocation=Colocation(cpu_reclaim_threshold_percent=71))
    assert found.cpu == 869


USED = Use(1_000, 3 * GI)
REQUEST = Use(4_000, 8 * GI)


@pytest.mark.parametrize(
    ("changes", "used", "terms"),
    [
        pytest.param({}, USED, Sums(REQUEST, USED, REQUEST), id="request, use and the larger"),
        pytest.param(
            {}, Use(6_000, GI), Sums(REQUEST, Use(6_000, GI), Use(6_000, 8 * GI)), id="the larger by resource"
        ),
        pytest.param({}, None, Sums(REQUEST, REQUEST, REQUEST), id="without a sample the request stands in"),
        pytest.param(
            {"raw_qos": QoSClass.LSE}, USED, Sums(REQUEST, Use(4_000, 3 * GI), REQUEST), id="idle LSE CPUs are not free"
        ),
        pytest.param({"raw_qos": QoSClass.BE}, USED, Sums(), id="batch pods are not protected"),
        pytest.param({"priority": 3500}, USED, Sums(), id="free pods neither"),
        pytest.param({"priority": 7500}, USED, Sums(REQUEST, USED, REQUEST), id="mid pods are"),
        pytest.param({"phase": "Pending"}, None, Sums(REQUEST, REQUEST, REQUEST), id="pending pods count"),
        pytest.param({"phase": "Succeeded"}, None, Sums(), id="finished pods do not"),
        pytest.param({"phase": "Failed"}, USED, Sums(hp_used=USED, hp_max_used_request=USED), id="but what they used"),
    ],
)
def test_terms_of_one_pod(changes: dict[str, object], used: Use | None, terms: Sums) -> None:
    assert allocatable.pod_terms(pod=pod(**changes), used=used) == terms


def test_use_of_an_unknown_pod_is_charged() -> None:
    found = allocatable.pod_sums(pods=[pod()], usage={"u1": USED, "gone": Use(500, GI)})
    assert found.hp_used == Use(1_500, 4 * GI)
    assert found.hp_request == REQUEST


@pytest.mark.parametrize(
    ("priority", "counted"),
    [(PriorityClass.PROD, 700), (PriorityClass.MID, 700), (PriorityClass.NONE, 700), (PriorityClass.BATCH, 0)],
)
def test_host_applications_count_unless_batch(priority: PriorityClass, counted: int) -> None:
    apps = [HostApplication(name="logs", priority=priority), HostApplication(name="not-measured")]
    assert allocatable.host_app_use(applications=apps, usage={"logs": Use(700, 0)}).cpu == counted


@pytest.mark.parametrize(
    ("age", "too_old"), [(None, True), (0.0, False), (900.0, False), (900.1, True)], ids=["never", "new", "edge", "old"]
)
def test_degraded_after_fifteen_minutes(age: float | None, too_old: bool) -> None:
    assert allocatable.degraded(age_seconds=age, degrade_minutes=15) is too_old


@pytest.mark.parametrize(
    ("old", "new", "since", "reason"),
    [
        pytest.param(1000, 1100, 10, "", id="exactly the threshold is no reason"),
        pytest.param(1000, 1101, 10, "more than 0.1", id="above it is"),
        pytest.param(1000, 899, 10, "more than 0.1", id="also downwards"),
        pytest.param(0, 1, 10, "more than 0.1", id="any change from zero"),
        pytest.param(None, None, 10, "", id="absent stays absent"),
        pytest.param(None, 0, 10, "appears", id="a key that appears"),
        pytest.param(0, None, 10, "goes away", id="a key that goes away"),
        pytest.param(1000, 1000, 300, "", id="exactly the interval is no reason"),
        pytest.param(1000, 1000, 301, "301 s ago", id="above it is"),
        pytest.param(1000, 1000, None, "not written yet", id="the first time"),
    ],
)
def test_must_sync(old: int | None, new: int | None, since: float | None, reason: str) -> None:
    found = allocatable.must_sync(old=old, new=new, threshold=0.1, since_last_seconds=since, update_seconds=300)
    assert reason in found
    assert bool(reason) == bool(found)


AMOUNT = st.integers(0, 10**15)
USE = st.builds(Use, AMOUNT, AMOUNT)
COLOCATION = st.builds(
    Colocation,
    cpu_reclaim_threshold_percent=st.integers(0, 100),
    cpu_calculate_policy=st.sampled_from(["usage", "maxUsageRequest"]),
    memory_reclaim_threshold_percent=st.integers(0, 100),
    memory_calculate_policy=st.sampled_from(["usage", "request", "maxUsageRequest"]),
    batch_cpu_threshold_percent=st.none() | st.integers(0, 100),
)


@given(capacity=USE, colocation=COLOCATION, used=USE, more=USE, others=st.tuples(USE, USE))
def test_more_use_never_promises_more(capacity, colocation, used, more, others) -> None:
    system, reserved = others

    def promised(extra: Use) -> list[int]:
        use = Use(used.cpu + extra.cpu, used.memory + extra.memory)
        terms = allocatable.batch(
            capacity=capacity,
            colocation=colocation,
            sums=Sums(use, use, use),
            system=system,
            host_apps=allocatable.NOTHING,
            reserved=reserved,
        )
        return [term.result for term in terms]

    before, after = promised(allocatable.NOTHING), promised(more)
    assert all(0 <= late <= early for late, early in zip(after, before, strict=True))
    assert before[0] <= capacity.cpu
    assert before[1] <= capacity.memory
