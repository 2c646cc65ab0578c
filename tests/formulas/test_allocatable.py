"""What a node promises to best-effort pods."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import allocatable
from koordlite.formulas.allocatable.allocatable import Sums
from koordlite.model.node import Node
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.picture.usage import Use
from koordlite.model.pod.qos import KubeQoS, PriorityClass, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import Colocation, HostApplication

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
    colocation = msgspec.structs.replace(
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


def test_the_system_has_what_nobody_else_used() -> None:
    found = allocatable.system_use(node=Use(9_000, 9), pods=[Use(5_000, 4), Use(1_000, 6)], host_apps=[Use(500, 0)])
    assert found == Use(2_500, 0), "and never less than nothing"


def test_kubelets_part_is_counted_before_amplification() -> None:
    amounts = {"cpu": Quantity.of(32), "memory": Quantity.of(64)}
    amplified = Node(name="n", capacity=amounts, allocatable={"cpu": Quantity.of(45), "memory": Quantity.of(60)})
    raw = NodeNotes(raw_allocatable={"cpu": Quantity.of(30)})
    annotated = {"memory": Quantity.of(2)}
    assert allocatable.reserved_use(node=amplified, notes=raw, reserved=annotated) == Use(2_000, 4)
    assert allocatable.reserved_use(node=amplified, notes=NodeNotes(), reserved=annotated) == Use(0, 4)


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
