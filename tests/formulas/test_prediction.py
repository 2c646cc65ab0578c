"""Peaks by histograms, and what prod pods leave of their requests."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import histogram, prediction
from koordlite.formulas.allocatable.histogram import CPU, MEMORY
from koordlite.model.picture.usage import Prediction, Use
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity

GIB = 1 << 30


def test_the_buckets_are_koordinators() -> None:
    """ceil(log1.05(1024 × 0.05 / 0.025 + 1)) + 1, and ceil(log1.05(2^41 × 0.05 / (5 << 20) + 1)) + 1."""
    assert (CPU.count, MEMORY.count) == (158, 205)
    assert CPU.start(1) == pytest.approx(0.025)
    assert CPU.start(2) == pytest.approx(0.025 + 0.025 * 1.05)


@given(st.floats(0, 2000))
def test_a_value_lies_in_its_bucket(value: float) -> None:
    bucket = CPU.find(value)
    assert CPU.start(bucket) <= value * (1 + 1e-9) + 1e-12
    assert bucket == CPU.count - 1 or value < CPU.start(bucket + 1) * (1 + 1e-9)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 100), st.floats(0.01, 1))
def test_a_percentile_is_the_end_of_its_bucket(weights: list[int], low: int, part: float) -> None:
    found = CPU.percentile(weights, low, part)
    if not sum(weights):
        assert found == 0
        return
    ends = [CPU.start(min(low + index + 1, CPU.count - 1)) for index in range(len(weights))]
    within = sum(weight for weight, end in zip(weights, ends, strict=True) if end <= found * (1 + 1e-12))
    assert within >= part * sum(weights) - 1e-9
    assert any(math.isclose(found, end) for end in ends)


def pod(name: str, cpu: int, gib: int, qos: QoSClass = QoSClass.LS, **more: Any) -> Pod:
    requests = {"cpu": Quantity.of_milli(cpu), "memory": Quantity.of(gib * GIB)}
    return Pod(namespace="ns", name=name, uid=name, raw_qos=qos, requests=requests, **more)


SEEN = Prediction(
    pods={"a": Use(1000, GIB), "b": Use(3000, GIB)},
    prod=Use(3500, 2 * GIB),
    system=Use(500, GIB),
    known_seconds=90_000.0,
    margin_percent=10,
)
PODS = (pod("a", 4000, 8), pod("b", 3000, 4), pod("new", 2000, 2), pod("x", 9000, 9, QoSClass.BE))
OFFERED = Use(16_000, 32 * GIB)


def test_both_predictors_and_the_smaller_result() -> None:
    found = prediction.reclaimable(prediction=SEEN, pods=PODS, offered=OFFERED)
    assert found is not None
    # a: 4000 − 1100; b: 3300 is more than it requested, so nothing; new: not known for long enough.
    assert found.by_pod.reclaimable.cpu == 2900
    assert found.by_pod.peak.cpu == 1100 + 3300 + 2000
    # 9000 requested by prod − (3500 + 500) × 1.1
    assert found.by_priority.reclaimable.cpu == 9000 - 4400
    assert found.least.cpu == 2900
    assert found.peak.cpu == 6400
    assert found.by_priority.reclaimable.memory == 14 * GIB - int(3 * GIB * 1.1)


def test_no_more_is_offered_than_the_node_has_beside_the_peaks() -> None:
    found = prediction.reclaimable(prediction=SEEN, pods=PODS, offered=Use(5000, 32 * GIB))
    assert found is not None
    assert (found.by_pod.reclaimable.cpu, found.by_priority.reclaimable.cpu) == (600, 600)


@pytest.mark.parametrize("gone", ["prod", "system", "all"])
def test_too_little_known_is_no_answer(gone: str) -> None:
    seen = None if gone == "all" else msgspec.structs.replace(SEEN, **{gone: None})
    assert prediction.reclaimable(prediction=seen, pods=PODS, offered=OFFERED) is None


def test_a_pod_that_leaves_gives_nothing() -> None:
    leaving = (msgspec.structs.replace(PODS[0], deleting=True), *PODS[1:])
    found = prediction.reclaimable(prediction=SEEN, pods=leaving, offered=OFFERED)
    assert found is not None
    assert found.by_pod.reclaimable.cpu == 0


@given(st.integers(0, 20_000), st.integers(0, 40), st.integers(0, 100))
def test_nothing_is_negative_and_nothing_beyond_the_requests(cpu: int, gib: int, margin: int) -> None:
    seen = msgspec.structs.replace(SEEN, prod=Use(cpu, gib * GIB), margin_percent=margin)
    found = prediction.reclaimable(prediction=seen, pods=PODS, offered=OFFERED)
    assert found is not None
    assert 0 <= found.least.cpu <= 9000
    assert 0 <= found.least.memory <= 14 * GIB
    assert histogram.GROWTH == 1.05
