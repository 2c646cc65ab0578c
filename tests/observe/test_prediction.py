"""What is learnt of pods: samples lose weight, checkpoints survive a restart, and memory is bounded."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable.histogram import CPU, MEMORY
from koordlite.host import kept_file
from koordlite.model import times
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.wire.objects import ObjectMeta, PodObject
from koordlite.observe import prediction as learning
from koordlite.observe.prediction import SPAN, Histogram, Predictor
from koordlite.strategies.mid_allocatable import Config

DAY = 86_400.0
LEARNING = Config(
    cpu_half_life_seconds=DAY / 2, memory_half_life_seconds=DAY, cold_start_seconds=3600.0, safety_margin_percent=10
)
GIB = 1 << 30


def add(histogram: Histogram, value: float, wall: float) -> None:
    histogram.add(value, wall, buckets=CPU, half_life=DAY / 2)


def test_newer_samples_weigh_more() -> None:
    """Eight samples of 8 cores four half-lives ago weigh as much as half a sample of 1 core today."""
    histogram = Histogram()
    for _ in range(8):
        add(histogram, 8.0, 0.0)
    add(histogram, 1.0, 2 * DAY)
    assert histogram.percentile(0.6, buckets=CPU) == pytest.approx(1.0, rel=0.06)
    assert histogram.percentile(0.7, buckets=CPU) == pytest.approx(8.0, rel=0.06)


def test_what_is_long_ago_is_forgotten() -> None:
    histogram = Histogram()
    add(histogram, 16.0, 0.0)
    for hour in range(24 * 20):
        add(histogram, 1.0, hour * 3600.0)
    assert histogram.percentile(1.0, buckets=CPU) == pytest.approx(1.0, rel=0.06)


@given(st.lists(st.tuples(st.floats(0, 3000), st.floats(0, 10 * DAY)), min_size=1, max_size=60))
def test_a_peak_is_never_too_low_and_little_too_high(samples: list[tuple[float, float]]) -> None:
    histogram = Histogram()
    for value, wall in sorted(samples, key=lambda sample: sample[1]):
        add(histogram, value, wall)
    newest = max(wall for _, wall in samples)
    weights = [(value, 2.0 ** ((wall - newest) / (DAY / 2))) for value, wall in samples]
    whole, held = sum(weight for _, weight in weights), 0.0
    least = 0.0
    for value, weight in sorted(weights):
        held, least = held + weight, min(value, CPU.start(CPU.count - 1))
        if held >= 0.9501 * whole:
            break
    assert histogram.percentile(0.951, buckets=CPU) >= least * (1 - 1e-6)


def test_a_model_takes_less_than_a_kibibyte() -> None:
    cpu, memory = Histogram(), Histogram()
    for power in range(40):
        cpu.add(0.01 * 1.5**power, 0.0, buckets=CPU, half_life=DAY)
        memory.add(1e6 * 1.7**power, 0.0, buckets=MEMORY, half_life=DAY)
    model = learning._Model(0.0, cpu, memory)
    parts = (model, cpu, memory, cpu._weights, memory._weights, model.peak)
    assert len(cpu._weights) <= SPAN
    assert sum(map(sys.getsizeof, parts)) <= 1024


@given(st.binary(max_size=400), st.integers(-5, 300), st.floats(allow_nan=True))
def test_no_bytes_of_a_checkpoint_break_it(weights: bytes, low: int, reference: float) -> None:
    from koordlite.observe.prediction import StoredHistogram

    try:
        histogram = Histogram.of(StoredHistogram(low, reference, weights), CPU)
    except ValueError:
        return
    assert 0 <= histogram.percentile(0.95, buckets=CPU) <= CPU.start(CPU.count - 1)


def pods(count: int) -> tuple[Pod, ...]:
    return tuple(Pod(namespace="n", name=f"p{i}", uid=f"u{i}", raw_qos=QoSClass.LS) for i in range(count))


def usage(count: int, cpu: int = 1000) -> Usage:
    return Usage(Use(count * cpu + 500, 8 * GIB), {f"u{i}": Use(cpu, GIB) for i in range(count)}, {})


def run(predictor: Predictor, begin: float, seconds: int, count: int = 3, **more: Any) -> Any:
    made = listed(more.pop("created", dict.fromkeys((f"u{i}" for i in range(count)), -DAY)))
    found = None
    for second in range(0, seconds, 20):
        found = predictor.read(pods(count), made, usage(count, **more), wall=begin + second)
    return found


def listed(created: dict[str, float | None]) -> tuple[PodObject, ...]:
    """Pods as the cluster has them, by uid, with the times at which they were made."""
    shown = {uid: None if at is None else times.show(at) for uid, at in created.items()}
    return tuple(PodObject(metadata=ObjectMeta(uid=uid, creation_timestamp=text)) for uid, text in shown.items())


def test_pods_and_node_are_predicted_when_they_are_known_for_long_enough() -> None:
    predictor = Predictor(LEARNING, None)
    early = run(predictor, 1e6, 3600)
    assert (early.pods, early.prod, early.system) == ({}, None, None)
    found = run(predictor, 1e6 + 3600, 120)
    assert found.pods.keys() == {"u0", "u1", "u2"}
    assert 1000 <= found.pods["u0"].cpu <= 1050
    assert 3000 <= found.prod.cpu <= 3160
    assert 500 <= found.system.cpu <= 560
    assert GIB <= found.pods["u0"].memory <= GIB * 1.05


def test_a_young_pod_is_not_predicted() -> None:
    predictor = Predictor(LEARNING, None)
    created = {"u0": -DAY, "u1": 1e6 + 3000.0, "u2": None}
    assert run(predictor, 1e6, 3800, created=created).pods.keys() == {"u0"}


def test_what_was_learnt_survives_a_restart(tmp_path: pathlib.Path) -> None:
    predictor = Predictor(LEARNING, tmp_path)
    before = run(predictor, 1e6, 5000)
    thread = predictor._writing
    assert thread is not None
    thread.join()
    again = run(Predictor(LEARNING, tmp_path), 1e6 + 5000, 20, cpu=1)
    assert again.pods["u0"].cpu == before.pods["u0"].cpu
    assert again.prod == before.prod


@pytest.mark.parametrize("content", [b"{", b'{"models":{"u0":{"first":0}}}', b"[]"])
def test_a_checkpoint_that_cannot_be_read_is_told_and_learning_begins(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / kept_file.PREDICTIONS).write_bytes(content)
    predictor = Predictor(LEARNING, tmp_path)
    (problem,) = predictor.problems
    assert problem.object.endswith(kept_file.PREDICTIONS)
    assert run(predictor, 1e6, 60).pods == {}


def test_pods_that_are_gone_are_forgotten() -> None:
    predictor = Predictor(LEARNING, None)
    run(predictor, 1e6, 200, count=5)
    run(predictor, 1e6 + 200, 2400, count=2)
    assert len(predictor._models) == 4


def test_a_full_node_is_sampled_in_turns() -> None:
    """250 pods within a minute, and never many in one tick."""
    predictor, made = Predictor(LEARNING, None), listed(dict.fromkeys((f"u{i}" for i in range(250)), -DAY))
    there, used = pods(250), usage(250)
    counts = []
    for second in range(60):
        before = len(predictor._models)
        predictor.read(there, made, used, wall=1e6 + second)
        counts.append(len(predictor._models) - before)
    assert sum(counts) == 252
    assert max(counts) <= 12
