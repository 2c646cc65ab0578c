"""What a node promises to pods of priority mid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import mid
from koordlite.model.picture.usage import Use
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import Colocation

GI = 2**30


def pod(priority: int | None, qos: QoSClass = QoSClass.LS, phase: str = "Running") -> Pod:
    asked = {"cpu": Quantity.of(2), "memory": Quantity.of(GI)}
    kube = KubeQoS.BURSTABLE
    return Pod(
        namespace="n", name="p", uid="u", raw_qos=qos, kube_qos=kube, priority=priority, requests=asked, phase=phase
    )


@pytest.mark.parametrize(
    ("one", "milli"),
    [
        pytest.param(pod(9000), 2000, id="prod"),
        pytest.param(pod(None), 2000, id="prod by default"),
        pytest.param(pod(9000, phase="Pending"), 2000, id="pending"),
        pytest.param(pod(9000, phase="Succeeded"), 0, id="finished"),
        pytest.param(pod(7500), 0, id="mid"),
        pytest.param(pod(5500, QoSClass.BE), 0, id="batch"),
        pytest.param(pod(3500), 0, id="free"),
    ],
)
def test_whose_requests_count(one: Pod, milli: int) -> None:
    assert mid.prod_requests([one]).cpu == milli


AMOUNT = st.integers(0, 10**15)
USE = st.builds(Use, AMOUNT, AMOUNT)
COLOCATION = st.builds(
    Colocation,
    mid_reclaim_mode=st.sampled_from(["", "static"]),
    mid_cpu_threshold_percent=st.integers(0, 100),
    mid_memory_threshold_percent=st.integers(0, 100),
    mid_unallocated_percent=st.integers(0, 100),
    mid_static_cpu_reserved_percent=st.integers(0, 100),
)


@given(capacity=USE, colocation=COLOCATION, used=USE, more=USE, others=st.tuples(USE, USE, USE))
def test_more_use_never_promises_more(
    capacity: Use, colocation: Colocation, used: Use, more: Use, others: tuple[Use, Use, Use]
) -> None:
    reclaimable, kept, requested = others

    def promised(extra: Use) -> list[int]:
        both = [
            mid.mid(
                capacity=capacity,
                colocation=colocation,
                reclaimable=reclaimable,
                used=Use(used.cpu + extra.cpu, used.memory + extra.memory),
                reserved=Use(kept.cpu + extra.cpu, kept.memory + extra.memory),
                requested=requested,
            )
        ]
        return [terms.result for pair in both for terms in pair]

    before, after = promised(Use(0, 0)), promised(more)
    assert all(0 <= late <= early for late, early in zip(after, before, strict=True))
    assert before[0] <= capacity.cpu
    assert before[1] <= capacity.memory
