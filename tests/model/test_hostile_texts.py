"""Readers of outside text and texts that are long or deep; `tests/fuzz` looks for others."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from koordlite.formulas.allocatable import node_room
from koordlite.model import duration, keys, node, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture import node_notes
from koordlite.model.pod import pod_reader, qos
from koordlite.model.quantity import Quantity
from koordlite.model.slo import config as slo_config

LABELS = {"pool": "batch"}


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
