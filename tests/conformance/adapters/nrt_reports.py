"""What reporters of NodeResourceTopology sign and encode: pod fingerprints and numaplacement."""

from __future__ import annotations

from typing import Any

from koordlite.numa.nrt import fingerprint, placement
from tests.conformance.adapters import adapter, mappings


def flaw(text: str, pods: list[tuple[str, str]]) -> str | None:
    """What upstream's check says of a fingerprint, in its order. Ours is compared as a whole."""
    if len(text.encode()) < 16 or not text.startswith("pfp0"):
        return "malformed"
    if not text.startswith("pfp0v001"):
        return "incompatible-version"
    return None if text == fingerprint.sign(pods) else "mismatch"


mappings(
    {
        "podfingerprint.sign": lambda given: {"fingerprint": fingerprint.sign(_pods(given))},
        "podfingerprint.check": lambda given: {"error": flaw(given["fingerprint"], _pods(given))},
        "numaplacement.hash": lambda given: {"hash": str(placement.hash_of(_container(given)))},
    }
)


@adapter("numaplacement.leb89")
def number(given: Any, expect: Any) -> tuple[Any, Any]:
    text = placement.number(given["value"])
    assert list(placement.numbers(text)) == [given["value"]]
    found = {"text": text, "chars": len(text)}
    return {name: found[name] for name in expect}, expect


@adapter("numaplacement.encode")
def encode(given: Any, expect: Any) -> tuple[Any, Any]:
    nodes = {_container(each): each["numa"] for each in given["containers"]}
    try:
        encoded = placement.encode(nodes, numa_nodes=given["numaNodes"])
    except placement.PlacementError as error:
        return {"error": error.flaw}, expect
    assert placement.decode(placement.parse_metadata(str(encoded.metadata)), encoded.vectors, list(nodes)) == nodes
    vectors = {str(node): vector for node, vector in encoded.vectors.items()}
    return {"metadata": str(encoded.metadata), "vectors": vectors}, expect


@adapter("numaplacement.unpack_metadata")
def unpack(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        read = placement.parse_metadata(given["metadata"])
    except placement.PlacementError as error:
        return {"error": error.flaw}, expect
    found = {
        "error": None,
        "containers": read.containers,
        "numaNodes": read.numa_nodes,
        "busiestNode": read.busiest,
        "vectorEncoding": read.encoding,
    }
    return {name: found.get(name) for name in expect}, expect


def _pods(given: Any) -> list[tuple[str, str]]:
    return [(pod["namespace"], pod["name"]) for pod in given["pods"]]


def _container(given: Any) -> placement.Container:
    return given["namespace"], given["pod"], given["container"]
