"""numaplacement v0: which pinned container is on which NUMA node, in a few characters.

Containers are sorted by a hash of their names; of each node but the busiest, the positions of its containers are
written as differences. So a reader has to know exactly the same containers. A container is on one node.
Source: k8stopologyawareschedwg/numaplacement, with its errors by name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import msgspec
import xxhash

METADATA_ATTRIBUTE = "topology.node.k8s.io/numaplacement-metadata"
"""Attribute of the whole object."""
VECTOR_ATTRIBUTE = "topology.node.k8s.io/numaplacement-vector"
"""Attribute of a zone; the busiest node has none."""
ENCODING = "leb89"
UNKNOWN = -1
"""A number that the metadata does not have."""

Container = tuple[str, str, str]
"""Namespace, pod, container."""
Flaw = Literal[
    "malformed",
    "unknown-field",
    "malformed-pair",
    "missing-key",
    "missing-value",
    "bad-number",
    "unsupported-encoding",
    "unknown-busiest",
    "inconsistent-busiest",
    "inconsistent-nodes",
    "inconsistent-vectors",
    "inconsistent-containers",
    "corrupted-vector",
    "duplicated",
    "wrong-affinity",
]

_HEAD, _SEPARATOR = "npv0v001", "::"
_LETTERS = [chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\']
_LAST = 64
"""Letters that end a number; the others continue it."""
_MORE = len(_LETTERS) - _LAST
_VALUE = {letter: value for value, letter in enumerate(_LETTERS)}
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LARGEST = 2**31 - 1
"""Positions are 32 bits wide."""


class PlacementError(ValueError):
    """A placement that cannot be written or read; `flaw` is the stable word for why."""

    def __init__(self, flaw: Flaw, text: str) -> None:
        super().__init__(f"{flaw}: {text}")
        self.flaw = flaw


class Metadata(msgspec.Struct, frozen=True):
    """Meaning of the numbers of the vectors; UNKNOWN where the text does not say it."""

    containers: int = UNKNOWN
    numa_nodes: int = UNKNOWN
    busiest: int = UNKNOWN
    encoding: str = ""

    def __str__(self) -> str:
        fields = (f"ve={self.encoding}", f"cc={self.containers}", f"nn={self.numa_nodes}", f"bn={self.busiest}")
        return _SEPARATOR.join((_HEAD, *fields))


class Encoded(msgspec.Struct, frozen=True):
    """The text for the object, and one for each zone that needs one, by NUMA node."""

    metadata: Metadata
    vectors: Mapping[int, str]


def hash_of(container: Container) -> int:
    """Sort key of containers."""
    return xxhash.xxh64_intdigest("\0".join(container).encode())


def encode(nodes: Mapping[Container, int], *, numa_nodes: int) -> Encoded:
    """The placement of `nodes`, by container; PlacementError when a node is not among 0 to `numa_nodes` − 1."""
    if numa_nodes <= 0:
        raise PlacementError("inconsistent-nodes", f"{numa_nodes} NUMA nodes")
    for container, node in nodes.items():
        if not 0 <= node < numa_nodes:
            raise PlacementError("wrong-affinity", f"{'/'.join(container)} is on NUMA node {node} of {numa_nodes}")
    order = sorted(nodes, key=hash_of)
    positions: dict[int, list[int]] = {}
    for position, container in enumerate(order):
        positions.setdefault(nodes[container], []).append(position)
    busiest = min(positions, key=lambda node: (-len(positions[node]), node), default=0)
    vectors = {node: _vector(members) for node, members in sorted(positions.items()) if node != busiest}
    return Encoded(Metadata(len(order), numa_nodes, busiest, ENCODING), vectors)


def decode(metadata: Metadata, vectors: Mapping[int, str], containers: Collection[Container]) -> dict[Container, int]:
    """The NUMA node of each of `containers`, which must be exactly those that were written; else PlacementError."""
    _validate(metadata, vectors)
    if len(set(containers)) != metadata.containers:
        raise PlacementError("inconsistent-containers", f"{len(set(containers))} instead of {metadata.containers}")
    order = sorted(set(containers), key=hash_of)
    by_container: dict[Container, int] = {}
    for node, vector in sorted(vectors.items()):
        for position in itertools.accumulate(numbers(vector)):
            if position >= len(order):
                raise PlacementError("corrupted-vector", f"position {position} of {len(order)} on NUMA node {node}")
            if order[position] in by_container:
                raise PlacementError("duplicated", f"position {position} is on two NUMA nodes, or twice on {node}")
            by_container[order[position]] = node
    return {container: by_container.get(container, metadata.busiest) for container in order}


def _validate(metadata: Metadata, vectors: Mapping[int, str]) -> None:
    if metadata.encoding != ENCODING:
        raise PlacementError("unsupported-encoding", metadata.encoding)
    if metadata.busiest == UNKNOWN:
        raise PlacementError("unknown-busiest", str(metadata))
    if not 0 <= metadata.busiest < metadata.numa_nodes:
        raise PlacementError("inconsistent-busiest", str(metadata))
    if len(vectors) >= metadata.numa_nodes or (vectors and not metadata.containers):
        raise PlacementError("inconsistent-vectors", f"{len(vectors)} vectors for {metadata}")
    if metadata.containers < 0:
        raise PlacementError("inconsistent-containers", str(metadata))
    if any(node == metadata.busiest or not 0 <= node < metadata.numa_nodes for node in vectors):
        raise PlacementError("corrupted-vector", f"vectors of the NUMA nodes {sorted(vectors)} for {metadata}")


def parse_metadata(text: str) -> Metadata:
    """The metadata in `text`; PlacementError when it cannot be read. What it does not name is UNKNOWN."""
    head = f"{_HEAD}{_SEPARATOR}"
    if not text.startswith(head):
        raise PlacementError("malformed", f"{text[:40]!r} does not begin with {head}")
    numbers_, encoding = {"cc": UNKNOWN, "nn": UNKNOWN, "bn": UNKNOWN}, ""
    for pair in text.removeprefix(head).split(_SEPARATOR):
        name, value = _pair(pair)
        if name == "ve":
            encoding = value
            continue
        if not _NUMBER.fullmatch(value) or not -(2**63) <= int(value) < 2**63:
            raise PlacementError("bad-number", pair)
        if name not in numbers_:
            raise PlacementError("unknown-field", pair)
        numbers_[name] = int(value)
    return Metadata(numbers_["cc"], numbers_["nn"], numbers_["bn"], encoding)


def _pair(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals:
        raise PlacementError("malformed-pair", pair)
    if not name:
        raise PlacementError("missing-key", pair)
    if not value:
        raise PlacementError("missing-value", pair)
    return name, value


def number(value: int) -> str:
    """Encode a number in letters: 0 to 63 takes one, to 1663 two, to 40063 three. ValueError below 0."""
    if value < 0:
        raise ValueError(f"{value} is below 0")
    if value < _LAST:
        return _LETTERS[value]
    value, last = divmod(value - _LAST, _LAST)
    letters = [_LETTERS[last]]
    while True:
        value, digit = divmod(value, _MORE)
        letters.append(_LETTERS[_LAST + digit])
        if not value:
            return "".join(reversed(letters))


def numbers(text: str) -> Iterator[int]:
    """The numbers in `text`; PlacementError for a letter that is none, a number that does not end or is too large."""
    more, open_ = 0, False
    for letter in text:
        value = _VALUE.get(letter)
        if value is None:
            raise PlacementError("corrupted-vector", f"{letter!r} is no letter of {ENCODING}")
        if value >= _LAST:
            more, open_ = more * _MORE + value - _LAST, True
            if more > _LARGEST:
                raise PlacementError("corrupted-vector", "a number is too large")
            continue
        yield _LAST + more * _LAST + value if open_ else value
        more, open_ = 0, False
    if open_:
        raise PlacementError("corrupted-vector", "the last number does not end")


def _vector(positions: list[int]) -> str:
    steps = (position - before for before, position in itertools.pairwise([0, *positions]))
    return "".join(map(number, steps))
