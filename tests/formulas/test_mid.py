"""What a node promises to pods of priority mid."""

from __future__ import annotations

import msgspec
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
CAPACITY = Use(64_000, 256 * GI)
USED = Use(40_000, 128 * GI)


def results(used: Use | None = USED, reclaim: int = 10_000, **changes: object) -> tuple[int, int]:
    cpu, memory = mid.mid(
        capacity=CAPACITY,
        colocation=msgspec.structs.replace(Colocation(), **changes),
        reclaimable=Use(reclaim, 16 * GI),
        used=used,
        kept=Use(4_000, 8 * GI),
        requested=Use(30_000, 200 * GI),
    )
    return cpu.result, memory.result // GI


@pytest.mark.parametrize(
    ("changes", "cpu", "memory"),
    [
        pytest.param({}, 10_000, 16, id="what prod pods are predicted not to use"),
        pytest.param({"used": Use(60_000, 250 * GI)}, 4_000, 6, id="never more than is unused"),
        pytest.param({"used": Use(70_000, 300 * GI)}, 0, 0, id="nothing where more is used than there is"),
        pytest.param({"used": None}, 0, 0, id="nothing on a guess"),
        pytest.param({"mid_unallocated_percent": 10}, 13_000, 20, id="a share of what nobody requested on top"),
        pytest.param({"mid_cpu_threshold_percent": 5}, 3_200, 16, id="within the threshold"),
        pytest.param({"mid_memory_threshold_percent": 0}, 10_000, 0, id="a threshold of 0 is one"),
        pytest.param({"mid_reclaim_mode": "Static"}, 10_000, 16, id="any other mode is dynamic"),
        pytest.param(
            {"mid_reclaim_mode": "static", "mid_static_cpu_reserved_percent": 25, "used": None},
            16_000,
            0,
            id="static: a share of the capacity, whatever is used",
        ),
        pytest.param(
            {
                "mid_reclaim_mode": "static",
                "mid_static_memory_reserved_percent": 50,
                "mid_memory_threshold_percent": 25,
            },
            0,
            64,
            id="static: within the threshold",
        ),
        pytest.param({"reclaim": -5_000}, 0, 16, id="a negative prediction is none"),
    ],
)
def test_mid(changes: dict[str, object], cpu: int, memory: int) -> None:
    assert results(**changes) == (cpu, memory)


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


def test_what_is_kept_is_the_larger_of_use_and_reservation() -> None:
    found = mid.kept(system=Use(1_000, 1), host_apps=Use(500, 2), reserved=Use(1_200, 9))
    assert found == Use(1_500, 9)


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
                kept=Use(kept.cpu + extra.cpu, kept.memory + extra.memory),
                requested=requested,
            )
        ]
        return [terms.result for pair in both for terms in pair]

    before, after = promised(Use(0, 0)), promised(more)
    assert all(0 <= late <= early for late, early in zip(after, before, strict=True))
    assert before[0] <= capacity.cpu
    assert before[1] <= capacity.memory
