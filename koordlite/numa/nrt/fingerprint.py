"""Fingerprint of the pods of a node: one short text by which a scheduler sees whether a report knows the same pods.

Two pods of the same namespace and name have the same part, so a pod that was created again with other requests does not
change it. Source: podfingerprint v1 (k8stopologyawareschedwg/podfingerprint).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import xxhash

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
"""Annotation of older reporters."""
Method = Literal["all", "with-exclusive-resources"]
ONLY_EXCLUSIVE: Method = "with-exclusive-resources"

_HEAD = "pfp0v001"


def sign(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods given by namespace and name, in any order; a pod named twice counts twice."""
    hashes = sorted(_hash(name, seed=_hash(namespace)) for namespace, name in pods)
    whole = b"".join(each.to_bytes(8, "little") for each in hashes)
    return f"{_HEAD}{xxhash.xxh64_hexdigest(whole)}"


def read(attributes: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The fingerprint that a NodeResourceTopology carries: its attribute, else the old annotation, else nothing."""
    return attributes.get(ATTRIBUTE, annotations.get(ANNOTATION, ""))


def only_exclusive(attributes: Mapping[str, str]) -> bool:
    """Tell whether only pods with resources of their own were counted; an unknown method, or the old annotation, means
    all pods."""
    return ATTRIBUTE in attributes and attributes.get(METHOD_ATTRIBUTE) == ONLY_EXCLUSIVE


def _hash(text: str, *, seed: int = 0) -> int:
    return xxhash.xxh64_intdigest(text.encode(), seed=seed)
