"""Annotations of the Node about its resources."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model import keys
from koordlite.model.errors import InputError, Problem
from koordlite.model.node import Node
from koordlite.model.picture import node_notes
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.quantity import Quantity

CPU = keys.BATCH_CPU


def allocations(*items: dict[str, object]) -> str:
    return json.dumps({"allocations": list(items)})


def yarn(amount: object, priority: str = "koord-batch") -> dict[str, object]:
    return {"name": "hadoop-yarn", "priority": priority, "resources": {CPU: amount}}


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"allocations":{}}', allocations(yarn("much")), allocations(yarn(True)), '{"allocations":[1]}']
)
def test_what_cannot_be_read_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(InputError) as caught:
        node_notes.parse_third_party(text, "node/n")
    problem = caught.value.problems[0]
    assert problem.object == "node/n"
    assert problem.field.startswith(keys.THIRD_PARTY_ALLOCATIONS)


@pytest.mark.parametrize(("text", "ratio"), [("", None), ("1.20", 1.2), ("1e0", 1.0), (".5", 0.5)])
def test_what_cpus_are_worth(text: str, ratio: float | None) -> None:
    assert node_notes.parse_normalization(text, "node/n") == ratio


@pytest.mark.parametrize("text", ["invalid", "NaN", "Inf", "1,2", " 1.2", "1.2\n", "1e999"])
def test_a_worth_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a number"):
        node_notes.parse_normalization(text, "node/n")


@pytest.mark.parametrize("text", ["0", "0.0", "-1", "-0.5"])
def test_a_worth_of_nothing_or_less_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not above 0"):
        node_notes.parse_normalization(text, "node/n")


def test_kubelets_allocatable_is_what_stood_there_before_amplification() -> None:
    node = Node(name="n", allocatable={"cpu": Quantity.of(64), "pods": Quantity.of(110)})
    notes = NodeNotes(raw_allocatable=node_notes.parse_raw_allocatable('{"cpu":"32"}', "node/n"))
    assert notes.kubelet_allocatable(node) == {"cpu": Quantity.of(32), "pods": Quantity.of(110)}


def test_a_broken_annotation_keeps_its_last_value_and_the_others_are_read() -> None:
    last = NodeNotes(third_party={CPU: Quantity.of(7)}, cpu_normalization=1.5)
    problems: list[Problem] = []
    found = node_notes.parse(
        {keys.THIRD_PARTY_ALLOCATIONS: "{", keys.RAW_ALLOCATABLE: '{"cpu":2}'}, "node/n", last=last, problems=problems
    )
    assert found == NodeNotes(last.third_party, {"cpu": Quantity.of(2)}, None)
    assert [problem.field for problem in problems] == [keys.THIRD_PARTY_ALLOCATIONS]


@pytest.mark.parametrize(
    ("cpu", "memory", "text"),
    [
        (50_000, 120 * 2**30, '"50k","kubernetes.io/batch-memory":"120Gi"'),
        (None, None, '"0","kubernetes.io/batch-memory":"0"'),
    ],
)
def test_the_origin_is_printed_canonically(cpu: int | None, memory: int | None, text: str) -> None:
    found = node_notes.encode_origin({keys.BATCH_CPU: cpu, keys.BATCH_MEMORY: memory})
    assert found == f'{{"resources":{{"kubernetes.io/batch-cpu":{text}}}}}'


@given(
    text=st.text(max_size=40) | st.recursive(st.none() | st.text(max_size=5) | st.integers(), st.lists).map(json.dumps)
)
def test_no_text_leads_to_another_error(text: str) -> None:
    for parse in (node_notes.parse_third_party, node_notes.parse_raw_allocatable, node_notes.parse_normalization):
        try:
            parse(text, "node/n")
        except InputError as error:
            assert error.problems
