"""A hundred thousand broken, odd and hostile texts: every reader of outside text answers, or refuses in its words."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import slices

from koordlite.formulas.allocatable import node_room
from koordlite.model import duration, keys, node, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture import node_notes
from koordlite.model.pod import pod_reader, qos
from koordlite.model.quantity import Quantity
from koordlite.model.slo import config as slo_config

INPUTS = 100_000
BATCHES = 10
LABELS = {"pool": "batch"}

WHOLE = [
    '{"resources":{"cpu":"2500m","memory":"2Gi"},"reservedCPUs":"0-3,8","applyPolicy":"Default"}',
    '{"cpuset":"0-1","cpusetExclusive":true}',
    '{"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":"2","kubernetes.io/batch-cpu":"2000"}}]}',
    '{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Required"}',
    '{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}',
    '{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":10000}}]}',
    '[{"socket":0,"node":0,"cpuset":"0-3"},{"socket":1,"node":1}]',
    '{"observedAt":"2026-01-01T00:00:00Z","generation":3,"containers":[{"namespace":"a","pod":"b","uid":"c",'
    '"container":"d","cpuset":"0-3","cpusByNUMA":{"0":"0-3"},"memoryByNUMA":{"0":5}}]}',
    '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0"}',
    '{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}',
    '{"enable":true,"cpuReclaimThresholdPercent":70,"metricAggregatePolicy":{"durations":["5m","1h"]},'
    '"nodeConfigs":[{"name":"a","nodeSelector":{"matchLabels":{"pool":"batch"}},"resourceDiffThreshold":0.2}]}',
    '{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":65},"nodeStrategies":[{"nodeSelector":'
    '{"matchExpressions":[{"key":"pool","operator":"In","values":["batch"]}]},"cpuSuppressPolicy":"cfsQuota"}]}',
    '{"clusterStrategy":{"beClass":{"resctrlQOS":{"enable":true,"catRangeEndPercent":30},"blkioQOS":{"blocks":'
    '[{"name":"vda","type":"device","ioCfg":{"readIOPS":5}}]},"networkQOS":{"egressLimit":"50M"}}}}',
    '{"applications":[{"name":"a","qos":"LS","cgroupPath":{"base":"Kubepods","relativePath":"x/../y"}}]}',
    '{"enable":true,"ratioModel":{"X":{"baseRatio":1.5}},"resourceAmplificationRatio":{"cpu":1.1}}',
    "0-3,8-11",
    "1.5Gi",
    "1h30m",
    "0.65",
]
ATOMS = [
    *("null", "true", "1e999", "-1", "9" * 30, '""', "{}", "[]", '"\\ud800"', '"\\u0000"', "NaN", "0x1p4", "1_0"),
    *("{", "}", "[", "]", ",", ":", '"', "\\", "-", "e", ".", " ", "\n", "\x00", "é", "\ud800", "K", "ſ", "０"),
    *("0-4096,", "2147483648", "4097-4098", "3-1", "Ki", "µs", "[" * 300, '{"a":' * 300),
]
NAMES = ["ENABLE", "Resources", "nodeSelector", "clusterstrategy", "reservedCPUs", "cpu", "x" * 100, "", "\x1b[31m"]


def mutated(rng: random.Random, text: str) -> str:
    """`text` with a few pieces cut out, doubled, swapped or replaced."""
    for _ in range(rng.randrange(1, 4)):
        at, size = rng.randrange(len(text) + 1), rng.randrange(6)
        piece = rng.choice((rng.choice(ATOMS), rng.choice(NAMES), text[at : at + rng.randrange(12)], ""))
        text = text[:at] + piece + text[at + size :]
    return text


def grown(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value of its own."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind < 6:
        leaves = (
            None,
            rng.random() < 0.5,
            rng.randrange(-2, 200),
            rng.random() * 3,
            rng.choice(ATOMS),
            rng.choice(NAMES),
        )
        return leaves[kind]
    if kind == 6:
        return [grown(rng, depth + 1) for _ in range(rng.randrange(3))]
    known = [name for text in WHOLE[:15] for name in _names(json.loads(text))]
    return {rng.choice(known if rng.random() < 0.8 else NAMES): grown(rng, depth + 1) for _ in range(rng.randrange(5))}


def _names(value: Any) -> Iterator[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield from value if isinstance(value, dict) else ()
    yield from itertools.chain.from_iterable(map(_names, inner))


def config(key: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        held = slo_config.effective({key: text}, labels=LABELS, annotations={})
        return [str(problem).encode() for problem in held.problems]

    return read


def metadata(label: str | None, annotation: str | None) -> Callable[[str], object]:
    def read(text: str) -> object:
        labels, notes = ({label: text} if label else {}), ({annotation: text} if annotation else {})
        held = slo_config.effective({}, labels=labels, annotations=notes)
        assert held.colocation.degrade_time_minutes > 0
        return held

    return read


READERS: list[tuple[Callable[[str], object], tuple[type[Exception], ...]]] = [
    (lambda text: node.parse_reservation(text, "node/n"), (InputError,)),
    (lambda text: node.parse_system_qos(text, "node/n"), (InputError,)),
    (lambda text: node_notes.parse_third_party(text, "node/n"), (InputError,)),
    (lambda text: node_notes.parse_raw_allocatable(text, "node/n"), (InputError,)),
    (lambda text: node_notes.parse_normalization(text, "node/n"), (InputError,)),
    (lambda text: nrt.decode_placement(text, "nrt/n"), (InputError,)),
    (lambda text: nrt.decode_pools(text, "nrt/n"), (InputError,)),
    (lambda text: nrt.decode_cpu_topology(text, "nrt/n"), (InputError,)),
    (lambda text: node_room.amplification({keys.AMPLIFICATION_RATIO: text}), ()),
    (pod_reader.parse_resource_status, (ValueError,)),
    (lambda text: pod_reader.parse_resource_spec(text, "pod/a/b", []), ()),
    (qos.sub_priority, (ValueError,)),
    (CPUSet.parse, (ValueError,)),
    (Quantity.parse, (ValueError,)),
    (duration.parse, (ValueError,)),
    *((config(section.key), ()) for section in slo_config.SECTIONS),
    (metadata(None, keys.COLOCATION_STRATEGY), ()),
    (metadata(None, keys.NETWORK_BANDWIDTH), ()),
    (metadata(keys.CPU_RECLAIM_RATIO, None), ()),
    (metadata(keys.CPU_NORMALIZATION_ENABLED, None), ()),
]


@pytest.mark.parametrize("batch", slices.first(range(BATCHES), 2))
def test_a_text_is_read_or_refused_and_nothing_else(batch: int) -> None:
    rng = random.Random(batch)
    for count in range(INPUTS // BATCHES):
        read, refusals = READERS[count % len(READERS)]
        text = mutated(rng, rng.choice(WHOLE)) if rng.random() < 0.8 else json.dumps(grown(rng), allow_nan=True)
        try:
            read(text)
        except refusals as refusal:
            assert str(refusal)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 200_000, id="deep lists"),
        pytest.param('{"a":' * 200_000, id="deep objects"),
        pytest.param("9" * 250_000, id="a long number"),
        pytest.param(",".join(f"{i % 4000}-4096" for i in range(37_000)), id="overlapping ranges"),
        pytest.param(json.dumps({f"n{i}": i for i in range(40_000)}), id="many unknown names"),
        pytest.param('{"nodeStrategies":[' + ",".join(['{"x":1}'] * 40_000) + "]}", id="many groups"),
        pytest.param('"' + "a" * 250_000 + '"', id="a long text"),
        pytest.param("1" + "0" * 200_000 + "h", id="a long duration"),
        pytest.param('{"cpuset":"' + "0-4096," * 35_000 + '0"}', id="ranges in an annotation"),
    ],
)
def test_a_hostile_text_is_not_read_for_long(text: str) -> None:
    for read, refusals in READERS:
        try:
            read(text)
        except refusals as refusal:
            assert str(refusal)
