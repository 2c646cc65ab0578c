"""What a node promises to best-effort pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import allocatable
from koordlite.formulas.allocatable.allocatable import Sums
from koordlite.model.picture.usage import NO_USE, Use
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import Colocation

GI = 1024**3


def pod(**given: object) -> Pod:
    usual = {
        "namespace": "shop",
        "name": "cart",
        "uid": "u1",
        "kube_qos": KubeQoS.BURSTABLE,
        "requests": {"cpu": Quantity.of(4), "memory": Quantity.of(8 * GI)},
    }
    return Pod(**{**usual, **given})  # type: ignore[arg-type]


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
            host_apps=NO_USE,
            reserved=reserved,
        )
        return [term.result for term in terms]

    before, after = promised(NO_USE), promised(more)
    assert all(0 <= late <= early for late, early in zip(after, before, strict=True))
    assert before[0] <= capacity.cpu
    assert before[1] <= capacity.memory
