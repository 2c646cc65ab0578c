"""Settings declared by dataclasses: names, merging, printing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.quantity import Quantity
from koordlite.model.reading import declared
from koordlite.model.reading.declared import JSONDocument
from koordlite.model.slo.qos import ResourceQOS
from koordlite.model.slo.settings import (
    Colocation,
    CPUBurst,
    CPUNormalization,
    ResourceAmplification,
    System,
    Threshold,
)

SHAPES = (Colocation, Threshold, CPUBurst, System, CPUNormalization, ResourceAmplification, ResourceQOS)


def values(shape: type, text: str) -> declared.Values:
    document = JSONDocument("configmap/x", "doc", "the last one stays")
    return declared.read_text(document, shape, text)[0]


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("batch_cpu_threshold_percent", "batchCPUThresholdPercent"),
        ("cpu_evict_be_usage_threshold_percent", "cpuEvictBEUsageThresholdPercent"),
        ("net_qos_policy", "netQOSPolicy"),
        ("model_read_seq_iops", "modelReadSeqIOPS"),
        ("reserved_cpus", "reservedCPUs"),
        ("oom_kill_group", "oomKillGroup"),
    ],
)
def test_names(attribute: str, name: str) -> None:
    assert declared.camel(attribute) == name


LEAVES = st.one_of(
    st.integers(-3, 120),
    st.booleans(),
    st.sampled_from(["", "5m", "10G", "auto", "static"]),
    st.none(),
    st.floats(0, 2),
)
NAMES = st.sampled_from(
    [name for shape in SHAPES for name in declared.settings(shape)] + ["cpuQOS", "enable", "blocks"]
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=10
)
OBJECTS = st.dictionaries(NAMES, TREES, max_size=6).map(json.dumps)


@given(shape=st.sampled_from(SHAPES), low=OBJECTS, high=OBJECTS, top=OBJECTS)
def test_layers_may_be_laid_one_by_one_or_together(shape: Any, low: str, high: str, top: str) -> None:
    a, b, c = (values(shape, text) for text in (low, high, top))
    assert declared.build(declared.build(declared.build(shape(), a), b), c) == declared.build(shape(), a | b | c)
    assert (a | b) | c == a | (b | c)


@given(shape=st.sampled_from(SHAPES), text=OBJECTS)
def test_what_is_printed_is_read_back(shape: Any, text: str) -> None:
    held = declared.build(shape(), values(shape, text))
    printed = json.dumps(declared.plain(held))
    assert declared.build(shape(), values(shape, printed)) == held


def test_maps_are_merged_by_name_and_lists_replaced() -> None:
    low = values(CPUNormalization, '{"ratioModel":{"A":{"baseRatio":1.1,"turboEnabledRatio":1.2},"B":{"baseRatio":2}}}')
    high = values(CPUNormalization, '{"ratioModel":{"A":{"baseRatio":1.5}}}')
    held = declared.build(CPUNormalization(), low | high)
    assert (held.ratio_model["A"].base_ratio, held.ratio_model["A"].turbo_enabled_ratio) == (1.5, None)
    assert held.ratio_model["B"].base_ratio == 2


@pytest.mark.parametrize(
    ("shape", "text", "path", "value"),
    [
        (System, '{"totalNetworkBandwidth":"10G"}', ("totalNetworkBandwidth",), Quantity.parse("10G")),
        (System, '{"totalNetworkBandwidth":5}', ("totalNetworkBandwidth",), Quantity.parse("5")),
        (System, '{"schedFeatures":{"X":false,"Y":null}}', ("schedFeatures", "X"), False),
        (Colocation, '{"extensions":{"x":{"y":[1]}}}', ("extensions", "x"), {"y": [1]}),
        (
            Colocation,
            '{"metricAggregatePolicy":{"durations":["90s"]}}',
            ("metricAggregatePolicy", "durations"),
            (90e9,),
        ),
    ],
)
def test_values_by_path(shape: type, text: str, path: declared.Path, value: Any) -> None:
    assert values(shape, text) == {path: value}


@pytest.mark.parametrize(
    ("shape", "text", "told"),
    [
        (System, '{"totalNetworkBandwidth":"10 G"}', "totalNetworkBandwidth: '10 G' is not a quantity"),
        (System, '{"totalNetworkBandwidth":true}', "where a quantity like 10G is needed"),
        (Colocation, '{"metricAggregatePolicy":{"durations":[300]}}', "durations[0]: a number where a duration"),
        (Colocation, '{"metricAggregatePolicy":{"durations":["5 min"]}}', "durations[0]: '5 min' is not a duration"),
        (ResourceQOS, '{"beClass":{"networkQOS":{"egressLimit":1.5}}}', "where a whole number or text is needed"),
        (ResourceQOS, '{"beClass":{"networkQOS":{"egressLimit":"fast"}}}', "'fast' is not a quantity"),
        (ResourceQOS, '{"beClass":{"networkQOS":{"egressLimit":101}}}', "not within 0 to 100"),
        (ResourceQOS, '{"beClass":{"blkioQOS":{"blocks":[{"ioCfg":{"readIOPS":"1"}}]}}}', "blocks[0].ioCfg.readIOPS"),
        (
            Threshold,
            '{"enable":1,"cpuSuppressMinPercent":-1}',
            "enable: a number where true or false is needed; cpuSup",
        ),
    ],
)
def test_mistakes_are_reported_with_their_path(shape: type, text: str, told: str) -> None:
    with pytest.raises(ValueError) as raised:
        declared.decode(shape, text)
    assert told in str(raised.value)


def test_a_pair_is_crossed_only_when_both_ends_are_set() -> None:
    assert not list(declared.crossed(Threshold(cpu_evict_lower_percent=90)))
    (told,) = declared.crossed(Threshold(memory_evict_lower_percent=80))
    assert told == ("", "memoryEvictLowerPercent (80) is not below memoryEvictThresholdPercent (70)")
