"""Nodes off the wire, and their annotations."""

from __future__ import annotations

import msgspec
import pytest

from koordlite.model import keys, node
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects


def test_sizes_and_bad_sizes() -> None:
    text = b'{"metadata":{"name":"n1"},"status":{"capacity":{"cpu":"8","memory":"many"},"allocatable":{"cpu":7.5}}}'
    found = node.from_wire(msgspec.json.decode(text, type=objects.NodeObject))
    assert (found.name, found.capacity_milli, found.capacity_memory) == ("n1", 8000, 0)
    assert found.allocatable["cpu"].milli == 7500
    assert [(problem.object, problem.field) for problem in found.problems] == [("node/n1", "status.capacity.memory")]


def test_a_reservation_as_written() -> None:
    found = node.parse_reservation(
        '{"resources":{"cpu":2,"memory":"4Gi"},"reservedCPUs":"3,1-2","applyPolicy":"Default","more":1}', "node/n1"
    )
    assert found == node.Reservation(
        {"cpu": Quantity.of(2), "memory": Quantity.parse("4Gi")},
        CPUSet([1, 2, 3]),
        "Default",
        ("more is an unknown key: it is ignored; remove it",),
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"RESERVEDcpus":"0-1"}', node.Reservation({}, CPUSet([0, 1]))),
        ('{"reservedCPUs":"0-1","reservedCPUs":"2"}', node.Reservation({}, CPUSet([2]))),
        ('{"reservedCPUs":null,"resources":null,"applyPolicy":null}', node.Reservation()),
        ('{"resources":{"cpu":"1","cpu":2}}', node.Reservation({"cpu": Quantity.of(2)})),
    ],
    ids=["case does not matter", "the last of two counts", "null is unset", "also inside"],
)
def test_a_reservation_is_read_as_go_reads_it(text: str, found: node.Reservation) -> None:
    assert node.parse_reservation(text, "node/n1") == found


@pytest.mark.parametrize(
    "text",
    [
        '{"reservedCPUs":',
        '{"resources":{"cpu":"1C"}}',
        '{"reservedCPUs":"-1"}',
        '{"reservedCPUs":"0","applyPolicy":1}',
        "[]",
        "2",
    ],
)
def test_a_reservation_that_cannot_be_read_is_an_error_with_all_it_takes_to_fix_it(text: str) -> None:
    with pytest.raises(InputError) as raised:
        node.parse_reservation(text, "node/n1")
    (problem,) = raised.value.problems
    assert (problem.object, problem.field, problem.value) == ("node/n1", keys.RESERVATION, text)
    assert problem.why
    assert "stays in force" in problem.do


@pytest.mark.parametrize("text", ["{", '{"cpuset":"x"}', '{"cpusetExclusive":"no"}'])
def test_bad_system_qos_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="node/n1"):
        node.parse_system_qos(text, "node/n1")
