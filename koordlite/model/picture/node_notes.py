"""Annotations of the Node about its resources: raw allocatable, third parties' share, the worth of its CPUs.

Source: Koordinator `apis/extension`, node resource amplification, CPU normalization and third-party allocations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from koordlite.model import keys
from koordlite.model.errors import InputError, Problem, noting
from koordlite.model.node import Node
from koordlite.model.quantity import Quantity, add_resources
from koordlite.model.reading import declared
from koordlite.model.reading.declared import JSONDocument

T = TypeVar("T")

_BATCH = "koord-batch"
_KEPT = "the last good value stays in force"
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?\Z", re.ASCII)
RATIO_STEP = 0.01
"""A new normalization ratio closer than this to the one in force changes nothing. Source: Koordinator
`ratioDiffEpsilon`."""


class NodeNotes(msgspec.Struct, frozen=True):
    """The annotations as values; without an annotation its value is empty or None."""

    third_party: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """Batch resources that another scheduler (YARN) has handed out, by resource."""
    raw_allocatable: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """cpu and memory of status.allocatable before they were multiplied."""
    cpu_normalization: float | None = None
    """Ratio of a CPU of this node, as the Node publishes it for schedulers."""

    def kubelet_allocatable(self, node: Node) -> Mapping[str, Quantity]:
        """status.allocatable as kubelet wrote it: capacity minus this is what kubelet keeps back."""
        return {**node.allocatable, **self.raw_allocatable}


def parse(annotations: Mapping[str, str], owner: str, *, last: NodeNotes, problems: list[Problem]) -> NodeNotes:
    """The notes in `annotations` of object `owner`; one that cannot be read is reported and keeps its `last` value."""
    third_party, raw_allocatable, ratio = last.third_party, last.raw_allocatable, last.cpu_normalization
    with noting(problems):
        third_party = parse_third_party(annotations.get(keys.THIRD_PARTY_ALLOCATIONS, ""), owner)
    with noting(problems):
        raw_allocatable = parse_raw_allocatable(annotations.get(keys.RAW_ALLOCATABLE, ""), owner)
    with noting(problems):
        ratio = parse_normalization(annotations.get(keys.CPU_NORMALIZATION_RATIO, ""), owner)
    previous = last.cpu_normalization
    if ratio is not None and previous is not None and abs(previous - ratio) < RATIO_STEP:
        ratio = previous
    return NodeNotes(third_party, raw_allocatable, ratio)


def parse_third_party(text: str, owner: str) -> Mapping[str, Quantity]:
    """Σ of the allocations with priority koord-batch, by resource; InputError when the annotation cannot be read."""
    document = JSONDocument(owner, keys.THIRD_PARTY_ALLOCATIONS, _KEPT)
    values = declared.read_text(document, _ThirdParties, text)[0] if text else {}
    total: dict[str, Quantity] = {}
    for allocation in declared.build(_ThirdParties(), values).allocations:
        if allocation.priority == _BATCH:
            add_resources(total, allocation.resources)
    return _unless_broken(document, total)


class _Allocation(msgspec.Struct, frozen=True):
    name: Any = None
    priority: Any = None
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)


class _ThirdParties(msgspec.Struct, frozen=True):
    allocations: tuple[_Allocation, ...] = ()


def parse_raw_allocatable(text: str, owner: str) -> Mapping[str, Quantity]:
    """`{"cpu":"32","memory":"128Gi"}`; InputError when it cannot be read."""
    document = JSONDocument(owner, keys.RAW_ALLOCATABLE, _KEPT)
    amounts: dict[str, Quantity] = {}
    for name, value in document.object(document.decode(text), "", None).items() if text else ():
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError(f"{value!r} is not a quantity")
            amounts[name] = Quantity.parse(value)
        except ValueError as error:
            document.spoil(name, value, str(error))
    return _unless_broken(document, amounts)


def parse_normalization(text: str, owner: str) -> float | None:
    """`1.20`; None for no text. InputError when it is no number above 0."""
    if not text:
        return None
    ratio = float(text) if _NUMBER.match(text) else None
    if ratio is None or ratio <= 0:
        wrong = "not a number" if ratio is None else "not above 0"
        do = f"write a ratio like 1.20; {_KEPT}"
        raise InputError(Problem(owner, keys.CPU_NORMALIZATION_RATIO, text, wrong, do))
    return ratio


def encode_origin(offered: Mapping[str, int | None]) -> str:
    """Text of `keys.ORIGIN_ALLOCATABLE`: batch resources before third parties' share is taken off; 0 for None."""
    cpu, memory = offered.get(keys.BATCH_CPU) or 0, offered.get(keys.BATCH_MEMORY) or 0
    amounts = {keys.BATCH_CPU: Quantity.of(cpu), keys.BATCH_MEMORY: Quantity.of(memory, "BinarySI")}
    return msgspec.json.encode({"resources": {name: str(amount) for name, amount in amounts.items()}}).decode()


def _unless_broken(document: JSONDocument, value: T) -> T:
    if document.broken:
        raise InputError(document.problems)
    return value
